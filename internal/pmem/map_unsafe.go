package pmem

import (
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The conversions in this file are legal because the memory either is a Go slice that is kept alive by its caller, or was
// mapped by this package outside of the Go heap, where the collector neither looks nor moves anything, and stays
// mapped until Close.

// hugeLen aligns a mapping so that the kernel can use 2 MiB pages.
const hugeLen = 2 << 20

// space is a run of reserved addresses. Files are mapped over mem from its start on.
type space struct {
	base unsafe.Pointer
	len  uintptr
	mem  []byte
}

// growRoom is how many bytes of address space a region gets beyond its size, or as many as it has if that is more: what it can grow by, since
// it never moves. A variable for the sake of tests in an emulator, which keeps a note of each reserved page.
var growRoom uint64 = 1 << 40

// reserveRoom takes size bytes of address space, aligned to align, and as much of the room behind them as there is.
func reserveRoom(size, align uint64) (space, error) {
	for room := max(growRoom, size); room >= hugeLen; room /= 2 {
		if !fits(size, align) || room > math.MaxInt-align-size {
			continue
		}
		if s, err := reserve(size+room, align); err == nil {
			return s, nil
		}
	}
	return reserve(size, align)
}

// fits tells whether a slice can have size bytes, with an alignment in front of it.
func fits(size, align uint64) bool { return align <= math.MaxInt && size <= math.MaxInt-align }

// reserve takes size bytes of address space, aligned to a power of two, that fault until something is mapped there. They cost no memory.
func reserve(size, align uint64) (space, error) {
	if !fits(size, align) {
		return space{}, unix.ENOMEM
	}
	n := uintptr(size + align)
	base, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return space{}, err
	}
	start := unsafe.Add(base, -uintptr(base)%uintptr(align))
	return space{base: base, len: n, mem: unsafe.Slice((*byte)(start), int(size))}, nil
}

// mapFile replaces the addresses of b, page-aligned within a reserved space, by the file from at on.
func mapFile(fd int, at int64, b []byte, prot, flags int) error {
	_, err := unix.MmapPtr(fd, at, unsafe.Pointer(&b[0]), uintptr(len(b)), prot, flags|unix.MAP_FIXED)
	return err
}

// replace puts the content of b, whole pages, into anonymous memory, and that in the place of b, in one step: whoever reads b meanwhile finds
// the same bytes before and after it.
func replace(b []byte) error {
	n := uintptr(len(b))
	fresh, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	err = CopyOut(unsafe.Slice((*byte)(fresh), len(b)), b)
	if err == nil {
		_, err = unix.MremapPtr(fresh, n, unsafe.Pointer(&b[0]), n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	}
	if err != nil {
		return errors.Join(err, unix.MunmapPtr(fresh, n))
	}
	return nil
}

// vacate makes the addresses of b fault again and keeps them reserved.
func vacate(b []byte) error {
	return mapFile(-1, 0, b, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

func (s space) release() error { return unix.MunmapPtr(s.base, s.len) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// store64 stores val, little-endian, into the aligned first eight bytes of b in one piece.
func store64(b []byte, val uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], val)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), binary.NativeEndian.Uint64(w[:]))
}

// touch makes the page of b present and writable without changing a byte, even while others store to it.
func touch(b []byte) { atomic.AddUint64((*uint64)(unsafe.Pointer(&b[0])), 0) }
