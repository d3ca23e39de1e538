//go:build race

package iwarp

import "sync/atomic"

// ioSync tells the race detector what package syscall tells it about its own reads and writes: what happened before a
// write to a socket happened before a later read from one. The raw system calls of this package do not.
var ioSync atomic.Uint64

func beforeWrite() { ioSync.Add(1) }
func afterRead()   { ioSync.Load() }
