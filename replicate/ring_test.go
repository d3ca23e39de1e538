package replicate

import (
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// What is handed out is in one piece, aligned, within the buffer, and nothing of it is handed out again before it is free.
func TestRing(t *testing.T) {
	const base, size, most = 1 << 12, 1 << 16, 1 << 15
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := ring{base: base, size: size}
	type piece struct{ at, n, mark uint64 }
	var used []piece
	refused := 0
	for range 100000 {
		if len(used) > 0 && rng.IntN(3) == 0 {
			k := 1 + rng.IntN(len(used))
			r.release(used[k-1].mark)
			used = used[k:]
		}
		n := rng.Uint64N(most + 1)
		if !r.fit(n) {
			if len(used) == 0 {
				t.Fatalf("%d bytes do not fit an empty ring: %+v", n, r)
			}
			refused++
			continue
		}
		if r.at()%wire.StageUnit != 0 {
			t.Fatalf("not aligned: %d", r.at())
		}
		// It is taken in two pieces, which follow one another.
		k := rng.Uint64N(n + 1)
		at := r.take(k)
		if n > k && r.take(n-k) != at+k {
			t.Fatalf("%d bytes at %d are not in one piece", n, at)
		}
		if at < base || at+n > base+size {
			t.Fatalf("%d bytes at %d are not in the buffer", n, at)
		}
		for _, u := range used {
			if max(at, u.at) < min(at+n, u.at+u.n) { // an empty piece uses nothing
				t.Fatalf("%d bytes at %d are in use: %+v", n, at, u)
			}
		}
		used = append(used, piece{at, n, r.tail})
	}
	if refused == 0 {
		t.Error("the ring was never full")
	}
}
