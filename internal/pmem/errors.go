package pmem

import (
	"errors"
	"fmt"
)

// ErrReadOnly is returned by everything that would change a region that was opened read-only.
var ErrReadOnly = errors.New("pmem: the region is mapped read-only")

// FaultError is an access to mapped memory that the kernel could not carry out (SIGBUS or SIGSEGV).
type FaultError struct {
	Addr uintptr // address of the fault, as the kernel reported it; may be rounded down to a page
	Off  uint64  // the same as a pool offset
	Path string  // part that holds Off
	At   uint64  // offset of Off in Path
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("pmem: memory access failed at pool offset %d (%s, offset %d): the file was truncated, "+
		"the file system below it is full, or the medium is damaged there; see the kernel log", e.Off, e.Path, e.At)
}

// RangeError is a range that does not lie within a region.
type RangeError struct {
	Op             string
	Off, Len, Size uint64 // bytes; Size is that of the region
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("pmem: %s of %d bytes at offset %d does not lie within the region of %d bytes",
		e.Op, e.Len, e.Off, e.Size)
}

// SizeError is a part that is smaller than the pool set says.
type SizeError struct {
	Path     string
	Expected uint64 // bytes, at least
	Found    uint64 // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("pmem: part %s is too small: expected at least %d bytes, found %d; "+
		"restore the part, or correct its size in the pool set", e.Path, e.Expected, e.Found)
}

// SyncError is a failed write-back. The kernel may have dropped the pages that it could not write and reports that only
// once, so the error stays with the region.
type SyncError struct {
	Path     string // first part
	Off, Len uint64
	Err      error
}

func (e *SyncError) Error() string {
	return fmt.Sprintf("pmem: write-back of %d bytes at offset %d of the pool at %s failed: %v; "+
		"this copy can no longer be trusted: see the kernel log, then restore it from another copy", e.Len, e.Off, e.Path, e.Err)
}

func (e *SyncError) Unwrap() error { return e.Err }

// checkRange reports a *RangeError unless [off, off+n) lies within size bytes.
func checkRange(op string, off, n, size uint64) error {
	if off <= size && n <= size-off {
		return nil
	}
	return &RangeError{Op: op, Off: off, Len: n, Size: size}
}

// checkWord reports an error unless off is an aligned 8-byte word within size bytes.
func checkWord(off, size uint64) error {
	if off%8 != 0 {
		return fmt.Errorf("pmem: store of 8 bytes at offset %d: the offset is not a multiple of 8", off)
	}
	return checkRange("store", off, 8, size)
}
