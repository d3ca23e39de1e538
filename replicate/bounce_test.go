package replicate

import (
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

// A drain through a bounce buffer allocates nothing.
func TestBounce_DrainAllocatesNothing(t *testing.T) {
	p := newBouncedPair(t)
	ranges := []pmem.Range{{Off: 16384, Len: 4096}, {Off: 32768, Len: 192}}
	seq := uint64(0)
	one := func() {
		seq++
		p.Drain(seq, ranges, pmem.Seal{Off: testSeal, Val: seq})
		if d := <-p.reported; d.err != nil {
			t.Fatal(d.err)
		}
	}
	for range 100 {
		one()
	}
	if n := testing.AllocsPerRun(500, one); n >= 1 {
		t.Errorf("%v allocations per drain", n)
	}
}
