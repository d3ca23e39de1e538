package pmem

import (
	"encoding/binary"
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
// it never moves.
const growRoom = 1 << 40

// reserveRoom takes size bytes of address space and as much of the room behind them as there is.
func reserveRoom(size uint64) (space, error) {
	for room := max(growRoom, size); room >= hugeLen; room /= 2 {
		if size > maxSpace || room > maxSpace-size {
			continue
		}
		if s, err := reserve(size + room); err == nil {
			return s, nil
		}
	}
	return reserve(size)
}

// maxSpace is the longest run of addresses that a slice can have, and the alignment in front of it.
const maxSpace = math.MaxInt - hugeLen

// reserve takes size bytes of address space, aligned to hugeLen, that fault until something is mapped there. They cost no memory.
func reserve(size uint64) (space, error) {
	if size > maxSpace {
		return space{}, unix.ENOMEM
	}
	n := uintptr(size) + hugeLen
	base, err := unix.MmapPtr(-1, 0, nil, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return space{}, err
	}
	start := unsafe.Add(base, -uintptr(base)%hugeLen)
	return space{base: base, len: n, mem: unsafe.Slice((*byte)(start), int(size))}, nil
}

// mapFile replaces the addresses of b, page-aligned within a reserved space, by the file from at on.
func mapFile(fd int, at int64, b []byte, prot, flags int) error {
	_, err := unix.MmapPtr(fd, at, unsafe.Pointer(&b[0]), uintptr(len(b)), prot, flags|unix.MAP_FIXED)
	return err
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
