package target

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// fakeMR, fakeQP and fakeCQ stand in for a provider, so that a test sees only what the handler does.
type fakeMR struct{ b []byte }

func (m *fakeMR) Bytes() []byte     { return m.b }
func (m *fakeMR) Addr() uint64      { return 0 }
func (m *fakeMR) RKey() uint32      { return 0 }
func (m *fakeMR) Deregister() error { return nil }

type fakeQP struct {
	posted, sent int
	lastRecv     uint64
	order        string // R and S as they came
	record       bool
}

func (q *fakeQP) PostSend([]verbs.SendWR) error {
	q.sent++
	if q.record {
		q.order += "S"
	}
	return nil
}

func (q *fakeQP) PostRecv(wrs []verbs.RecvWR) error {
	q.posted++
	q.lastRecv = wrs[0].ID
	if q.record {
		q.order += "R"
	}
	return nil
}
func (q *fakeQP) Err() error   { return errors.New("fake") }
func (q *fakeQP) Close() error { return nil }

// failing is a region whose Fence fails on demand.
type failing struct {
	pmem.Region
	err error
}

func (r *failing) Fence() error {
	if r.err != nil {
		return r.err
	}
	return r.Region.Fence()
}

func fakeLane(r pmem.Region) (*lane, *fakeQP) {
	g := &grant{id: 99, term: 3, region: r, log: quiet(), report: func() {}}
	g.size.Store(uint64(len(r.Bytes())))
	qp := new(fakeQP)
	l := &lane{g: g, qp: qp, free: answers,
		recv: &fakeMR{make([]byte, credits*wire.MaxFlush)}, send: &fakeMR{make([]byte, answers*wire.AnswerSize)}}
	l.req.Ranges = make([]pmem.Range, 0, wire.MaxRanges)
	return l, qp
}

// take lets the lane handle m in receive buffer slot and returns the answer, if one was sent.
func take(t testing.TB, l *lane, slot uint64, m *wire.Flush) (a wire.FlushAnswer) {
	n := m.Encode(l.recv.Bytes()[slot*wire.MaxFlush:])
	before := l.answer
	if err := l.complete(&verbs.WC{Op: verbs.OpRecv, ID: slot, Len: uint32(n)}); err != nil {
		t.Fatal(err)
	}
	if l.answer == before {
		return a
	}
	if err := a.Decode(l.send.Bytes()[before%answers*wire.AnswerSize:][:wire.AnswerSize]); err != nil {
		t.Fatal(err)
	}
	return a
}

// A flush that fails is answered as IO, is reported once, and no later request stores a seal.
func TestLane_IOFailure(t *testing.T) {
	heap := pmem.NewHeap(1 << 20)
	region := &failing{Region: heap}
	l, qp := fakeLane(region)
	reports := 0
	l.g.report = func() { reports++ }
	req := wire.Flush{Seq: 1, Session: 99, Answer: true, Seal: pmem.Seal{Off: 8192, Val: 5}, Ranges: []pmem.Range{{Off: 4096, Len: 10}}}
	if a := take(t, l, 0, &req); a != (wire.FlushAnswer{Status: wire.FlushOK, Seq: 1, Taken: 1, Term: 3}) {
		t.Fatalf("answer %+v", a)
	}
	region.err = &pmem.SyncError{Off: 4096, Len: 10, Err: errors.New("made to fail")}
	req.Answer, req.Seq, req.Seal = false, 2, pmem.Seal{Off: 8192, Val: 6}
	if take(t, l, 1, &req); qp.sent != 1 {
		t.Error("a request that wants no answer was answered")
	}
	region.err = nil
	req.Answer, req.Seq = true, 3
	for range 2 {
		if a := take(t, l, 2, &req); a != (wire.FlushAnswer{Status: wire.FlushIO, Seq: 3, Taken: l.taken, Term: 3, Where: 4096}) {
			t.Errorf("after the failure: %+v", a)
		}
	}
	if b := heap.Bytes()[8192]; b != 5 {
		t.Errorf("seal %d was stored after a failure", b)
	}
	if reports != 1 || !l.g.ioFailed.Load() {
		t.Errorf("%d reports", reports)
	}
}

// A flush that fails while the session is being fenced still marks the copy.
func TestGrant_FailureAfterFence(t *testing.T) {
	l, _ := fakeLane(pmem.NewHeap(1 << 20))
	l.g.failure.Store(&failure{status: wire.FlushFenced, term: 4})
	if f := l.g.fail(wire.FlushIO, 4096, errors.New("late")); f.status != wire.FlushFenced || !l.g.ioFailed.Load() {
		t.Errorf("failure %+v, ioFailed %v", f, l.g.ioFailed.Load())
	}
}

// The answer that fences an initiator names the term that took over, not the one that ended.
func TestLane_FencedAnswer(t *testing.T) {
	l, _ := fakeLane(pmem.NewHeap(1 << 20))
	l.g.failure.Store(&failure{status: wire.FlushFenced, term: l.g.term + 1})
	req := wire.Flush{Session: l.g.id, Seq: 1, Answer: true, Ranges: []pmem.Range{{Off: 8192, Len: 64}}}
	if a := take(t, l, 0, &req); a != (wire.FlushAnswer{Status: wire.FlushFenced, Seq: 1, Taken: 1, Term: l.g.term + 1}) {
		t.Errorf("answer %+v", a)
	}
}

func TestLane_ReceiveBeforeAnswer(t *testing.T) {
	l, qp := fakeLane(pmem.NewHeap(1 << 20))
	qp.record = true
	take(t, l, 7, &wire.Flush{Session: 99, Answer: true})
	if qp.order != "RS" || qp.lastRecv != 7 {
		t.Errorf("order %q, receive %d", qp.order, qp.lastRecv)
	}
}

// An initiator that does not take its answers loses the lane and overwrites no answer on its way.
func TestLane_AnswersNotTaken(t *testing.T) {
	l, _ := fakeLane(pmem.NewHeap(1 << 20))
	req := wire.Flush{Session: 99, Answer: true}
	for range answers {
		take(t, l, 0, &req)
	}
	n := req.Encode(l.recv.Bytes())
	if err := l.complete(&verbs.WC{Op: verbs.OpRecv, Len: uint32(n)}); !errors.Is(err, errNoAnswers) {
		t.Errorf("got %v", err)
	}
	if err := l.complete(&verbs.WC{Op: verbs.OpSend}); err != nil || l.free != 1 {
		t.Errorf("a completion gave %d free answers, %v", l.free, err)
	}
}

// A request is not begun once the lane is being closed.
func TestLane_ClosingTakesNothing(t *testing.T) {
	heap := pmem.NewHeap(1 << 20)
	l, qp := fakeLane(heap)
	l.close()
	take(t, l, 0, &wire.Flush{Session: 99, Answer: true, Seal: pmem.Seal{Off: 4096, Val: 1}})
	if qp.sent != 0 || heap.Bytes()[4096] != 0 {
		t.Error("a closing lane carried out a request")
	}
}

func TestLane_NoAllocation(t *testing.T) {
	l, _ := fakeLane(pmem.NewHeap(1 << 20))
	req := wire.Flush{Session: 99, Answer: true, Seal: pmem.Seal{Off: 4096, Val: 7}}
	for i := range uint64(wire.MaxRanges) {
		req.Ranges = append(req.Ranges, pmem.Range{Off: 8192 + 64*i, Len: 64})
	}
	n := uint32(req.Encode(l.recv.Bytes()))
	recv, sent := verbs.WC{Op: verbs.OpRecv, Len: n}, verbs.WC{Op: verbs.OpSend}
	if a := testing.AllocsPerRun(1000, func() {
		if l.complete(&recv) != nil || l.complete(&sent) != nil {
			t.Fatal("a request failed")
		}
	}); a != 0 {
		t.Errorf("%v allocations per request", a)
	}
	if l.g.failure.Load() != nil {
		t.Error("the requests failed")
	}
}

// So does one whose bytes are staged.
func TestLane_StagedNoAllocation(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Auto)
	f.Hardware()
	dev := f.Device("d")
	g, err := newGrant(dev, asFile{pmem.NewHeap(1 << 20)}, 99, Register{1, 1, wire.AllMethods}, Persistency{Bounce: bounceSize}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.admit(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	req := wire.Flush{Session: 99, Stage: wire.Staged, Seal: pmem.Seal{Off: 4096, Val: 7}}
	for i := range uint64(wire.MaxRanges) {
		req.Ranges = append(req.Ranges, pmem.Range{Off: 8192 + 64*i, Len: 64})
	}
	buf := make([]byte, req.Size())
	req.Encode(buf)
	if a := testing.AllocsPerRun(1000, func() {
		if _, f := l.flush(buf); f != nil {
			t.Fatal("a request failed")
		}
	}); a != 0 {
		t.Errorf("%v allocations per request", a)
	}
	if err := errors.Join(g.leave(l, 0), g.end(0)); err != nil {
		t.Error(err)
	}
}

// FuzzLane: whatever arrives is answered or ends the lane, and never touches the pool header.
func FuzzLane(f *testing.F) {
	buf := make([]byte, wire.MaxFlush)
	for _, m := range []wire.Flush{
		{Session: 99, Answer: true, Seal: pmem.Seal{Off: 4096, Val: 1}, Ranges: []pmem.Range{{Off: 4096, Len: 64}}},
		{Session: 99, Ranges: []pmem.Range{{Off: 1 << 63, Len: 1 << 63}}},
	} {
		f.Add(append([]byte(nil), buf[:m.Encode(buf)]...), true)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if len(b) > wire.MaxFlush {
			return
		}
		heap := pmem.NewHeap(64 << 10)
		l, qp := fakeLane(heap)
		if repair {
			repairChecksum(b)
		}
		copy(l.recv.Bytes(), b)
		if err := l.complete(&verbs.WC{Op: verbs.OpRecv, Len: uint32(len(b))}); err != nil {
			t.Fatal(err)
		}
		if qp.posted != 1 {
			t.Error("the receive was not posted again")
		}
		if strings.Trim(string(heap.Bytes()[:wire.FirstOffset]), "\x00") != "" {
			t.Error("the pool header was touched")
		}
	})
}

// A lane that asked before the session ended, and is admitted after, would write into a pool that is somebody else's.
func TestGrant_EndedAdmitsNothing(t *testing.T) {
	dev := iwarp.New(iwarp.Options{})
	g, err := newGrant(dev, pmem.NewHeap(1<<20), 7, Register{1, 1, wire.AllMethods}, Persistency{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.end(2); err != nil {
		t.Fatal(err)
	}
	if _, err := g.admit(dev, 0); !errors.Is(err, wire.StatusNoSession) {
		t.Errorf("admitted: %v", err)
	}
}

// halfOpen is a connection request whose peer says nothing more: Accept comes back only when the queue pair is closed.
type halfOpen struct {
	verbs.ConnRequest
	accepting chan struct{}
}

func (r halfOpen) Accept(qp verbs.QP, _ []byte) error {
	close(r.accepting)
	for end := time.Now().Add(10 * time.Second); qp.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return qp.Err()
}

// A session that ends does not wait for a lane whose connection is in the making: it calls that off.
func TestGrant_EndsLaneInAccept(t *testing.T) {
	dev := iwarp.New(iwarp.Options{})
	g, err := newGrant(dev, pmem.NewHeap(1<<20), 7, Register{1, 1, wire.AllMethods}, Persistency{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	req := halfOpen{accepting: make(chan struct{})}
	connected := make(chan error)
	go func() { connected <- g.connect(dev, req, 0) }()
	<-req.accepting
	begun := time.Now()
	if err := g.end(2); err != nil {
		t.Error(err)
	}
	if d := time.Since(begun); d > endTimeout/4 {
		t.Errorf("the session ended after %v", d)
	}
	if err := <-connected; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if n := g.connected(); n != 0 {
		t.Errorf("%d lanes are left", n)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// A grant of a pool with nothing above its header is refused.
func TestNewGrant_Empty(t *testing.T) {
	if _, err := newGrant(iwarp.New(iwarp.Options{}), pmem.NewHeap(wire.FirstOffset), 7, Register{1, 1, wire.AllMethods}, Persistency{}, quiet()); err == nil {
		t.Error("granted")
	}
}

// BenchmarkLane is the handler's own cost of a request with one range and a seal.
func BenchmarkLane(b *testing.B) {
	l, _ := fakeLane(pmem.NewHeap(1 << 20))
	req := wire.Flush{Session: 99, Answer: true, Seal: pmem.Seal{Off: 4096, Val: 7}, Ranges: []pmem.Range{{Off: 8192, Len: 4096}}}
	recv, sent := verbs.WC{Op: verbs.OpRecv, Len: uint32(req.Encode(l.recv.Bytes()))}, verbs.WC{Op: verbs.OpSend}
	b.ReportAllocs()
	for b.Loop() {
		if l.complete(&recv) != nil || l.complete(&sent) != nil {
			b.Fatal("a request failed")
		}
	}
}

// repairChecksum makes the checksum of a flush request right, so that the checks behind it are reached.
func repairChecksum(b []byte) {
	if len(b) < wire.FlushHeader {
		return
	}
	clear(b[44:48])
	binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
