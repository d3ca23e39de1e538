package replicate

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// fileRegion is memory that passes for a file in the page cache.
type fileRegion struct{ pmem.Region }

func (fileRegion) Kind() pmem.Kind { return pmem.PageCacheFile }

// hardwareRig has devices that cannot have files of the page cache.
func hardwareRig(testing.TB) (verbs.Device, verbs.Device, string) {
	f := verbstest.NewFabric(verbstest.Auto)
	f.Hardware()
	return f.Device("a"), f.Device("b"), "b:1"
}

// newBouncedPair is a pair in sync whose local pool is sent through a bounce buffer for two units.
func newBouncedPair(t *testing.T) *pair {
	p := newPairWith(t, hardwareRig, fileRegion{pmem.NewHeap(testSize)}, wire.GPSPM, 20*time.Second)
	p.attach()
	if n := p.Status().Bounce; n != testBounce {
		t.Fatalf("a bounce buffer of %d bytes", n)
	}
	return p
}

// What an answer does not cover is not used again, whatever completes: the target may still fetch it.
func TestBounce_WaitsForTheAnswer(t *testing.T) {
	p := newBouncedPair(t)
	p.target.deaf.Store(true)
	before := p.Status().Sent.Bytes
	for seq := range uint64(4) {
		p.Drain(seq+1, []pmem.Range{{Off: 16384, Len: unitBytes}}, pmem.Seal{Off: testSeal, Val: seq + 1})
	}
	if n := p.Status().Sent.Bytes - before; n == 0 || n > testBounce {
		t.Errorf("%d bytes were sent without an answer, the buffer has %d", n, testBounce)
	}
}

// A drain that is larger than the buffer goes through it in turns: the Send that fills it asks for an answer.
func TestBounce_DrainLargerThanTheBuffer(t *testing.T) {
	p := newBouncedPair(t)
	rng := rand.New(rand.NewPCG(1, 2))
	fill(p.region.Bytes()[16384:], rng)
	p.Drain(1, []pmem.Range{{Off: 16384, Len: testSize - 16384}}, pmem.Seal{Off: testSeal, Val: 1})
	must(t, p.expect(1))
	p.target.hangUp()
	must(t, p.Close(context.Background()))
	if !bytes.Equal(p.target.memory()[16384:], p.region.Bytes()[16384:]) {
		t.Error("the copies differ")
	}
}

// A drain through a bounce buffer allocates nothing.
func TestBounce_DrainAllocatesNothing(t *testing.T) {
	p := newBouncedPair(t)
	p.drainsAllocateNothing(t)
}

// A bounce buffer here is no matter of the method: its places are free again when a READ or a FLUSH has proven that the target has the bytes.
func TestBounce_Methods(t *testing.T) {
	native := func(testing.TB) (verbs.Device, verbs.Device, string) {
		f := verbstest.NewFabric(verbstest.Auto)
		f.Hardware()
		f.Native()
		return f.Device("a"), f.Device("b"), "b:1"
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for m, rig := range map[wire.Method]rig{wire.APM: hardwareRig, wire.FLUSH: native} {
		t.Run(m.String(), func(t *testing.T) {
			p := newPairWith(t, rig, fileRegion{pmem.NewHeap(testSize)}, m, 20*time.Second)
			rng := rand.New(rand.NewPCG(seed, uint64(m)))
			fill(p.region.Bytes(), rng)
			p.attach()
			started, seen := uint64(0), uint64(0)
			for seen < 60 {
				if started < 60 && started-seen < MaxInFlight && (started == seen || rng.IntN(2) == 0) {
					started++
					p.Drain(started, randomRanges(rng), pmem.Seal{Off: testSeal, Val: started})
					continue
				}
				seen++
				must(t, p.expect(seen))
			}
			p.Drain(61, []pmem.Range{{Off: 16384, Len: testSize - 16384}}, pmem.Seal{})
			must(t, p.expect(61))
			if st := p.Status(); st.Bounce != testBounce || st.Method != m || st.Sent.Sends != 0 {
				t.Errorf("status %+v", st)
			}
			must(t, p.Close(t.Context()))
			p.target.hangUp()
			if !bytes.Equal(p.region.Bytes()[16384:], p.target.mem[16384:]) {
				t.Error("the copies differ")
			}
		})
	}
}

// Of a staging area of any size a lane uses what a flush request can name.
func TestBounce_HugeStagingArea(t *testing.T) {
	for _, n := range []uint64{16 << 20, 1 << 38, 1 << 50, 1<<64 - 1} {
		for number := range 3 {
			l := &lane{fab: &fabric{}}
			must(t, l.bounceAt(&wire.Grant{Staging: wire.Area{Len: n}}, number, 2+number))
			end := l.fetchAt() + bounceSize
			if end > n || end > wire.MaxStage || end < l.staging.base {
				t.Errorf("area of %d bytes, lane %d: bytes up to %d are used", n, number, end)
			}
		}
	}
}
