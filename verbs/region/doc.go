// Package region registers the memory of a pool with an RDMA device. It knows which kinds of memory a device may be given and how, divides a
// pool into chunks, checks what the process may pin, and says what to do where a device cannot have a pool.
//
// # Kinds of memory
//
// A device that stores by this process's own hand (verbs.Caps.OwnStores) takes everything. Any other keeps the pages for
// itself, so it depends on what they are:
//
//	heap, tmpfs, Device DAX  pinned
//	file on fs-DAX           registered on demand, since the file system must be able to move its blocks (ibv_reg_mr(3),
//	                         IBV_ACCESS_ON_DEMAND); refused by a device without on-demand paging
//	file in the page cache   refused: its pages are written back, and may be replaced, behind the device, and what a device
//	                         stores into one need not be written at all
//
// # Chunks
//
// Chunk i holds the bytes [i*Size, (i+1)*Size) of the pool, where Size is a power of two. So a huge pool can be registered step by step, devices with
// a largest region can take it, and a pool that grows registers only what is new. A work request stays within one chunk.
package region
