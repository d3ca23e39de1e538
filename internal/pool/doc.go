// Package pool opens a copy of a pool: its lock, its mapped region, its header and its state.
//
// # Lock
//
// A pool is opened by one process at a time, by flock(2) of the file PART.lock beside the first part. Each Device DAX is locked as well, by
// the file /run/pmemfs/daxX.Y.lock, whatever name the pool set gives it. These files name the
// holder. A lock proves nothing about a dying process: after SIGKILL the kernel may free the lock while the process still
// has the pool mapped. Therefore the next opener also waits until the process that the file names is gone. A clean Close
// empties the file.
//
// # Order
//
// Create: parts allocated and their names durable; then state slot, header copy and header, each persistent before the
// next. So a valid header stands for a complete pool. A failed Create removes what it made. A Device DAX as a part holds nothing but zeros when
// the state is written, like a new file, and is made zero again where a file would be removed.
//
// Open: lock; parts mapped; header and state checked; everything in the region persistent, so that nothing is believed that
// sits only in a cache; then, where a reboot lost memory, the state Inconsistent persistent. Only then has the caller the pool.
//
// SetState writes the older slot and never touches the current one.
//
// # Concurrency
//
// All methods of a Pool but Close may be called from several goroutines.
package pool
