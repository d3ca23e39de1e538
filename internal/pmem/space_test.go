package pmem

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReserveRoom_Huge asks for more addresses than there are: an error, and no sum that wraps around to a small one.
func TestReserveRoom_Huge(t *testing.T) {
	for _, size := range []uint64{1 << 62, 1<<62 + hugeLen, math.MaxInt - hugeLen, math.MaxInt, 1 << 63, math.MaxUint64 - hugeLen, math.MaxUint64} {
		for _, align := range []uint64{hugeLen, 1 << 30, 1 << 63} {
			reserveHuge(t, size, align)
		}
	}
}

func reserveHuge(t *testing.T, size, align uint64) {
	s, err := reserveRoom(size, align)
	if err == nil {
		t.Errorf("%#x bytes: reserved %#x", size, len(s.mem))
		if err := s.release(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("%#x bytes: %v", size, err)
	}
}
