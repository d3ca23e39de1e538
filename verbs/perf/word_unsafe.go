package perf

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is the word at byte off of b, which the other side changes while this one looks at it. It is a variable of b's memory at an
// address that is a multiple of 8, as off is, and the address of every mapping; and b stays mapped as long as the side that looks at it is open.
func wordAt(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b[off : off+8][0]))
}
