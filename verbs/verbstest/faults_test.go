package verbstest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// pair is two linked sides on a fabric that is stepped.
func pair(t *testing.T, f *Fabric) (a, b *side) {
	t.Helper()
	a, b = newSide(t, f.Device("a"), 4096), newSide(t, f.Device("b"), 4096)
	check(t, f.Link(a.qp, b.qp))
	return a, b
}

// Writes that no Send separates are placed in any order, and all of them before the Send.
func TestReorder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	orders := make(map[byte]bool)
	for range 40 {
		f := NewFabric(Stepped)
		f.Reorder(rnd.IntN)
		if f.Device("x").Caps().OrderedPlace {
			t.Fatal("the device promises an order")
		}
		a, b := pair(t, f)
		b.postRecv(t, 9, 1024, 64)
		a.mem[0], a.mem[1] = 1, 2
		first, second := a.write(1, 0, 1, b, 100), a.write(2, 1, 1, b, 100)
		first.Signaled, second.Signaled = false, false
		a.post(t, first, second, a.send(3, 0, 8))
		for i := 0; f.Step(); i++ {
			if i < 2 {
				silent(t, b.rcq)
			}
		}
		good(t, b.rcq, 9)
		good(t, a.scq, 3)
		orders[b.mem[100]] = true
	}
	if !orders[1] || !orders[2] {
		t.Errorf("the last byte placed was always %v", orders)
	}
}

// A connection that breaks in the middle of a Write leaves its first bytes.
func TestTear(t *testing.T) {
	f := NewFabric(Stepped)
	a, b := pair(t, f)
	copy(a.mem, bytes.Repeat([]byte{7}, 100))
	a.post(t, a.write(1, 0, 100, b, 200))
	f.Tear(a.qp, 30)
	if n := bytes.Count(b.mem, []byte{7}); n != 30 || b.mem[229] != 7 {
		t.Errorf("%d bytes were placed", n)
	}
	if wc := failed(t, a.scq, 1); wc.ID != 1 || wc.Status != verbs.StatusTransport {
		t.Errorf("%+v", wc)
	}
	if f.Step() {
		t.Error("something is left to do")
	}
}
