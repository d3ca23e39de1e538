package pmemtest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

var everything = Effort{Subsets: 12, Singles: 1 << 10, Pairs: 10, Random: 50}

// images collects the different images of the moment.
func images(r *Region, e Effort) map[uint64][]byte {
	out := make(map[uint64][]byte)
	r.Images(e, rand.New(rand.NewPCG(1, 1)), func(m *Image) bool {
		b := m.Clone()
		if old, ok := out[m.Hash]; ok && !bytes.Equal(old, b) {
			panic("two images with one hash")
		}
		out[m.Hash] = b
		return true
	})
	return out
}

// words tells which values the word at off has in the images.
func words(in map[uint64][]byte, off int) map[uint64]bool {
	out := make(map[uint64]bool)
	for _, b := range in {
		out[binary.LittleEndian.Uint64(b[off:])] = true
	}
	return out
}

func store(r *Region, off int, v uint64) {
	binary.LittleEndian.PutUint64(r.Bytes()[off:], v)
}

func flush(t *testing.T, r *Region, off, n uint64) {
	t.Helper()
	if err := r.Flush([]pmem.Range{{Off: off, Len: n}}); err != nil {
		t.Fatal(err)
	}
}

// Only flush and fence together make a line certain, and only the version that the flush saw.
func TestLines_FlushAndFence(t *testing.T) {
	r := New(make([]byte, 8192), Lines, nil)
	store(r, 128, 1)
	r.Observe()
	if got := words(images(r, everything), 128); !got[0] || !got[1] || len(got) != 2 {
		t.Errorf("stored: %v", got)
	}
	_ = r.Fence() // without a flush it does nothing
	if got := words(images(r, everything), 128); len(got) != 2 {
		t.Errorf("fence without flush: %v", got)
	}
	flush(t, r, 130, 1)
	if got := words(images(r, everything), 128); len(got) != 2 {
		t.Errorf("flush without fence: %v", got)
	}
	store(r, 128, 2)
	r.Observe()
	if got := words(images(r, everything), 128); len(got) != 3 {
		t.Errorf("stored after the flush: %v", got)
	}
	_ = r.Fence()
	if got := words(images(r, everything), 128); got[0] || !got[1] || !got[2] {
		t.Errorf("after the fence: %v", got)
	}
	if r.Uncertain() != 1 {
		t.Errorf("%d lines are uncertain", r.Uncertain())
	}
	_ = r.Sync()
	if got := words(images(r, everything), 128); len(got) != 1 || !got[2] {
		t.Errorf("after sync: %v", got)
	}
}

// Lines are independent: with three of two versions each there are eight images.
func TestLines_AllSubsets(t *testing.T) {
	r := New(make([]byte, 4096), Lines, nil)
	for _, off := range []int{0, 64, 640} {
		store(r, off, 7)
	}
	r.Observe()
	if n := len(images(r, everything)); n != 8 {
		t.Errorf("%d images", n)
	}
}

// With more lines than can be enumerated each is lost alone and kept alone.
func TestLines_SinglesBeyondSubsets(t *testing.T) {
	const lines = 40
	r := New(make([]byte, 64*lines), Lines, nil)
	for i := range lines {
		store(r, 64*i, 9)
	}
	r.Observe()
	alone, lost := 0, 0
	for _, b := range images(r, everything) {
		n := bytes.Count(b, []byte{9})
		if n == 1 {
			alone++
		}
		if n == lines-1 {
			lost++
		}
	}
	if alone != lines || lost != lines {
		t.Errorf("%d kept alone, %d lost alone", alone, lost)
	}
}

// A store that nobody flushed is seen although no one told the region of it.
func TestLines_ForgottenFlush(t *testing.T) {
	r := New(make([]byte, 4096), Lines, nil)
	store(r, 512, 1)
	store(r, 1024, 2)
	if err := pmem.Drain(r, []pmem.Range{{Off: 512, Len: 8}}, pmem.Seal{Off: 0, Val: 3}); err != nil {
		t.Fatal(err)
	}
	in := images(r, everything)
	if got := words(in, 512); len(got) != 1 || !got[1] {
		t.Errorf("flushed: %v", got)
	}
	if got := words(in, 1024); !got[0] || !got[2] {
		t.Errorf("forgotten: %v", got)
	}
}

// An ordinary file: sectors at any moment, and msync of the pages from the first to the last.
func TestPages_Hull(t *testing.T) {
	r := New(make([]byte, 5*4096), Pages, nil)
	for page := range 5 {
		store(r, 4096*page+1000, 1)
		store(r, 4096*page+3000, 1)
	}
	r.Observe()
	if got := words(images(r, everything), 3000); len(got) != 2 {
		t.Errorf("stored: %v", got)
	}
	if err := r.Flush([]pmem.Range{{Off: 4096 + 8, Len: 1}, {Off: 3*4096 + 8, Len: 1}}); err != nil {
		t.Fatal(err)
	}
	in := images(r, everything)
	for page, certain := range []bool{false, true, true, true, false} {
		if got := words(in, 4096*page+1000); (len(got) == 1) != certain {
			t.Errorf("page %d: %v", page, got)
		}
	}
	torn := false
	for _, b := range in {
		torn = torn || b[1000] != b[3000]
	}
	if !torn {
		t.Error("no image has a torn page")
	}
}

// After an msync that failed, another one succeeds and writes nothing but what was stored since.
func TestPages_FailSync(t *testing.T) {
	r := New(make([]byte, 2*4096), Pages, nil)
	store(r, 0, 1)
	store(r, 1024, 1)
	r.FailSync()
	if r.Flush([]pmem.Range{{Off: 0, Len: 4096}}) == nil {
		t.Fatal("the failure was not reported")
	}
	store(r, 1024, 2)
	flush(t, r, 0, 4096)
	in := images(r, everything)
	if got := words(in, 0); !got[0] || !got[1] {
		t.Errorf("not stored again: %v", got)
	}
	if got := words(in, 1024); len(got) != 1 || !got[2] {
		t.Errorf("stored again: %v", got)
	}
}

// What a look at an image changes is taken back.
func TestImage_IsTakenBack(t *testing.T) {
	r := New(make([]byte, 8192), Lines, nil)
	store(r, 64, 1)
	r.Observe()
	r.Images(everything, rand.New(rand.NewPCG(1, 1)), func(m *Image) bool {
		m.Bytes(func(b []byte) { b[5000] = 1; b[64] = 77 })
		return true
	})
	for _, b := range images(r, everything) {
		if b[5000] != 0 || b[64] > 1 {
			t.Fatal("a look left its traces")
		}
	}
	if r.Bytes()[5000] != 0 {
		t.Error("an image is no copy")
	}
}

// The process dies: what was stored stays in the cache, and a flush on its way has to be repeated.
func TestReopen(t *testing.T) {
	r := New(make([]byte, 4096), Lines, nil)
	store(r, 64, 1)
	flush(t, r, 64, 8)
	r.Reopen()
	_ = r.Fence()
	if got := words(images(r, everything), 64); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// Random stores, flushes and fences against the rule itself: a byte that was flushed and then fenced is in every image.
func TestRandom_FlushedAndFencedStays(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	const lines = 16
	r := New(make([]byte, 64*lines), Lines, nil)
	var sure, flushed [lines]uint64 // least value that must be there
	for v := uint64(1); v < 2000; v++ {
		i := rnd.IntN(lines)
		switch rnd.IntN(4) {
		case 0, 1:
			store(r, 64*i, v)
		case 2:
			flush(t, r, uint64(64*i), 8)
			flushed[i] = binary.LittleEndian.Uint64(r.Bytes()[64*i:])
		case 3:
			_ = r.Fence()
			for k := range sure {
				sure[k] = max(sure[k], flushed[k])
			}
		}
		r.Images(Effort{Random: 4, Singles: 2}, rnd, func(m *Image) bool {
			m.Bytes(func(b []byte) {
				for k := range sure {
					if got := binary.LittleEndian.Uint64(b[64*k:]); got < sure[k] {
						t.Fatalf("step %d, line %d: found %d, %d was flushed and fenced; %v", v, k, got, sure[k], m)
					}
				}
			})
			return true
		})
	}
}

func TestRanges_AreChecked(t *testing.T) {
	r := New(make([]byte, 4096), Lines, nil)
	if r.Flush([]pmem.Range{{Off: 4000, Len: 97}}) == nil || r.Flush([]pmem.Range{{Off: ^uint64(0), Len: 2}}) == nil {
		t.Error("a range outside was flushed")
	}
	if r.Store64(4096, 1) == nil || r.Store64(4, 1) == nil || r.Store64(^uint64(7), 1) == nil {
		t.Error("a word outside was stored")
	}
	if r.Close() != nil || r.Close() == nil {
		t.Error("close")
	}
}

// With the caches in the persistence domain a fence makes certain what was stored before it, flushed or not.
func TestEADR_Fence(t *testing.T) {
	r := New(make([]byte, 4096), EADR, nil)
	store(r, 128, 1)
	flush(t, r, 128, 8)
	if got := words(images(r, everything), 128); !got[0] || !got[1] {
		t.Errorf("stored and flushed: %v", got)
	}
	_ = r.Fence()
	store(r, 128, 2)
	r.Observe()
	if got := words(images(r, everything), 128); got[0] || !got[1] || !got[2] {
		t.Errorf("fenced, and stored again: %v", got)
	}
}

// What a device brought is certain when it has arrived, and neither what stands beside it nor what is stored later.
func TestArrived(t *testing.T) {
	for _, mode := range []Mode{Lines, EADR} {
		r := New(make([]byte, 4096), mode, nil)
		for _, off := range []int{64, 128, 192} {
			store(r, off, 5)
		}
		r.Observe()
		if !r.Arrived(r.Bytes()[128:200]) {
			t.Fatal("bytes of the region are not of it")
		}
		store(r, 192, 6)
		r.Observe()
		in := images(r, everything)
		if got := words(in, 64); len(got) != 2 {
			t.Errorf("mode %d: a line beside: %v", mode, got)
		}
		if got := words(in, 128); len(got) != 1 || !got[5] {
			t.Errorf("mode %d: a line that arrived: %v", mode, got)
		}
		if got := words(in, 192); len(got) != 2 || !got[5] || !got[6] {
			t.Errorf("mode %d: stored after the arrival: %v", mode, got)
		}
		store(r, 256, 7)
		r.Observe()
		store(r, 264, 8)
		store(r, 320, 9)
		r.Observe()
		r.Arrived(r.Bytes()[264:272])
		in = images(r, everything)
		if mine, beside := words(in, 264), words(in, 256); len(mine) != 1 || !mine[8] || len(beside) != 2 || !beside[7] {
			t.Errorf("mode %d: a part of a line that arrived: %v, beside it %v", mode, mine, beside)
		}
		other := New(make([]byte, 4096), mode, nil)
		for _, b := range [][]byte{other.Bytes(), other.Bytes()[:8], make([]byte, 8)} {
			if r.Arrived(b) {
				t.Errorf("mode %d: bytes of somebody else are taken", mode)
			}
		}
	}
}
