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

// Where Writes are not ordered, one may be placed before the Send in front of it and what stands before that, with the bytes that its source held at
// the post or later.
func TestReorder_AcrossSends(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	final := make(map[byte]bool)
	for range 60 {
		f := NewFabric(Stepped)
		f.Reorder(rnd.IntN)
		a, b := pair(t, f)
		b.postRecv(t, 9, 1024, 64)
		a.mem[0], a.mem[1] = 1, 2
		a.post(t, a.write(1, 0, 1, b, 100), a.send(2, 0, 8), a.write(3, 1, 1, b, 100))
		a.mem[0] = 3
		for f.Step() {
			if wc := f.Last(); wc == verbs.OpSend && b.mem[100] == 0 {
				t.Fatal("the Send was delivered before the Write in front of it")
			}
		}
		good(t, b.rcq, 9)
		for id := range uint64(3) {
			good(t, a.scq, id+1)
		}
		final[b.mem[100]] = true
	}
	if !final[1] || !final[2] || !final[3] {
		t.Errorf("the last byte placed was always %v", final)
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

// With Early the completion of a Write or Send proves nothing: what is stored to its source after that arrives. A Read behind it proves it placed.
func TestEarly(t *testing.T) {
	f := NewFabric(Stepped)
	f.Early()
	a, b := pair(t, f)
	b.postRecv(t, 9, 1024, 64)
	copy(a.mem, "first")
	a.post(t, a.write(1, 0, 5, b, 100), a.read(2, 200, 5, b, 100), a.send(3, 0, 5), a.send(4, 0, 5))
	good(t, a.scq, 1)
	silent(t, a.scq) // the Sends are behind a Read
	copy(a.mem, "later")
	for f.Step() && string(a.mem[200:205]) == "\x00\x00\x00\x00\x00" {
		silent(t, b.rcq)
	}
	good(t, a.scq, 2)
	good(t, a.scq, 3)
	good(t, a.scq, 4)
	if string(a.mem[200:205]) != "later" {
		t.Errorf("placed %q", a.mem[200:205])
	}
	copy(a.mem, "again")
	f.Step()
	good(t, b.rcq, 9)
	if string(b.mem[1024:1029]) != "again" {
		t.Errorf("received %q", b.mem[1024:1029])
	}
	a.post(t, a.write(5, 0, 5, b, 100), a.write(6, 0, 5, b, 100))
	f.Break(a.qp)
	good(t, a.scq, 5)
	good(t, a.scq, 6)
	silent(t, a.scq)
	a.post(t, a.write(7, 0, 5, b, 100))
	if wc := next(t, a.scq); wc.ID != 7 || wc.Status != verbs.StatusTransport {
		t.Errorf("the cause: %+v", wc)
	}
}
