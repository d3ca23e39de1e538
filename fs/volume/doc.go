// Package volume is the file system on a pool: inodes, directories, extents and data in a mapped region, changed by
// groups that a commit makes durable.
//
// # How it works
//
// All metadata are key/value pairs in a copy-on-write B+tree that is used in place from the mapping (fs/volume/tree).
// An operation changes the live tree and appends the same puts and deletes to the open group. Closing the group writes
// it as one record into the log ring, still without its seal, and hands out a Job: the ranges that must be persistent
// before the seal of the record may be stored. Closing an epoch freezes the nodes born in it and hands out the Job of
// the other super slot. Whoever drives the volume (fs/commit) executes jobs in order on every copy and reports back
// with Sealed.
//
// Bytes that a durable state reaches are never stored to, except the data of files in place. So at any moment each copy
// recovers to the state of its last sealed record.
//
// Content is logged when a file is flushed, names and attributes at once. A write allocates and stores its data
// immediately, but extents, size and times stay pending in memory until FlushFile moves them into the open group.
// FlushFile happens at fsync, at the commit interval, for the source of a rename over an existing name and both sides of an
// exchange, and in fallocate and truncate.
//
// # What is promised
//
// After the group returned by FlushFile is sealed on a copy, that copy recovers to a state with all content of that
// file as of the FlushFile, and with every change of names and attributes made before it. Content not flushed may be
// lost, bytes overwritten in place may be old or new, and never are they another file's bytes. A truncation or a hole hurts
// nothing that is durable before its own group is sealed: blocks cleared in part are replaced, others unmapped.
//
// So fsync, fdatasync, msync, and writes with O_SYNC or O_DSYNC are FlushFile and waiting for its group on every copy;
// fdatasync saves nothing. A rename over a file takes the content of its source along: a crash shows the old or the new
// file. Not promised: close writes nothing; sync(2) and syncfs do not reach a FUSE server; an overwrite in place is not
// atomic, and a write that was not flushed may survive in part.
//
// # Concurrency
//
// A Volume is safe for concurrent use; one lock protects it all, taken inside each method and never held while waiting
// for a copy; only a Loan keeps it, shared, while the kernel copies. It starts no goroutine, reads no clock but
// Options.Now, and uses no random source, so that a simulation can drive it.
//
// # Shortage
//
// A method that lacks blocks, tree nodes, or room in the log, returns ErrShort before it changed anything that shows. Two
// do a part first: Write returns how many bytes it took, and any kind of fallocate may be done with a part of the range. The
// caller reclaims orphans, runs a checkpoint (which frees what deferred frees hold) and tries again, twice at most, and
// then reports ENOSPC. FlushFile never lacks room: what it needs is set aside when content becomes pending.
//
// A quarter of the log at most is set aside. Data never take the last chunks, the reserve; half of it is for names and
// attributes, half for deletions alone, so that a full pool can always be emptied.
package volume
