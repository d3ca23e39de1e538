package pmem

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmapTail unmaps the pages of m from off on, until remap fills the hole again.
func unmapTail(t *testing.T, m *mapping, off int) (remap func()) {
	hole, n := unsafe.Pointer(&m.mem[off]), uintptr(len(m.Bytes())-off)
	if err := unix.MunmapPtr(hole, n); err != nil {
		t.Fatal(err)
	}
	return func() {
		flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED_NOREPLACE
		if _, err := unix.MmapPtr(-1, 0, hole, n, unix.PROT_NONE, flags); err != nil {
			t.Fatal(err)
		}
	}
}
