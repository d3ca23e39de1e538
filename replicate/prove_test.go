package replicate

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// growing is a pair in sync that is about to get twice its size, and drains that go on meanwhile.
type growing struct {
	*pair
	all pmem.Region
	rng *rand.Rand
	seq uint64
}

func newGrowing(t *testing.T, rig rig, m wire.Method) *growing {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	all := pmem.NewHeap(2 * testSize)
	g := &growing{newPairWith(t, rig, prefix{all, testSize}, m, 20*time.Second), all, rand.New(rand.NewPCG(seed, 0)), 0}
	g.attach()
	return g
}

// drain makes n random bytes at off durable.
func (g *growing) drain(off, n uint64) {
	g.t.Helper()
	g.seq++
	fill(g.all.Bytes()[off:off+n], g.rng)
	g.Drain(g.seq, []pmem.Range{{Off: off, Len: n}}, pmem.Seal{Off: testSeal, Val: g.seq})
	must(g.t, g.expect(g.seq))
}

// during runs fn while drains go on.
func (g *growing) during(fn func() error) error {
	g.t.Helper()
	over := make(chan error, 1)
	go func() { over <- fn() }()
	for {
		g.drain(uint64(1+g.rng.IntN(3))<<20, 1<<16)
		select {
		case err := <-over:
			return err
		default:
		}
	}
}

func (g *growing) grow() error {
	return g.during(func() error { return g.Grow(context.Background(), 2*testSize) })
}

func (g *growing) extend() error {
	return g.during(func() error { return g.Extend(g.all, 2*testSize) })
}

// refused demands that err says these things, and that drains go on as before, on the same lane and up to the old size.
func (g *growing) refused(err error, words ...string) {
	g.t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			g.t.Errorf("%v does not say %q", err, w)
		}
	}
	g.drain(testSize-4096, 4096)
	g.target.mu.Lock()
	session := g.target.session
	g.target.mu.Unlock()
	if st := g.Status(); st.State != InSync || session != 1 || g.size.Load() != testSize {
		g.t.Errorf("%v (%v) in session %d, %d bytes", st.State, st.Err, session, g.size.Load())
	}
}

// succeed grows, and demands that what is new can be used and is zero but for that.
func (g *growing) succeed() {
	g.t.Helper()
	must(g.t, g.grow())
	must(g.t, g.extend())
	g.drain(testSize-4096, 8192)
	g.drain(2*testSize-4096, 4096)
	g.target.hangUp()
	must(g.t, g.Close(context.Background()))
	if mem := g.target.memory(); !bytes.Equal(mem[testSize-4096:], g.all.Bytes()[testSize-4096:]) {
		g.t.Error("the copies differ in the new space")
	}
}

// A chunk of the target that cannot be used is named while drains go on, and they do so afterwards. The next try finds it in order.
func TestProve_TargetsChunk(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(f *fakeTarget, c *wire.Chunk)
		words []string
	}{
		"out of reach": {func(_ *fakeTarget, c *wire.Chunk) { c.RKey = 0xffffff00 }, []string{"READ", "protection error"}},
		"elsewhere": {func(f *fakeTarget, c *wire.Chunk) {
			copy(f.scratch.Bytes(), bytes.Repeat([]byte{0x66}, word))
			*c = wire.Chunk{Base: f.scratch.Addr(), RKey: f.scratch.RKey()}
		}, []string{"a READ brought 0x6666666666666666 from where the copy has grown"}},
	} {
		t.Run(name, func(t *testing.T) {
			methods(t, func(t *testing.T, rig rig, m wire.Method) {
				g := newGrowing(t, rig, m)
				const bad = 2*testSize/(64<<10) - 3 // behind the old end, in the middle of the new space
				g.target.spoilGrown = func(r *wire.Region) { c.spoil(g.target, &r.Chunks[bad]) }
				g.refused(g.grow(), append(c.words, "target b: grow to 8388608 bytes", "the target's chunk 125 at pool offset 8192000", "Device DAX")...)
				g.target.spoilGrown = nil
				g.succeed()
			})
		})
	}
}

// With FLUSH a chunk that can be written, but not flushed, is of no use either.
func TestProve_FlushOfTheTargetsChunk(t *testing.T) {
	g := newGrowing(t, nativeRig, wire.FLUSH)
	g.target.spoilGrown = func(r *wire.Region) {
		mr, err := g.target.pd.RegisterMR(make([]byte, 64<<10), verbs.RemoteWrite|verbs.RemoteRead)
		must(t, err)
		t.Cleanup(func() { mr.Deregister() })
		r.Chunks[100] = wire.Chunk{Base: mr.Addr(), RKey: mr.RKey()}
	}
	g.refused(g.grow(), "the target's chunk 100 at pool offset 6553600", "FLUSH", "protection error")
}

// Memory that is registered here and not sent as it is, or not at all, is named before a drain uses it.
func TestProve_LocalChunk(t *testing.T) {
	for name, c := range map[string]struct {
		empty bool
		words string
	}{
		"elsewhere": {false, "0x5555555555555555 arrived where 0x0 was sent"},
		"not sent":  {true, "0xffffffffffffffff arrived where 0x0 was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			providers(t, func(t *testing.T, below rig) {
				var dev *astray
				g := newGrowing(t, func(t testing.TB) (verbs.Device, verbs.Device, string) {
					a, b, at := below(t)
					dev = &astray{Device: a, empty: c.empty}
					return dev, b, at
				}, wire.GPSPM)
				must(t, g.grow())
				dev.left.Store(5) // of sixteen new chunks
				g.refused(g.extend(), "target b: extend", "the local chunk 20 at pool offset 5242880", c.words)
				g.succeed()
			})
		})
	}
}

// A target that takes no connection for the self-test lets the growth fail in time, and drains go on.
func TestProve_TargetHangs(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	p, _ := stallPair(t, wire.GPSPM, timeout)
	p.attach()
	all := pmem.NewHeap(2 * testSize)
	copy(all.Bytes(), p.region.Bytes())
	silent := newRoad(t, p.target.fabric.Addr().String())
	silent.set(true)
	p.mu.Lock()
	good := p.machine.grant.Fabric
	p.machine.grant.Fabric = silent.listener.Addr().String()
	p.mu.Unlock()
	p.testTime = timeout / 2
	begin := time.Now()
	err := p.Grow(t.Context(), 2*testSize)
	if took := time.Since(begin); !errors.Is(err, errNoProof) || took < p.testTime || took > timeout+5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	p.Drain(1, []pmem.Range{{Off: 16384, Len: 4096}}, pmem.Seal{Off: testSeal, Val: 1})
	must(t, p.expect(1))
	p.mu.Lock()
	p.machine.grant.Fabric, p.testTime = good, RequestTimeout
	p.mu.Unlock()
	must(t, p.Grow(t.Context(), 2*testSize))
	if st := p.Status(); st.State != InSync {
		t.Errorf("%v: %v", st.State, st.Err)
	}
}

// Without the target nothing new is taken into use; what was taken before can be said again.
func TestProve_TargetAway(t *testing.T) {
	g := newGrowing(t, memoryRig, wire.GPSPM)
	must(t, g.grow())
	g.target.control.Close() // nobody gets back in
	g.target.hangUp()
	for g.Status().State != Suspended {
		time.Sleep(time.Millisecond)
	}
	if err := g.Extend(g.all, 2*testSize); !errors.Is(err, errAway) {
		t.Errorf("extend without the target: %v", err)
	}
	if n := g.fab.local.Total(); n != testSize || g.size.Load() != testSize {
		t.Errorf("%d bytes are registered, of %d", n, g.size.Load())
	}
}

// A connection that is made between Grow and Extend is tested with all that the target has by then.
func TestProve_ReconnectBeforeExtend(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		g := newGrowing(t, rig, wire.GPSPM)
		must(t, g.grow())
		spoil := func(f func(*wire.Grant)) {
			g.target.mu.Lock()
			g.target.spoil = f
			g.target.mu.Unlock()
		}
		spoil(func(m *wire.Grant) { m.Chunks[125].RKey = 0xffffff00 })
		g.target.hangUp()
		deadline := time.Now().Add(20 * time.Second)
		for err := g.Status().Err; err == nil || !strings.Contains(err.Error(), "the target's chunk 125 at pool offset 8192000"); err = g.Status().Err {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		spoil(nil)
		g.drain(testSize-4096, 4096)
		g.succeed()
	})
}
