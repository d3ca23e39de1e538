//go:build amd64 || arm64

package pmem

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"
)

// Flush reaches every cache line of its ranges, and none of a line that they do not touch.
func TestFlushCoversItsLines(t *testing.T) {
	const size = 4 << 20
	m := openFile(t, newFile(t, memoryDir, "p", size), size, Persistent)
	saved := flushRun
	defer func() { flushRun = saved }()
	flushed, lineBytes := map[uint64]bool{}, uint64(lineLen)
	flushRun = func(p *byte, n uintptr) {
		if n == 0 || n > pieceLen {
			t.Errorf("run of %d bytes", n)
		}
		lo := uint64(uintptr(unsafe.Pointer(p)) - address(m.mem))
		for line := lo / lineBytes; line*lineBytes < lo+uint64(n); line++ {
			flushed[line] = true
		}
	}
	rnd := newRand(t)
	for range 50 {
		clear(flushed)
		want := map[uint64]bool{}
		var rs []Range
		for range rnd.IntN(5) {
			r := Range{Off: rnd.Uint64N(size), Len: rnd.Uint64N(4096)}
			if rnd.IntN(8) == 0 {
				r.Len = rnd.Uint64N(size)
			}
			r.Len = min(r.Len, size-r.Off)
			rs = append(rs, r)
			for off := r.Off &^ (lineBytes - 1); off < r.Off+r.Len; off += lineBytes {
				want[off/lineBytes] = r.Len > 0
			}
		}
		if err := m.Flush(rs); err != nil {
			t.Fatal(err)
		}
		for line, touched := range want {
			if touched != flushed[line] {
				t.Fatalf("%v: line %d: flushed %v, want %v", rs, line, flushed[line], touched)
			}
			delete(flushed, line)
		}
		if len(flushed) > 0 {
			t.Fatalf("%v: %d more lines flushed", rs, len(flushed))
		}
	}
}

// With eADR a drain writes no cache line back, and is refused all the same where it was.
func TestEADR(t *testing.T) {
	const size = 64 << 10
	path := newFile(t, memoryDir, "p", size)
	saved := flushRun
	defer func() { flushRun = saved }()
	var flushed int
	flushRun = func(*byte, uintptr) { flushed++ }
	for _, eadr := range []bool{false, true} {
		m, err := openFiles([]Part{{path, size}}, Options{EADR: eadr}, Persistent)
		if err != nil {
			t.Fatal(err)
		}
		flushed = 0
		if err := Drain(m, []Range{{0, 100}, {8192, 4096}}, Seal{Off: 4096, Val: 7}); err != nil {
			t.Fatal(err)
		}
		if (flushed == 0) != eadr || m.Bytes()[4096] != 7 || m.Promise() != Persistent {
			t.Errorf("eADR %v: %d runs flushed, seal %d, promise %d", eadr, flushed, m.Bytes()[4096], m.Promise())
		}
		var re *RangeError
		if err := m.Flush([]Range{{size, 1}}); !errors.As(err, &re) {
			t.Errorf("eADR %v: flush outside of the region: %v", eadr, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The page cache is no CPU cache.
	m, err := openFiles([]Part{{path, size}}, Options{EADR: true}, PageCache)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	remap := unmapTail(t, m, 4096)
	err = m.Flush([]Range{{8192, 1}})
	remap()
	var se *SyncError
	if !errors.As(err, &se) {
		t.Errorf("an ordinary file was not written back: %v", err)
	}
}

func BenchmarkCopy(b *testing.B) {
	const size = 256 << 20
	m := openFile(b, newFile(b, memoryDir, "p", size), size, Persistent)
	if err := m.Prefault(Range{0, size}); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{64, 1024, 4096, 131072} {
		src := make([]byte, n)
		rs := make([]Range, 1)
		for _, way := range []string{"stream", "cached"} {
			b.Run(fmt.Sprintf("%s/%d", way, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				off := 0
				for b.Loop() {
					dst := m.mem[off : off+n]
					if way == "stream" {
						stream(dst, src)
					} else {
						copy(dst, src)
					}
					rs[0] = Range{uint64(off), uint64(n)}
					if err := Drain(m, rs, Seal{}); err != nil {
						b.Fatal(err)
					}
					off = (off + n) % (size - n)
				}
			})
		}
	}
}
