// Package pmem is the door to the bytes of a pool: mapping, flushing, fencing, copying, and the faults that mapped memory
// can raise.
//
// A Region is one copy of a pool, mapped once. Everything that must be durable goes through Drain, the one commit
// primitive: make ranges persistent, then store one aligned 8-byte seal and make that persistent.
//
// Memory of a mapped file can fault at any access (media error, truncated file, full host file system under a sparse
// pool). Copy, Zero and Guard turn such a fault into a *FaultError; no other code may rely on recovering from it.
package pmem
