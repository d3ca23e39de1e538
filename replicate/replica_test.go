package replicate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
	"github.com/pmemfs/pmemfs/verbs/region"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

const testSize = 4 << 20

// testBounce is the size of the bounce buffer, where one is needed.
const testBounce = 2 * unitBytes

// Seal words of the test pool: two supers, and one that the drains of the tests store.
const testSeal = 12288

var superSeals = []uint64{4096, 8192}

// rig makes the two ends of a fabric, and the address that the target listens at.
type rig func(testing.TB) (initiator, target verbs.Device, fabric string)

func iwarpRig(t testing.TB) (verbs.Device, verbs.Device, string) {
	return verbstest.Small(iwarp.New(iwarp.Options{}), 4*region.MinChunk), iwarp.New(iwarp.Options{}), "127.0.0.1:0"
}

func memoryRig(t testing.TB) (verbs.Device, verbs.Device, string) {
	f := verbstest.NewFabric(verbstest.Auto)
	return verbstest.Small(f.Device("a"), 4*region.MinChunk), f.Device("b"), "b:1"
}

// providers runs a test over each provider.
func providers(t *testing.T, test func(*testing.T, rig)) {
	t.Run("iwarp", func(t *testing.T) { test(t, iwarpRig) })
	t.Run("verbstest", func(t *testing.T) { test(t, memoryRig) })
}

type reported struct {
	seq uint64
	err error
}

// pair is a replica and its target.
type pair struct {
	*Replica
	t        testing.TB
	target   *fakeTarget
	region   pmem.Region
	reported chan reported
}

func newPair(t testing.TB, rig rig, timeout time.Duration) *pair {
	return newPairBy(t, rig, wire.GPSPM, timeout)
}

// newPairBy is newPair for a method of persistency.
func newPairBy(t testing.TB, rig rig, method wire.Method, timeout time.Duration) *pair {
	return newPairWith(t, rig, pmem.NewHeap(testSize), method, timeout)
}

func newPairWith(t testing.TB, rig rig, region pmem.Region, method wire.Method, timeout time.Duration) *pair {
	init, dev, fabric := rig(t)
	p := &pair{t: t, target: newFakeTarget(t, dev, fabric, testSize), region: region, reported: make(chan reported, 64)}
	p.target.use(method)
	id := testIdentity()
	id.Size = testSize
	r, err := Connect(t.Context(), Config{Name: "b", Pool: "p.set", Addr: p.target.addr(), Device: init, Timeout: timeout, Durability: wire.DurabilityMedia, Bounce: testBounce, Method: method,
		Log: silent(), OnDrained: func(seq uint64, err error) { p.reported <- reported{seq, err} }}, p.region, id)
	must(t, err)
	p.Replica = r
	t.Cleanup(func() { r.Close(context.Background()) })
	return p
}

// attach brings the pair in sync by a full copy.
func (p *pair) attach() {
	p.t.Helper()
	must(p.t, p.Claim(p.t.Context(), 6))
	must(p.t, p.FullSync(p.t.Context(), superSeals, nil, []pmem.Seal{{Off: 4096, Val: 1}, {Off: 8192, Val: 2}}, nil))
	must(p.t, p.Adopt(p.t.Context(), 101, [8]uint64{100}, nil))
	for p.target.method == wire.GPSPM && len(p.target.seals) > 0 {
		<-p.target.seals
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expect waits for the report of seq.
func (p *pair) expect(seq uint64) error {
	p.t.Helper()
	select {
	case d := <-p.reported:
		if d.seq != seq {
			p.t.Fatalf("drain %d reported in place of %d", d.seq, seq)
		}
		return d.err
	case <-time.After(20 * time.Second):
		p.t.Fatalf("drain %d was not reported; status %+v", seq, p.Status())
	}
	return nil
}

func fill(b []byte, rng *rand.Rand) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
}

func TestReplica_Life(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		before := runtime.NumGoroutine()
		p := newPair(t, rig, testTimeout)
		fill(p.region.Bytes(), rand.New(rand.NewPCG(1, 2)))
		if p.Need() != NeedFullCopy || p.Peer().PoolSize != testSize {
			t.Fatalf("need %v, peer %+v", p.Need(), p.Peer())
		}
		must(t, p.Claim(t.Context(), 6))
		skip := []pmem.Range{{Off: 1 << 20, Len: 8192}}
		var last, total uint64
		must(t, p.FullSync(t.Context(), superSeals, skip, []pmem.Seal{{Off: 8192, Val: 22}, {Off: 4096, Val: 11}}, func(d, all uint64) {
			if d < last || d > all {
				t.Errorf("progress %d of %d after %d", d, all, last)
			}
			last, total = d, all
		}))
		if last != total || total != testSize-4096-8192-16 {
			t.Errorf("copied %d of %d", last, total)
		}
		must(t, p.Adopt(t.Context(), 101, [8]uint64{100}, []wire.UUID{peerID}))
		var order []pmem.Seal
		for range 4 {
			order = append(order, <-p.target.seals)
		}
		if want := []pmem.Seal{{Off: 4096}, {Off: 8192}, {Off: 8192, Val: 22}, {Off: 4096, Val: 11}}; fmt.Sprint(order) != fmt.Sprint(want) {
			t.Errorf("seals stored in the order %v", order)
		}
		states := p.target.states
		if len(states) != 2 || states[0].Set != wire.FlagInconsistent || states[1].Clear&wire.FlagInconsistent == 0 || states[1].Gen != 101 {
			t.Errorf("state slots %+v", states)
		}
		p.Drain(1, []pmem.Range{{Off: 16384, Len: 100}}, pmem.Seal{Off: testSeal, Val: 7})
		must(t, p.expect(1))
		st := p.Status()
		if st.State != InSync || st.Durability != wire.DurabilityMedia || st.AnswerAge > time.Minute || st.InFlight != 0 {
			t.Errorf("status %+v", st)
		}
		must(t, p.Clean(t.Context(), wire.FlagClean))
		must(t, p.Close(t.Context()))
		must(t, p.Close(t.Context()))
		p.target.hangUp()
		binary.LittleEndian.PutUint64(p.region.Bytes()[testSeal:], 7)
		checkCopy(t, p, skip)
		waitGoroutines(t, before+3) // the target's listeners, and the fabric's own acceptor
	})
}

// checkCopy compares the copies outside the header, the seal words and the skipped ranges.
func checkCopy(t *testing.T, p *pair, skip []pmem.Range) {
	t.Helper()
	for _, s := range spans(testSize, superSeals, skip) {
		if !bytes.Equal(p.region.Bytes()[s.Off:s.Off+s.Len], p.target.mem[s.Off:s.Off+s.Len]) {
			t.Errorf("bytes of %+v differ", s)
		}
	}
	for _, s := range append(skip, pmem.Range{Len: 4096}) {
		if !bytes.Equal(p.target.mem[s.Off:s.Off+s.Len], make([]byte, s.Len)) {
			t.Errorf("bytes of %+v were pushed", s)
		}
	}
}

func waitGoroutines(t *testing.T, most int) {
	t.Helper()
	for range 200 {
		if runtime.NumGoroutine() <= most {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, at most %d expected\n%s", runtime.NumGoroutine(), most, buf[:runtime.Stack(buf, true)])
}

func TestReplica_OneAnsweredSendPerDrain(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		p := newPair(t, rig, testTimeout)
		p.attach()
		for seq, n := range []int{0, 1, 2, 200, 256} {
			sends, asked := p.target.sends.Load(), p.target.asked.Load()
			ranges := make([]pmem.Range, n)
			for i := range ranges {
				ranges[i] = pmem.Range{Off: 16384 + uint64(i)*1024, Len: 64}
			}
			p.Drain(uint64(seq), ranges, pmem.Seal{Off: testSeal, Val: uint64(seq) + 1})
			must(t, p.expect(uint64(seq)))
			if s, q := p.target.sends.Load()-sends, p.target.asked.Load()-asked; s != 1 || q != 1 {
				t.Errorf("%d ranges: %d Sends, %d answered", n, s, q)
			}
		}
	})
}

func TestReplica_RandomDrains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, credits := range []uint32{1, 2, 3, 64} {
		t.Run(fmt.Sprintf("credits %d", credits), func(t *testing.T) {
			providers(t, func(t *testing.T, rig rig) {
				p := newPair(t, rig, 30*time.Second)
				p.target.credits = credits
				p.attach()
				randomDrains(t, p, rand.New(rand.NewPCG(seed, uint64(credits))))
				must(t, p.Close(t.Context()))
				p.target.hangUp()
				if !bytes.Equal(p.region.Bytes()[16384:], p.target.mem[16384:]) {
					t.Error("the copies differ")
				}
			})
		})
	}
}

// randomDrains starts drains of all shapes, as many in flight as chance allows; the last one names everything.
func randomDrains(t *testing.T, p *pair, rng *rand.Rand) {
	const drains = 60
	fill(p.region.Bytes(), rng)
	started, seen := uint64(0), uint64(0)
	for seen < drains {
		if started < drains && started-seen < MaxInFlight && (started == seen || rng.IntN(2) == 0) {
			started++
			p.Drain(started, randomRanges(rng), pmem.Seal{Off: testSeal, Val: started})
			continue
		}
		seen++
		must(t, p.expect(seen))
		if got := <-p.target.seals; got != (pmem.Seal{Off: testSeal, Val: seen}) {
			t.Fatalf("seal %+v after drain %d", got, seen)
		}
	}
	p.Drain(drains+1, []pmem.Range{{Off: 16384, Len: testSize - 16384}}, pmem.Seal{})
	must(t, p.expect(drains+1))
}

// randomRanges are sorted and disjoint, from none to more than a message holds, some empty, some large.
func randomRanges(rng *rand.Rand) []pmem.Range {
	n, most := rng.IntN(4), uint64(200_000)
	if rng.IntN(6) == 0 {
		n, most = 100+rng.IntN(800), 2000
	}
	var rs []pmem.Range
	at := uint64(16384)
	for range n {
		at += rng.Uint64N(most)
		size := rng.Uint64N(most)
		if at+size > testSize {
			break
		}
		rs = append(rs, pmem.Range{Off: at, Len: size})
		at += size
	}
	return rs
}

// hangupDrains is how many drains drainsThroughHangups starts.
const hangupDrains = 200

// drainsThroughHangups starts drains while the target hangs up again and again, and closes the replica. Each drain is reported without error and in order, and the
// target has its bytes.
func (p *pair) drainsThroughHangups(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	started, seen := uint64(0), uint64(0)
	for seen < hangupDrains {
		if rng.IntN(20) == 0 {
			p.target.hangUp()
		}
		if started < hangupDrains && started-seen < MaxInFlight {
			started++
			at := 16384 + 4096*started
			binary.LittleEndian.PutUint64(p.region.Bytes()[at:], started)
			p.Drain(started, []pmem.Range{{Off: at, Len: 8}}, pmem.Seal{Off: testSeal, Val: started})
			continue
		}
		seen++
		must(t, p.expect(seen))
	}
	must(t, p.Close(t.Context()))
	p.target.hangUp()
	for seq := range uint64(hangupDrains) {
		if got := binary.LittleEndian.Uint64(p.target.mem[16384+4096*(seq+1):]); got != seq+1 {
			t.Fatalf("drain %d was reported, the target has %d", seq+1, got)
		}
	}
}

// drainsAllocateNothing does drains of two ranges and a seal, one after the other.
func (p *pair) drainsAllocateNothing(t *testing.T) {
	t.Helper()
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

func TestReplica_TargetComesBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	providers(t, func(t *testing.T, rig rig) {
		p := newPair(t, rig, 10*time.Second)
		p.attach()
		p.drainsThroughHangups(t, seed)
		if p.target.session < 2 {
			t.Error("no reconnect happened")
		}
	})
}

func TestReplica_BlackHole(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		const timeout = 400 * time.Millisecond
		p := newPair(t, rig, timeout)
		p.attach()
		p.target.deaf.Store(true)
		begin := time.Now()
		p.Drain(1, []pmem.Range{{Off: 16384, Len: 64}}, pmem.Seal{})
		p.Drain(2, nil, pmem.Seal{Off: testSeal, Val: 2})
		for seq := uint64(1); seq <= 2; seq++ {
			if err := p.expect(seq); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "target b: drain") {
				t.Errorf("drain %d: %v", seq, err)
			}
		}
		if d := time.Since(begin); d < timeout || d > timeout+2*time.Second {
			t.Errorf("failed after %v", d)
		}
		p.Drain(3, nil, pmem.Seal{})
		if err := p.expect(3); !errors.Is(err, ErrTimeout) {
			t.Errorf("after the failure: %v", err)
		}
		if st := p.Status(); st.State != Failed || st.Err == nil {
			t.Errorf("status %+v", st)
		}
	})
}

func TestReplica_IdleBlackHole(t *testing.T) {
	const timeout = 400 * time.Millisecond
	p := newPair(t, iwarpRig, timeout)
	p.attach()
	p.target.deaf.Store(true)
	for begin := time.Now(); p.Status().State != Failed; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 5*timeout+2*time.Second {
			t.Fatalf("an idle replica did not notice: %+v", p.Status())
		}
	}
}

func TestReplica_Fenced(t *testing.T) {
	p := newPair(t, iwarpRig, testTimeout)
	p.attach()
	p.target.deaf.Store(true)
	p.Drain(1, nil, pmem.Seal{})
	p.target.notify(9)
	err := p.expect(1)
	if !errors.Is(err, wire.StatusFenced) || !strings.Contains(err.Error(), "promoted elsewhere at term 9") {
		t.Errorf("drain: %v", err)
	}
	if p.Status().State != Refused {
		t.Errorf("status %+v", p.Status())
	}
}

func TestReplica_FlushFailures(t *testing.T) {
	for status, want := range map[wire.FlushStatus]error{wire.FlushIO: wire.FlushIO, wire.FlushFenced: wire.StatusFenced} {
		p := newPair(t, iwarpRig, testTimeout)
		p.attach()
		p.target.status.Store(uint32(status))
		p.Drain(1, []pmem.Range{{Off: 16384, Len: 8}}, pmem.Seal{Off: testSeal, Val: 5})
		if err := p.expect(1); !errors.Is(err, want) {
			t.Errorf("%v: %v", status, err)
		}
		p.Drain(2, nil, pmem.Seal{})
		if err := p.expect(2); !errors.Is(err, want) {
			t.Errorf("%v, next drain: %v", status, err)
		}
	}
}

func TestReplica_WrongRanges(t *testing.T) {
	for _, bad := range []struct {
		r pmem.Range
		s pmem.Seal
	}{
		{r: pmem.Range{Off: 0, Len: 8}}, {r: pmem.Range{Off: testSize, Len: 1}}, {r: pmem.Range{Off: 8192, Len: ^uint64(0)}},
		{r: pmem.Range{Off: ^uint64(0), Len: 2}}, {s: pmem.Seal{Off: 4100, Val: 1}}, {s: pmem.Seal{Off: testSize, Val: 1}}, {s: pmem.Seal{Off: 8}},
	} {
		p := newPair(t, memoryRig, testTimeout)
		p.attach()
		sends := p.target.sends.Load()
		ranges := []pmem.Range{{Off: 16384, Len: 8}}
		if bad.r != (pmem.Range{}) {
			ranges = append(ranges, bad.r)
		}
		p.Drain(1, ranges, bad.s)
		if err := p.expect(1); err == nil || p.target.sends.Load() != sends {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestReplica_ReadAt(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		p := newPair(t, rig, testTimeout)
		fill(p.target.mem, rand.New(rand.NewPCG(3, 4)))
		if err := p.ReadAt(4096, make([]byte, 8)); !errors.Is(err, ErrOrder) {
			t.Errorf("before the claim: %v", err)
		}
		must(t, p.Claim(t.Context(), 6))
		for _, n := range []int{0, 1, 4096, bounceSize, bounceSize + 1, 3 << 20} {
			got := make([]byte, n)
			must(t, p.ReadAt(5000, got))
			if !bytes.Equal(got, p.target.mem[5000:5000+n]) {
				t.Errorf("%d bytes differ", n)
			}
		}
		for _, off := range []uint64{0, testSize - 7, ^uint64(0)} {
			if err := p.ReadAt(off, make([]byte, 8)); err == nil {
				t.Errorf("read at %d", off)
			}
		}
	})
}

func TestReplica_RequestsFail(t *testing.T) {
	for status := wire.StatusVersion; status <= wire.StatusRegister; status++ {
		if status == wire.StatusFenced {
			continue // has a state behind the text: see TestMachine_RefusalsOfClaim
		}
		p := newPair(t, memoryRig, testTimeout)
		p.target.refuse.Store(uint32(status))
		err := p.Claim(t.Context(), 6)
		if !errors.Is(err, status) || !strings.Contains(err.Error(), "as the test wants") || !strings.Contains(err.Error(), "target b") {
			t.Errorf("%v: %v", uint32(status), err)
		}
	}
}

func TestReplica_Cancelled(t *testing.T) {
	p := newPair(t, memoryRig, testTimeout)
	p.target.deaf.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Claim(ctx, 6); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claim: %v", err)
	}
}

func TestReplica_NobodyListens(t *testing.T) {
	p := newPair(t, memoryRig, testTimeout)
	at := p.target.addr()
	p.target.control.Close()
	_, err := Connect(t.Context(), Config{Name: "b", Addr: at, Device: p.cfg.Device, Log: p.cfg.Log}, p.region, testIdentity())
	if err == nil || !strings.Contains(err.Error(), "check that pmemfs-target listens") {
		t.Errorf("connect: %v", err)
	}
}

func TestReplica_CloseReportsAll(t *testing.T) {
	p := newPair(t, iwarpRig, testTimeout)
	p.attach()
	p.target.deaf.Store(true)
	for seq := range uint64(4) {
		p.Drain(seq, nil, pmem.Seal{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p.Close(ctx)
	for seq := range uint64(4) {
		if err := p.expect(seq); !errors.Is(err, ErrClosed) {
			t.Errorf("drain %d: %v", seq, err)
		}
	}
}

func TestReplica_DrainAllocatesNothing(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		p := newPair(t, rig, testTimeout)
		p.attach()
		p.drainsAllocateNothing(t)
	})
}

func TestSpans(t *testing.T) {
	got := spans(100_000, []uint64{8192, 4096}, []pmem.Range{{Off: 50_000, Len: 10}, {Off: 90_000, Len: 1 << 63}, {Off: 0, Len: 4000}})
	want := []pmem.Range{{Off: 4104, Len: 4088}, {Off: 8200, Len: 41800}, {Off: 50010, Len: 39990}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkDrain(b *testing.B) {
	for _, m := range []wire.Method{wire.GPSPM, wire.APM} {
		b.Run(m.String(), func(b *testing.B) { benchmarkDrain(b, m) })
	}
}

func benchmarkDrain(b *testing.B, m wire.Method) {
	p := newPairBy(b, iwarpRig, m, testTimeout)
	p.attach()
	ranges := []pmem.Range{{Off: 16384, Len: 4096}, {Off: 32768, Len: 192}}
	b.ReportAllocs()
	b.SetBytes(4096)
	for seq := uint64(1); b.Loop(); seq++ {
		p.Drain(seq, ranges, pmem.Seal{Off: testSeal, Val: seq})
		if d := <-p.reported; d.err != nil {
			b.Fatal(d.err)
		}
	}
}

func newFilledRegion() pmem.Region {
	region := pmem.NewHeap(testSize)
	fill(region.Bytes(), rand.New(rand.NewPCG(7, 8)))
	return region
}

// sealsOf are the seal words as they stand in the region.
func sealsOf(region pmem.Region) (seals []pmem.Seal) {
	for _, off := range superSeals {
		seals = append(seals, pmem.Seal{Off: off, Val: binary.LittleEndian.Uint64(region.Bytes()[off:])})
	}
	return seals
}
