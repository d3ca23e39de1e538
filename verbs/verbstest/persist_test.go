package verbstest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// domain is the first byte of everything that has become persistent.
type domain []byte

func (d *domain) told(b []byte) { *d = append(*d, b[0]) }

// persisting makes a linked pair on a native fabric.
func persisting(t *testing.T, read bool) (*Fabric, *domain, *side, *side) {
	f, d := NewFabric(Stepped), new(domain)
	f.Native()
	f.Persist(read, d.told)
	a, b := pair(t, f)
	b.drop(t, b.mr)
	b.mr = b.flushable(t, b.mem)
	for i := range a.mem {
		a.mem[i] = byte(i)
	}
	return f, d, a, b
}

func (a *side) flush(id uint64, b *side, at, n int, kind verbs.FlushType) verbs.SendWR {
	wr := a.write(id, 0, n, b, at)
	wr.Op, wr.Local, wr.Flush = verbs.OpFlush, verbs.SGE{Len: uint64(n)}, kind
	return wr
}

// The response to a Read pushes the Writes before it, where it can.
func TestPersistByRead(t *testing.T) {
	for read, want := range map[bool][]byte{true: {1, 2, 3}, false: nil} {
		f, d, a, b := persisting(t, read)
		a.post(t, a.write(1, 1, 1, b, 100), a.write(2, 2, 1, b, 200), a.read(3, 500, 8, b, 100), a.write(4, 3, 1, b, 300))
		f.Step()
		f.Step()
		if len(*d) > 0 {
			t.Errorf("%v: % x is persistent before the Read", read, *d)
		}
		f.Step()
		f.Step()
		if want := want[:min(2, len(want))]; !slices.Equal(*d, want) {
			t.Errorf("%v: after the Read % x is persistent", read, *d)
		}
		a.post(t, a.read(5, 500, 8, b, 100))
		f.Step()
		if !slices.Equal(*d, want) {
			t.Errorf("%v: after the second Read % x is persistent", read, *d)
		}
	}
}

// A Flush persists the bytes that it names, if its type says so.
func TestPersistByFlush(t *testing.T) {
	f, d, a, b := persisting(t, false)
	a.post(t, a.write(1, 1, 1, b, 100), a.write(2, 2, 1, b, 200), a.flush(3, b, 100, 1, verbs.FlushVisible), a.flush(4, b, 200, 1, verbs.FlushPersistent))
	for f.Step() {
	}
	if !slices.Equal(*d, domain{2}) {
		t.Errorf("% x is persistent", *d)
	}
}

// What comes behind a Read or a Flush may be carried out first. A fence prevents that for the Read. Writes keep their order all the same.
func TestOvertake(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, fence := range []bool{false, true} {
		var pastRead, pastFlush int
		for range 100 {
			f := NewFabric(Stepped)
			f.Native()
			f.Overtake(rnd.IntN)
			var persistent domain
			f.Persist(false, persistent.told)
			a, b := pair(t, f)
			b.drop(t, b.mr)
			b.mr = b.flushable(t, b.mem)
			a.mem[0], a.mem[1] = 1, 2
			store := a.write(2, 0, 1, b, 100)
			seal := verbs.SendWR{ID: 5, Op: verbs.OpAtomicWrite, Signaled: true, Value: 9, RemoteAddr: b.mr.Addr() + 200, RKey: b.mr.RKey()}
			store.Fence, seal.Fence = fence, fence
			a.post(t, a.read(1, 500, 8, b, 100), store, a.write(3, 1, 1, b, 100), a.flush(4, b, 100, 8, verbs.FlushPersistent), seal)
			for f.Step() {
				if b.mem[200] == 9 && len(persistent) == 0 {
					pastFlush++
				}
			}
			for id := range uint64(5) {
				good(t, a.scq, id+1)
			}
			if a.mem[500] != 0 {
				pastRead++
			}
			if b.mem[100] != 2 || !a.dev.Caps().OrderedPlace {
				t.Fatal("the second Write was placed before the first")
			}
		}
		if (pastRead > 0) == fence || pastFlush == 0 {
			t.Errorf("fence %v: %d Writes overtook a Read, %d AtomicWrites a Flush", fence, pastRead, pastFlush)
		}
	}
}
