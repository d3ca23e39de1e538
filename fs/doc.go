// Package fs serves a volume to the kernel over FUSE: requests in, errno out.
//
// # How it works
//
// Server implements go-fuse's RawFileSystem, because only there the O_DSYNC flag of a WRITE is visible. A node id is an
// inode number and every generation is 1, since inode numbers are never used twice. The server keeps nothing per file: no
// node table, no open files. What it must know of an open file stands in the handle number (see handle).
//
// The kernel is the only client of the volume, and every change passes through it. So names, negative names, attributes and
// pages stay in its caches until it drops them. Whatever the server changes on its own (set-user-id bits cleared by a write)
// is told to the kernel at once.
//
// # Durability
//
// write stores into the pool and returns. FSYNC and FSYNCDIR return when Committer.Fsync has, and are always implemented: an
// ENOSYS would be cached by the kernel as success. There is no writeback cache and no passthrough; the kernel turns msync into
// WRITE requests followed by FSYNC.
//
// An O_DSYNC or O_SYNC write costs exactly one drain. On a handle opened without these flags (RWF_DSYNC, mount option sync)
// the kernel follows its WRITE with a FSYNC, and the WRITE itself does not drain. A handle opened with them is direct I/O: the
// kernel sends one WRITE that carries the flag and no FSYNC, and the WRITE drains. This saves a round trip per write.
//
// copy_file_range is done here, whole pages only (see CopyFileRange); it drains where an O_DSYNC write would.
//
// With the mount option sync every change of a name or an attribute is followed by a drain too; with dirsync every change of a
// name. Without them, names and attributes become durable with the next drain of anything or at the commit interval.
//
// # Large reads
//
// The answer to a READ of 256 KiB or more is not copied: the volume lends its content, and stays locked for changes until the
// kernel has it (see loan).
//
// # Failure
//
// A committer that can no longer keep its promise stops the volume, for good. From then on fsync, O_DSYNC writes and the
// close of a file with content that is not durable answer EIO; other changes answer EROFS; reads go on.
//
// Signals do not interrupt a request: the server never looks at the cancel channel, so that neither write nor fsync answers
// EINTR. The kernel sends INTERRUPT for any signal, those that the Go runtime uses for preemption included.
//
// go-fuse recovers a panic of a handler and would answer EIO, with the locks of the volume still held and its state unknown.
// The server ends the process instead: the mount answers ENOTCONN, and recovery finds the last sealed record. Faults of mapped
// memory are not panics here; internal/pmem turns them into errors, and the request answers EIO.
//
// # Left to the kernel
//
// Permissions (default_permissions), those of ACLs included; the volume keeps ACLs and mode in step and lets them be inherited.
// For a caller who is not the owner the kernel asks once per inode whether there is an ACL, and remembers the answer.
//
// flock, fcntl and OFD locks: the mount is the only place from which the files are reached, so the kernel's own locks are
// complete, and they are released when their holder is killed. The set-group-id rules of chmod and create. statfs never waits for a copy.
//
// The flags immutable and append-only (chattr(1)) are the server's: the kernel does not know them, so that access(2) may say
// yes where open(2) answers EPERM.
//
// The access time is the volume's: relatime, none with noatime or ro, or with strictatime each read(2). It moves when a READ
// reaches the server, not when the page cache serves; so with strictatime every handle is direct I/O. A load through a
// mapping counts when it brings a page in.
//
// Names: the root entry ".go-fuse-epoll-hack" belongs to go-fuse and cannot be used.
package fs
