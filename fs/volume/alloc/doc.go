// Package alloc hands out the space of the general area: blocks for file data, and tree nodes from whole chunks.
//
// At mount the owner makes an Allocator in which all is free and marks what the tree and the log refer to, by a walk or from
// a snapshot (fs/volume/snapshot) that lists the runs in use. Freed space is free at once; that a state which a copy may recover to no longer needs it is for the
// owner to wait for.
//
// A chunk is either a node chunk or for data. A chunk without data becomes a node chunk when nodes run out, and returns
// when its last node is freed. Chunks are aligned in pool offsets; blocks before the first whole chunk and after the last
// are for data only.
//
// The reserve: data never break into a wholly free chunk if after that fewer than `reserve` chunks' worth of nodes could
// still be had. So a commit or a deletion finds nodes when no more data fit.
//
// All state is bitmaps and one count per chunk: 1 bit per block, about 9 bytes per chunk, no object per block. A search looks at
// a few words: sets of chunks are bitmaps with summaries above them.
//
// An Allocator is not safe for concurrent use. Freeing what is not allocated is a bug of the caller and panics.
package alloc
