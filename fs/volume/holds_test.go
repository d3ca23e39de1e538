package volume

import (
	"math"
	"runtime"
	"syscall"
	"testing"
)

// bytes is the memory that the shards take.
func (h *holds) bytes() (n int) {
	for i := range h.shards {
		n += 24 * len(h.shards[i].table.slots)
	}
	return n
}

// TestHolds_Model does random additions and removals and compares with a map.
func TestHolds_Model(t *testing.T) {
	rnd := random(t)
	for _, span := range []uint64{30, 3_000, 1 << 50} {
		var h holds
		model := map[Ino]uint64{}
		var inos []Ino
		for step := range 200_000 {
			ino := 1 + rnd.Uint64N(span)
			if len(inos) > 0 && rnd.IntN(2) == 0 {
				ino = pick(rnd, inos)
			}
			growing := step/20_000%2 == 0
			if growing == (rnd.IntN(4) > 0) {
				h.add(ino)
				model[ino]++
				inos = append(inos, ino)
			} else {
				n := 1 + rnd.Uint64N(3)
				none := h.drop(ino, n)
				if model[ino] -= min(n, model[ino]); model[ino] == 0 {
					delete(model, ino)
				}
				if none != (model[ino] == 0) {
					t.Fatalf("step %d: after drop of %d of inode %d: none is %v, %d are left", step, n, ino, none, model[ino])
				}
			}
			if got := h.count(ino); got != model[ino] {
				t.Fatalf("step %d: inode %d has %d, expected %d", step, ino, got, model[ino])
			}
		}
		for _, ino := range inos {
			if got := h.count(ino); got != model[ino] {
				t.Fatalf("inode %d has %d, expected %d", ino, got, model[ino])
			}
		}
		for _, ino := range inos {
			h.drop(ino, math.MaxUint64)
		}
		if got, want := h.bytes(), holdShards*holdMin*24; got > want {
			t.Errorf("empty, it takes %d bytes, more than %d", got, want)
		}
	}
}

// A count is exact where it leaves its 16 bits and where it comes back.
func TestHolds_LargeCounts(t *testing.T) {
	var h holds
	const n = 2*math.MaxUint16 + 5
	for range n {
		h.add(77)
	}
	h.add(78)
	for left := uint64(n); left > 0; {
		if got := h.count(77); got != left {
			t.Fatalf("found %d, expected %d", got, left)
		}
		step := min(left, 1000)
		left -= step
		if none := h.drop(77, step); none != (left == 0) {
			t.Fatalf("none is %v with %d left", none, left)
		}
	}
	if n := len(h.shard(77).large); n != 0 || h.count(78) != 1 {
		t.Errorf("%d large counts are left; the neighbour has %d", n, h.count(78))
	}
	if !h.drop(77, 1) || h.count(77) != 0 {
		t.Error("a drop of what is not held")
	}
}

// A million inodes, made one after the other, take few bytes each, and all is given back. What is held already costs no
// allocation.
func TestHolds_CompactAndShrinks(t *testing.T) {
	var h holds
	const n = 1_000_000
	for ino := range Ino(n) {
		h.add(1000 + ino)
	}
	if per := float64(h.bytes()) / n; per > 9 {
		t.Errorf("%.1f bytes for each of %d inodes", per, n)
	}
	if a := testing.AllocsPerRun(1000, func() { h.add(1500); h.drop(1500, 1) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
	for ino := range Ino(n) {
		if !h.drop(1000+ino, 1) {
			t.Fatalf("inode %d is held twice", 1000+ino)
		}
	}
	if got := h.bytes(); got > holdShards*holdMin*24 {
		t.Errorf("empty, it takes %d bytes", got)
	}
}

// References are taken and given back while names go and orphans are reclaimed. Whichever of the last name and the last
// reference goes last, the inode goes with it: none is left behind, and none goes while it is held.
func TestHolds_BesideUnlinkAndReclaim(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	for round := range 200 {
		ino := r.file("f")
		r.v.Hold(ino)
		held := make(chan error, 1)
		go func() {
			_, err := r.v.GetAttr(ino)
			r.v.Hold(ino)
			r.v.Forget(ino, 2)
			held <- err
		}()
		if round%2 == 0 {
			runtime.Gosched()
		}
		want(t, "unlink", r.v.Unlink(Root, "f"), nil)
		r.reclaim()
		want(t, "look at what is held", <-held, nil)
		r.reclaim()
		want(t, "neither name nor reference", second(r.v.GetAttr(ino)), syscall.ESTALE)
	}
}
