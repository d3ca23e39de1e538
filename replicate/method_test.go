package replicate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// nativeRig has devices with FLUSH and ATOMIC_WRITE.
func nativeRig(testing.TB) (verbs.Device, verbs.Device, string) {
	f := verbstest.NewFabric(verbstest.Auto)
	f.Native()
	return f.Device("a"), f.Device("b"), "b:1"
}

// passive runs a test over the methods that leave the target's CPU alone.
func passive(t *testing.T, test func(*testing.T, rig, wire.Method)) {
	t.Run("APM over iwarp", func(t *testing.T) { test(t, iwarpRig, wire.APM) })
	t.Run("APM over verbstest", func(t *testing.T) { test(t, memoryRig, wire.APM) })
	t.Run("FLUSH over verbstest", func(t *testing.T) { test(t, nativeRig, wire.FLUSH) })
}

// methods runs a test over every method and provider.
func methods(t *testing.T, test func(*testing.T, rig, wire.Method)) {
	providers(t, func(t *testing.T, rig rig) { test(t, rig, wire.GPSPM) })
	passive(t, test)
}

func TestMethod_RandomDrains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	passive(t, func(t *testing.T, rig rig, m wire.Method) {
		p := newPairBy(t, rig, m, 30*time.Second)
		rng := rand.New(rand.NewPCG(seed, uint64(m)))
		fill(p.region.Bytes(), rng)
		p.attach()
		const drains = 100
		started, seen := uint64(0), uint64(0)
		for seen < drains {
			if started < drains && started-seen < MaxInFlight && (started == seen || rng.IntN(2) == 0) {
				started++
				p.Drain(started, randomRanges(rng), pmem.Seal{Off: testSeal, Val: started})
				continue
			}
			seen++
			must(t, p.expect(seen))
		}
		p.Drain(drains+1, []pmem.Range{{Off: 16384, Len: testSize - 16384}}, pmem.Seal{})
		must(t, p.expect(drains+1))
		st := p.Status()
		if st.Method != m || st.NotChosen != fmt.Sprintf("as the test wants; method = %q is configured", strings.ToLower(m.String())) || st.Sent.Sends != 0 || p.target.sends.Load() != 0 {
			t.Errorf("status %+v; the target took %d Sends", st, p.target.sends.Load())
		}
		if (st.Sent.Flushes > 0) != (m == wire.FLUSH) || (st.Sent.Reads > 0) != (m == wire.APM) {
			t.Errorf("%v proves by %d READs and %d FLUSHes", m, st.Sent.Reads, st.Sent.Flushes)
		}
		must(t, p.Close(t.Context()))
		p.target.hangUp()
		if !bytes.Equal(p.region.Bytes()[16384:], p.target.mem[16384:]) {
			t.Error("the copies differ")
		}
		for off, want := range map[uint64]uint64{4096: 1, 8192: 2, testSeal: drains} {
			if got := binary.LittleEndian.Uint64(p.target.mem[off:]); got != want {
				t.Errorf("the seal at %d is %d, not %d", off, got, want)
			}
		}
	})
}

func TestMethod_TargetComesBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	passive(t, func(t *testing.T, rig rig, m wire.Method) {
		p := newPairBy(t, rig, m, 10*time.Second)
		p.attach()
		p.drainsThroughHangups(t, seed)
		if p.target.session < 2 || binary.LittleEndian.Uint64(p.target.mem[testSeal:]) != hangupDrains {
			t.Errorf("%d sessions, last seal %d", p.target.session, binary.LittleEndian.Uint64(p.target.mem[testSeal:]))
		}
	})
}

// A network that goes dead is seen without any help of the target's.
func TestMethod_NetworkDies(t *testing.T) {
	const timeout = 500 * time.Millisecond
	p, block := stallPair(t, wire.APM, timeout)
	p.attach()
	block(true)
	begin := time.Now()
	for seq := range uint64(MaxInFlight) {
		p.Drain(seq, []pmem.Range{{Off: 16384, Len: 64}}, pmem.Seal{Off: testSeal, Val: seq + 1})
	}
	for seq := range uint64(MaxInFlight) {
		if err := p.expect(seq); !errors.Is(err, ErrTimeout) {
			t.Errorf("drain %d: %v", seq, err)
		}
	}
	if d := time.Since(begin); d < timeout || d > 2*timeout+3*time.Second {
		t.Errorf("failed after %v", d)
	}
}

// A region that is gone, as after a promotion, ends the drains that name it, and none of them is reported as durable.
func TestMethod_RegionGone(t *testing.T) {
	passive(t, func(t *testing.T, rig rig, m wire.Method) {
		p := newPairBy(t, rig, m, 300*time.Millisecond)
		p.attach()
		p.target.refuse.Store(uint32(wire.StatusSplitBrain))
		p.target.mu.Lock()
		must(t, p.target.chunks.Close())
		p.target.mu.Unlock()
		for seq := range uint64(4) {
			p.Drain(seq, []pmem.Range{{Off: 16384, Len: 8}}, pmem.Seal{Off: testSeal, Val: seq + 1})
		}
		for seq := range uint64(4) {
			if err := p.expect(seq); err == nil {
				t.Errorf("drain %d was reported as durable", seq)
			}
		}
		if st := p.Status(); st.State != Refused {
			t.Errorf("status %+v", st)
		}
	})
}

func TestMethod_DrainAllocatesNothing(t *testing.T) {
	p := newPairBy(t, iwarpRig, wire.APM, testTimeout)
	p.attach()
	p.drainsAllocateNothing(t)
}

// The lane alone, of each method that needs no answer.
func TestMethod_LaneAllocatesNothing(t *testing.T) {
	for _, m := range []wire.Method{wire.APM, wire.FLUSH} {
		o := newOrder(t, m, verbs.Caps{OrderedPlace: true, Flush: true, AtomicWrite: true})
		o.dev.quiet = true
		ranges := []pmem.Range{{Off: 16384, Len: 4096}, {Off: 32768, Len: 192}}
		var out []outcome
		var err error
		one := func() {
			if err = o.lane.start(1, ranges, pmem.Seal{Off: 12288, Val: 5}, inUnits); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < 10 && o.lane.n > 0; n++ {
				o.dev.ready = append(o.dev.ready[:0], o.dev.signaled...)
				o.dev.signaled = o.dev.signaled[:0]
				if out, err = o.lane.reap(out[:0]); err != nil {
					t.Fatal(err)
				}
			}
			if o.lane.n != 0 {
				t.Fatalf("%v: the drain does not end", m)
			}
			o.dev.slots = o.dev.slots[:0]
		}
		for range 10 {
			one()
		}
		if n := testing.AllocsPerRun(200, one); n != 0 {
			t.Errorf("%v: %v allocations per drain", m, n)
		}
	}
}

// The API for programs that replicate their own memory uses the method too: for WRITEs that were posted before their drain, and for those that
// go with it.
func TestPool_Methods(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	passive(t, func(t *testing.T, rig rig, m wire.Method) {
		init, dev, fabric := rig(t)
		f := newFakeTarget(t, dev, fabric, testSize)
		f.use(m)
		local := make([]byte, testSize)
		p, err := (&Client{Device: init, Method: m}).Open(t.Context(), f.addr(), "p.set", local, 2)
		must(t, err)
		rng := rand.New(rand.NewPCG(seed, uint64(m)))
		fill(local[4096:], rng)
		must(t, p.Flush(4096, 3<<20, 1))
		must(t, p.Drain(1))
		must(t, p.Persist(4096+3<<20, 1<<20-4096, 0))
		for range 50 {
			off := 4096 + rng.Uint64N(testSize-4096-1000)
			fill(local[off:off+1000], rng)
			if rng.IntN(2) == 0 {
				must(t, p.Persist(off, 1000, 0))
				continue
			}
			must(t, p.Flush(off, 1000, 0))
			must(t, p.Flush(off, 10, 0))
			must(t, p.Drain(0))
		}
		got := make([]byte, testSize-4096)
		must(t, p.Read(got, 4096, 1))
		if !bytes.Equal(got, local[4096:]) {
			t.Error("the target has other bytes")
		}
		must(t, p.Close(t.Context()))
		if n := f.sends.Load(); n != 0 {
			t.Errorf("%d Sends", n)
		}
	})
}

// What was asked for and cannot be had is refused, before anybody is asked, or after.
func TestMethod_Refused(t *testing.T) {
	init, dev, fabric := memoryRig(t)
	f := newFakeTarget(t, dev, fabric, testSize)
	cfg := Config{Name: "b", Pool: "p", Addr: f.addr(), Device: init, Method: wire.FLUSH, OnDrained: func(uint64, error) {}, Log: silent()}
	id := testIdentity()
	id.Size = testSize
	if _, err := Connect(t.Context(), cfg, pmem.NewHeap(testSize), id); err == nil || !strings.Contains(err.Error(), "cannot do RDMA FLUSH") {
		t.Errorf("FLUSH without a device that can: %v", err)
	}
	cfg.Method = wire.APM // which this target does not know
	r, err := Connect(t.Context(), cfg, pmem.NewHeap(testSize), id)
	must(t, err)
	defer r.Close(context.Background())
	if err := r.Claim(t.Context(), 6); !errors.Is(err, wire.StatusVersion) || !strings.Contains(err.Error(), "grants the persistency GPSPM") {
		t.Errorf("GPSPM in place of APM: %v", err)
	}
}

func silent() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// order is a test of what a lane posts, and when: over a queue pair that takes everything and completes what the test says.
type order struct {
	t    *testing.T
	dev  *orderDevice
	lane *lane
}

// The target of an order test has two chunks of 2 MiB with keys of their own, one after the other from address orderBase on.
const (
	orderSize = 4 << 20
	orderBase = 1 << 32
)

func newOrder(t *testing.T, m wire.Method, caps verbs.Caps) *order {
	o := &order{t: t, dev: &orderDevice{caps: caps}}
	fab, err := newFabric(o.dev, ordinary(make([]byte, orderSize)), 0, silent())
	must(t, err)
	r := wire.Region{PoolSize: orderSize, ChunkSize: 2 << 20, Chunks: []wire.Chunk{{Base: orderBase + wire.FirstOffset, RKey: 7}, {Base: orderBase + 2<<20, RKey: 8}}}
	o.lane, err = newLane(fab, &wire.Grant{Session: 1, Region: r, Credits: 64, Method: m}, orderSize, 0, 1)
	must(t, err)
	return o
}

// start starts a drain and returns what was posted.
func (o *order) start(seq uint64, seal pmem.Seal, ranges ...pmem.Range) []string {
	o.t.Helper()
	must(o.t, o.lane.start(seq, ranges, seal, inUnits))
	return o.dev.taken()
}

// complete completes the oldest signaled work request. It returns the drains that ended, and what was posted.
func (o *order) complete() (ended []uint64, posted []string) {
	o.t.Helper()
	if len(o.dev.signaled) == 0 {
		o.t.Fatal("nothing is signaled")
	}
	o.dev.ready, o.dev.signaled = o.dev.signaled[:1:1], o.dev.signaled[1:]
	o.dev.outstanding, o.dev.slots = o.dev.outstanding-o.dev.slots[0], o.dev.slots[1:]
	out, err := o.lane.reap(nil)
	must(o.t, err)
	for _, x := range out {
		if x.kind == outDrained {
			ended = append(ended, x.seq)
		}
	}
	return ended, o.dev.taken()
}

func (o *order) want(got []string, want ...string) {
	o.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		o.t.Errorf("posted (-want +got):\n%s", d)
	}
}

func (o *order) ends(got []uint64, want ...uint64) {
	o.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		o.t.Errorf("ended (-want +got):\n%s", d)
	}
}

func TestAPM_Order(t *testing.T) {
	o := newOrder(t, wire.APM, verbs.Caps{OrderedPlace: true, MaxInline: 8})
	a, b := pmem.Range{Off: 16384, Len: 4096}, pmem.Range{Off: 40000, Len: 3}
	o.want(o.start(1, pmem.Seal{Off: 12288, Val: 5}, a, b),
		"WRITE 16384+4096", "WRITE 40000+3", "READ 40000+3", "WRITE 12288+8 fenced inline", "READ 12288+8 signaled")
	o.want(o.start(2, pmem.Seal{}, a), "WRITE 16384+4096", "READ 20472+8 signaled")
	o.want(o.start(3, pmem.Seal{Off: 12288, Val: 6}), "WRITE 12288+8 fenced inline", "READ 12288+8 signaled")
	o.want(o.start(4, pmem.Seal{}), "READ 4096+8 signaled")
	for seq := range uint64(4) {
		ended, posted := o.complete()
		o.ends(ended, seq+1)
		o.want(posted)
	}
	o = newOrder(t, wire.APM, verbs.Caps{OrderedPlace: true, MaxInline: 7})
	o.want(o.start(1, pmem.Seal{Off: 12288, Val: 5}), "WRITE 12288+8 fenced", "READ 12288+8 signaled")
}

// Each unit of a long drain shows progress, and the seal follows the last.
func TestAPM_LongDrain(t *testing.T) {
	o := newOrder(t, wire.APM, verbs.Caps{OrderedPlace: true})
	o.want(o.start(1, pmem.Seal{Off: 12288, Val: 5}, pmem.Range{Off: 1 << 20, Len: 2<<20 + 100}),
		"WRITE 1048576+1048576", "READ 2097144+8 signaled", "WRITE 2097152+1048576", "READ 3145720+8 signaled",
		"WRITE 3145728+100", "READ 3145820+8", "WRITE 12288+8 fenced", "READ 12288+8 signaled")
	for range 2 {
		ended, posted := o.complete()
		o.ends(ended)
		o.want(posted)
	}
	ended, _ := o.complete()
	o.ends(ended, 1)
}

// A seal's word is not stored to while its WRITE may still be read from it.
func TestAPM_SealsHaveWordsOfTheirOwn(t *testing.T) {
	o := newOrder(t, wire.APM, verbs.Caps{OrderedPlace: true})
	words := o.lane.how.(*apm).words.Bytes()
	check := func(from, to uint64) {
		t.Helper()
		for v := from; v <= to; v++ {
			if got := binary.LittleEndian.Uint64(words[(v-1)%MaxInFlight*word:]); got != v {
				t.Errorf("word of seal %d holds %d", v, got)
			}
		}
	}
	for v := range uint64(MaxInFlight) {
		o.start(v+1, pmem.Seal{Off: 12288, Val: v + 1})
	}
	check(1, MaxInFlight)
	for v := range uint64(5) {
		o.complete()
		o.start(MaxInFlight+v+1, pmem.Seal{Off: 12288, Val: MaxInFlight + v + 1})
		check(v+2, MaxInFlight+v+1)
	}
}

func TestFLUSH_Order(t *testing.T) {
	native := verbs.Caps{OrderedPlace: true, Flush: true, AtomicWrite: true}
	o := newOrder(t, wire.FLUSH, native)
	a, b, c := pmem.Range{Off: 16384, Len: 4096}, pmem.Range{Off: 20500, Len: 64}, pmem.Range{Off: 40000, Len: 3}
	seal := func(v uint64) pmem.Seal { return pmem.Seal{Off: 12288, Val: v} }
	o.want(o.start(1, seal(5), a, b, c),
		"WRITE 16384+4096", "WRITE 20500+64", "WRITE 40000+3", "FLUSH 16384+4180", "FLUSH 40000+3 signaled")
	o.want(o.start(2, seal(6)), "FLUSH 4096+8 signaled")
	o.want(o.start(3, pmem.Seal{}, c), "WRITE 40000+3", "FLUSH 40000+3 signaled")
	o.want(o.start(4, seal(7), c), "WRITE 40000+3", "FLUSH 40000+3 signaled")
	ended, posted := o.complete() // ranges of 1
	o.ends(ended)
	o.want(posted, "ATOMIC_WRITE 12288=5", "FLUSH 12288+8 signaled")
	for range 3 { // ranges of 2, 3, 4: their seals wait for the one before
		ended, posted = o.complete()
		o.ends(ended)
		o.want(posted)
	}
	ended, posted = o.complete() // seal of 1
	o.ends(ended, 1)
	o.want(posted, "ATOMIC_WRITE 12288=6", "FLUSH 12288+8 signaled")
	ended, posted = o.complete() // seal of 2
	o.ends(ended, 2, 3)
	o.want(posted, "ATOMIC_WRITE 12288=7", "FLUSH 12288+8 signaled")
	ended, posted = o.complete()
	o.ends(ended, 4)
	o.want(posted)
}

// Nothing reaches over the end of a chunk.
func TestMethod_Chunks(t *testing.T) {
	const end = 2 << 20
	r := []pmem.Range{{Off: end - 100, Len: 200}}
	o := newOrder(t, wire.FLUSH, verbs.Caps{OrderedPlace: true, Flush: true, AtomicWrite: true})
	want := []string{"WRITE 2097052+100", "WRITE 2097152+100", "FLUSH 2097052+100", "FLUSH 2097152+100 signaled"}
	o.want(o.start(1, pmem.Seal{}, r...), want...)
	must(t, o.lane.start(2, r, pmem.Seal{}, placed))
	o.want(o.dev.taken(), want[2:]...)
	o = newOrder(t, wire.APM, verbs.Caps{OrderedPlace: true})
	o.want(o.start(1, pmem.Seal{}, r...), "WRITE 2097052+100", "WRITE 2097152+100", "READ 2097244+8 signaled")
	must(t, o.lane.start(2, []pmem.Range{{Off: orderSize}}, pmem.Seal{}, placed))
	o.want(o.dev.taken(), "READ 4096+8 signaled")
}

// The seal of a full lane finds places in the send queue.
func TestFLUSH_SealsAlwaysFit(t *testing.T) {
	o := newOrder(t, wire.FLUSH, verbs.Caps{OrderedPlace: true, Flush: true, AtomicWrite: true})
	var many []pmem.Range
	for i := range uint64(600) {
		many = append(many, pmem.Range{Off: 16384 + 1024*i, Len: 64})
	}
	for seq := range uint64(MaxInFlight) {
		o.start(seq, pmem.Seal{Off: 12288, Val: seq + 1}, many...)
	}
	next := uint64(0)
	for next < MaxInFlight {
		if o.dev.outstanding > sendDepth {
			t.Fatalf("%d work requests in a queue for %d", o.dev.outstanding, sendDepth)
		}
		ended, _ := o.complete()
		for _, seq := range ended {
			if seq != next {
				t.Fatalf("drain %d ended in place of %d", seq, next)
			}
			next++
		}
	}
	if o.lane.free != sendDepth || o.lane.unitN != 0 || o.lane.n != 0 || o.lane.full != 0 {
		t.Errorf("%d places, %d units, %d drains are left", o.lane.free, o.lane.unitN, o.lane.n)
	}
}

// A lane over a device that may place overlapping WRITEs in any order has one drain on the wire, whatever the method.
func TestMethod_OneDrainWithoutOrder(t *testing.T) {
	for _, m := range []wire.Method{wire.GPSPM, wire.APM, wire.FLUSH} {
		o := newOrder(t, m, verbs.Caps{Flush: true, AtomicWrite: true})
		o.start(1, pmem.Seal{}, pmem.Range{Off: 16384, Len: 8})
		if got := o.start(2, pmem.Seal{}, pmem.Range{Off: 16384, Len: 8}); got != nil {
			t.Errorf("%v: posted %v", m, got)
		}
	}
}

// orderDevice is a device whose queue pair only notes what is posted.
type orderDevice struct {
	verbs.Device
	caps        verbs.Caps
	quiet       bool // posted stays empty
	posted      []string
	signaled    []verbs.WC
	slots       []int // of each signaled work request
	open        int   // unsignaled ones behind the last of them
	outstanding int
	ready       []verbs.WC
}

func (d *orderDevice) Name() string                   { return "order" }
func (d *orderDevice) Caps() verbs.Caps               { return d.caps }
func (d *orderDevice) AllocPD() (verbs.PD, error)     { return orderPD{d}, nil }
func (d *orderDevice) CreateCQ(int) (verbs.CQ, error) { return orderCQ{d}, nil }
func (d *orderDevice) taken() (posted []string)       { posted, d.posted = d.posted, nil; return posted }

type orderPD struct{ *orderDevice }

func (p orderPD) RegisterMR(b []byte, _ verbs.Access) (verbs.MR, error) { return orderMR(b), nil }
func (p orderPD) CreateQP(verbs.QPAttr) (verbs.QP, error)               { return orderQP(p), nil }
func (p orderPD) Close() error                                          { return nil }

type orderMR []byte

func (m orderMR) Bytes() []byte     { return m }
func (m orderMR) Addr() uint64      { return 0 }
func (m orderMR) RKey() uint32      { return 0 }
func (m orderMR) Deregister() error { return nil }

type orderCQ struct{ *orderDevice }

func (c orderCQ) Poll(wc []verbs.WC) (int, error) {
	n := copy(wc, c.ready)
	c.ready = c.ready[:copy(c.ready, c.ready[n:])]
	return n, nil
}
func (c orderCQ) Wait(time.Duration) error { return verbs.ErrTimeout }
func (c orderCQ) Close() error             { return nil }

type orderQP struct{ *orderDevice }

func (q orderQP) PostRecv([]verbs.RecvWR) error { return nil }
func (q orderQP) Err() error                    { return nil }
func (q orderQP) Close() error                  { return nil }

func (q orderQP) PostSend(wrs []verbs.SendWR) error {
	for i := range wrs {
		wr := &wrs[i]
		q.note(wr)
		q.outstanding++
		q.open++
		if wr.Signaled {
			q.signaled = append(q.signaled, verbs.WC{ID: wr.ID, Op: wr.Op, Len: uint32(wr.Local.Len)})
			q.slots = append(q.slots, q.open)
			q.open = 0
		}
	}
	return nil
}

func (q orderQP) note(wr *verbs.SendWR) {
	if q.quiet {
		return
	}
	s := fmt.Sprintf("%v %d+%d", wr.Op, wr.RemoteAddr-orderBase, wr.Local.Len)
	switch wr.Op {
	case verbs.OpAtomicWrite:
		s = fmt.Sprintf("%v %d=%d", wr.Op, wr.RemoteAddr-orderBase, wr.Value)
	case verbs.OpFlush:
		if wr.Flush != verbs.FlushPersistent {
			s += " visible"
		}
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{uint64(wr.RKey) != 7+(wr.RemoteAddr-orderBase)>>21, " with the key of another chunk"}, {wr.Fence, " fenced"}, {wr.Inline, " inline"}, {wr.Signaled, " signaled"}} {
		if f.set {
			s += f.name
		}
	}
	q.posted = append(q.posted, s)
}
