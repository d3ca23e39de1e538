package pmem

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Directories of the two kinds of file system that every Linux machine has.
const memoryDir = "/dev/shm"

// newFile makes a file of size bytes in a directory that goes away with the test.
func newFile(t testing.TB, parent, name string, size int64) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pmem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// openFile maps one file of size bytes, with the promise that assume says if it is not zero.
func openFile(t testing.TB, path string, size uint64, assume Promise) *mapping {
	t.Helper()
	m, err := openFiles([]Part{{path, size}}, Options{}, assume)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// regions opens one region of each kind.
func regions(t testing.TB, size uint64) map[string]Region {
	disk := newFile(t, t.TempDir(), "disk", int64(size))
	return map[string]Region{
		"heap":      NewHeap(size),
		"tmpfs":     openFile(t, newFile(t, memoryDir, "shm", int64(size)), size, 0),
		"pagecache": openFile(t, disk, size, PageCache),
		"dax":       openFile(t, newFile(t, memoryDir, "dax", int64(size)), size, Persistent),
	}
}

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestCopyAndZeroTouchExactlyTheirBytes(t *testing.T) {
	r := newRand(t)
	const size = 1 << 20
	m := openFile(t, newFile(t, memoryDir, "p", size), size, 0)
	want := make([]byte, size)
	for range 300 {
		n := r.IntN(3 * streamMin)
		if r.IntN(10) == 0 {
			n = r.IntN(size)
		}
		off := r.IntN(size - n + 1)
		src := make([]byte, n)
		var err error
		if r.IntN(3) > 0 {
			fill(r, src)
			err = Copy(m.Bytes()[off:], src)
		} else {
			err = Zero(m.Bytes()[off : off+n])
		}
		if err != nil {
			t.Fatal(err)
		}
		copy(want[off:], src)
		if !bytes.Equal(m.Bytes(), want) {
			t.Fatalf("bytes differ after %d bytes at %d", n, off)
		}
	}
	got := make([]byte, size)
	if err := CopyOut(got, m.Bytes()); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("CopyOut: %v", err)
	}
}

func TestStreamOfEveryAlignment(t *testing.T) {
	buf, src := make([]byte, 512), make([]byte, 512)
	fill(newRand(t), src)
	for off := range 65 {
		for n := range 260 {
			clear(buf)
			stream(buf[off:off+n], src[:n])
			if !bytes.Equal(buf[off:off+n], src[:n]) || buf[off+n] != 0 || off > 0 && buf[off-1] != 0 {
				t.Fatalf("stream of %d bytes at %d", n, off)
			}
			copy(buf, src)
			streamZero(buf[off : off+n])
			if !bytes.Equal(buf[off:off+n], make([]byte, n)) || !bytes.Equal(buf[:off], src[:off]) ||
				!bytes.Equal(buf[off+n:], src[off+n:]) {
				t.Fatalf("streamZero of %d bytes at %d", n, off)
			}
		}
	}
}

// What goes past the cache is fenced before Copy and Zero return, behind the last byte; shorter runs need no fence.
func TestCopyAndZeroPublishWhatTheyStream(t *testing.T) {
	saved := publish
	defer func() { publish = saved }()
	const most = 3*pieceLen + 100
	dst, src, zeros, old := make([]byte, most), make([]byte, most), make([]byte, most), bytes.Repeat([]byte{0xEE}, most)
	fill(newRand(t), src)
	for _, n := range []int{1, streamMin - 1, streamMin, most} {
		for name, c := range map[string]struct {
			op   func() error
			want []byte
		}{
			"Copy": {func() error { return Copy(dst[:n], src[:n]) }, src},
			"Zero": {func() error { return Zero(dst[:n]) }, zeros},
		} {
			copy(dst, old)
			fences := 0
			publish = func() {
				fences++
				if !bytes.Equal(dst[:n], c.want[:n]) {
					t.Errorf("%s of %d bytes: fenced before all of them were stored", name, n)
				}
				saved()
			}
			if err := c.op(); err != nil {
				t.Fatal(err)
			}
			want := 0
			if n >= streamMin && !raceEnabled {
				want = 1
			}
			if fences != want {
				t.Errorf("%s of %d bytes: %d fences, want %d", name, n, fences, want)
			}
		}
	}
}

func TestCopyRefusesAShortDestination(t *testing.T) {
	if err := Copy(make([]byte, 3), make([]byte, 4)); err == nil {
		t.Error("Copy: no error")
	}
	if err := CopyOut(make([]byte, 3), make([]byte, 4)); err == nil {
		t.Error("CopyOut: no error")
	}
}

func TestRangesOutOfBounds(t *testing.T) {
	const size = 64 << 10
	for name, r := range regions(t, size) {
		for _, bad := range []Range{{size, 1}, {size + 1, 0}, {0, size + 1}, {^uint64(0), 2}, {4096, ^uint64(0)}} {
			err := r.Flush([]Range{{0, 1}, bad})
			var re *RangeError
			if !errors.As(err, &re) || re.Off != bad.Off || re.Len != bad.Len || re.Size != size {
				t.Errorf("%s: Flush(%v): %v", name, bad, err)
			}
			if err := r.Prefault(bad); !errors.As(err, &re) {
				t.Errorf("%s: Prefault(%v): %v", name, bad, err)
			}
		}
		for _, off := range []uint64{size, size - 4, 12, ^uint64(7)} {
			if err := r.Store64(off, 1); err == nil {
				t.Errorf("%s: Store64(%d): no error", name, off)
			}
		}
		if err := r.Flush([]Range{{size, 0}, {0, size}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDrainStoresTheSealLittleEndian(t *testing.T) {
	for name, r := range regions(t, 64<<10) {
		if err := Drain(r, []Range{{5, 100}, {8192, 4096}}, Seal{Off: 4096, Val: 0x0807060504030201}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := r.Bytes()[4096:4104]; !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%s: seal % x", name, got)
		}
		if err := r.Prefault(Range{4090, 20000}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Sync(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := r.Bytes()[4104:]; !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("%s: Drain or Prefault changed other bytes", name)
		}
	}
}

// orderedRegion records the calls of Drain.
type orderedRegion struct {
	Region
	log  []string
	fail string
}

func (o *orderedRegion) step(s string) error {
	o.log = append(o.log, s)
	if s == o.fail {
		return errors.New(s)
	}
	return nil
}

func (o *orderedRegion) Flush(rs []Range) error {
	if len(rs) == 1 && rs[0] == (Range{64, 8}) {
		return o.step("flush seal")
	}
	return o.step("flush")
}
func (o *orderedRegion) Fence() error                { return o.step("fence") }
func (o *orderedRegion) Store64(off, v uint64) error { return o.step("store") }

func TestDrainOrder(t *testing.T) {
	all := []string{"flush", "fence", "store", "flush seal", "fence"}
	for n, fail := range []string{"", "flush", "fence", "store", "flush seal"} {
		o := &orderedRegion{fail: fail}
		err := Drain(o, []Range{{0, 1}}, Seal{64, 1})
		want := all
		if n > 0 {
			want = all[:n]
		}
		if (err != nil) != (n > 0) || len(o.log) != len(want) {
			t.Errorf("fail at %q: %v, steps %v", fail, err, o.log)
		}
		for i := range want {
			if o.log[i] != want[i] {
				t.Errorf("fail at %q: steps %v", fail, o.log)
			}
		}
	}
	o := &orderedRegion{}
	if err := Drain(o, nil, Seal{}); err != nil || len(o.log) != 2 {
		t.Errorf("without a seal: %v, steps %v", err, o.log)
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	const size = 1 << 20
	for name, r := range regions(t, size) {
		rs := []Range{{0, 100}, {8192, 70000}}
		src := make([]byte, 300<<10)
		fn := func() { r.Bytes()[9] = 1 }
		for op, f := range map[string]func() error{
			"Drain":   func() error { return Drain(r, rs, Seal{4096, 7}) },
			"Copy":    func() error { return Copy(r.Bytes()[13:], src) },
			"CopyOut": func() error { return CopyOut(src, r.Bytes()[13:13+len(src)]) },
			"Zero":    func() error { return Zero(r.Bytes()[13:400000]) },
			"Guard":   func() error { return Guard(fn) },
		} {
			if raceEnabled && op == "Drain" {
				continue // sync.Pool drops entries at random under the race detector
			}
			var err error
			n := testing.AllocsPerRun(20, func() { err = errors.Join(err, f()) })
			if err != nil || n != 0 {
				t.Errorf("%s: %s: %v allocations, %v", name, op, n, err)
			}
		}
	}
}
