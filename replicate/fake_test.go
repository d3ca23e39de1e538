package replicate

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/region"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// fakeTarget is a target in the test's process that does as it is told, also wrongly.
type fakeTarget struct {
	t       testing.TB
	dev     verbs.Device
	control net.Listener
	fabric  verbs.Listener
	group   sync.WaitGroup

	credits uint32
	access  verbs.Access // of the region, beside WRITE and READ
	method  wire.Method
	lanesAt string        // where grants send lanes
	deaf    atomic.Bool   // requests and flushes are read and not answered
	status  atomic.Uint32 // of the next flush answers
	refuse  atomic.Uint32 // status of the next claims
	sends   atomic.Uint64 // flush requests taken
	asked   atomic.Uint64 // those that wanted an answer
	seals   chan pmem.Seal

	ending  sync.Mutex
	mu      sync.Mutex
	mem     []byte // looked at by tests after hangUp: the race detector does not see that an answer over TCP orders it
	st      wire.State
	session uint64 // number of the last one
	pd      verbs.PD
	chunks  *region.Chunks
	scratch verbs.MR
	spoil   func(*wire.Grant) // nil: as it is

	spoilGrown func(*wire.Region) // nil: as it is
	conns      map[net.Conn]bool
	lanes      []*fakeLane
	states     []wire.SetState
}

type fakeLane struct {
	qp   verbs.QP
	done chan struct{}
}

func newFakeTarget(t testing.TB, dev verbs.Device, fabricAddr string, size int) *fakeTarget {
	f := &fakeTarget{t: t, dev: dev, mem: make([]byte, size, 2*size), credits: 64, method: wire.GPSPM, conns: map[net.Conn]bool{}, seals: make(chan pmem.Seal, 4096)}
	f.st = wire.State{Attr: wire.Attr{PoolUUID: poolUUID, CopyID: peerID}, PoolSize: uint64(size), Durability: wire.DurabilityMedia}
	var err error
	if f.control, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if f.fabric, err = dev.Listen(fabricAddr); err != nil {
		t.Fatal(err)
	}
	f.lanesAt = f.fabric.Addr().String()
	f.group.Go(f.acceptControl)
	f.group.Go(f.acceptLanes)
	t.Cleanup(f.close)
	return f
}

// use makes f grant a method. It is called before the first claim.
func (f *fakeTarget) use(m wire.Method) {
	f.method = m
	if m == wire.FLUSH {
		f.access = verbs.RemoteFlush
	}
}

func (f *fakeTarget) close() {
	f.control.Close()
	f.fabric.Close()
	f.hangUp()
	f.group.Wait()
}

// hangUp breaks every connection.
func (f *fakeTarget) hangUp() {
	f.mu.Lock()
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.endSession()
}

// endSession returns when no handler of an older session touches the memory any more.
func (f *fakeTarget) endSession() {
	f.ending.Lock()
	defer f.ending.Unlock()
	f.mu.Lock()
	lanes, chunks, scratch, pd := f.lanes, f.chunks, f.scratch, f.pd
	f.lanes, f.chunks, f.pd = nil, nil, nil
	f.mu.Unlock()
	for _, l := range lanes {
		l.qp.Close()
		<-l.done
	}
	if chunks != nil {
		scratch.Deregister()
		chunks.Close()
		pd.Close()
	}
}

func (f *fakeTarget) addr() string { return f.control.Addr().String() }

func (f *fakeTarget) acceptControl() {
	for {
		c, err := f.control.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns[c] = true
		f.mu.Unlock()
		f.group.Go(func() {
			f.serve(c)
			c.Close()
			f.mu.Lock()
			delete(f.conns, c)
			f.mu.Unlock()
		})
	}
}

func (f *fakeTarget) serve(c net.Conn) {
	for {
		req, err := wire.ReadFrame(c)
		if err != nil {
			return
		}
		body, status := f.handle(req)
		if f.deaf.Load() {
			continue
		}
		if wire.WriteFrame(c, wire.Frame{Type: req.Type | wire.Answer, ID: req.ID, Status: status, Body: body}) != nil {
			return
		}
	}
}

// notify sends a FENCED notice on every control connection.
func (f *fakeTarget) notify(term uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		wire.WriteFrame(c, wire.Frame{Type: wire.TypeFenced, Body: (&wire.Fenced{Term: term, Text: "by the test"}).Append(nil)})
	}
}

func (f *fakeTarget) handle(req wire.Frame) ([]byte, wire.Status) {
	switch req.Type {
	case wire.TypeHello:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.st.Append(nil), wire.StatusOK
	case wire.TypeClaim:
		if s := wire.Status(f.refuse.Load()); s != wire.StatusOK {
			return wire.AppendRefusal(nil, "as the test wants", nil), s
		}
		var c wire.Claim
		if err := c.Decode(req.Body); err != nil {
			f.t.Error(err)
		}
		f.endSession()
		return f.grant(&c), wire.StatusOK
	case wire.TypeSetState:
		var s wire.SetState
		if err := s.Decode(req.Body); err != nil {
			f.t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.st.Gen, f.st.History, f.st.Flags = s.Gen, s.History, (f.st.Flags|s.Set)&^s.Clear
		f.states = append(f.states, s)
		return f.st.Append(nil), wire.StatusOK
	case wire.TypeGrow:
		return f.grow(req.Body)
	case wire.TypeClose:
		f.endSession()
	}
	return nil, wire.StatusOK
}

// grow has room for twice the size that it began with.
func (f *fakeTarget) grow(body []byte) ([]byte, wire.Status) {
	var g wire.Grow
	if err := g.Decode(body); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.PoolSize > uint64(cap(f.mem)) {
		return wire.AppendRefusal(nil, fmt.Sprintf("there are %d bytes", cap(f.mem)), nil), wire.StatusTooSmall
	}
	f.mem = f.mem[:max(len(f.mem), int(g.PoolSize))]
	if err := f.chunks.Extend(f.mem, pmem.Heap, nil); err != nil {
		f.t.Error(err)
	}
	f.st.PoolSize = uint64(len(f.mem))
	a := wire.Grown{Region: f.reach()}
	if f.spoilGrown != nil {
		f.spoilGrown(&a.Region)
	}
	return a.Append(nil), wire.StatusOK
}

// reach is where a session finds the memory. Caller holds mu.
func (f *fakeTarget) reach() wire.Region {
	r := wire.Region{PoolSize: uint64(len(f.mem)), ChunkSize: f.chunks.Size()}
	for _, mr := range f.chunks.Regions() {
		r.Chunks = append(r.Chunks, wire.Chunk{Base: mr.Addr(), RKey: mr.RKey()})
	}
	return r
}

func (f *fakeTarget) memory() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mem
}

func (f *fakeTarget) grant(c *wire.Claim) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.st.Term, f.st.Writer = c.Term, c.Writer
	f.session++
	var err error
	if f.pd, err = f.dev.AllocPD(); err != nil {
		f.t.Error(err)
	}
	cfg := region.Config{Device: verbstest.Small(f.dev, region.MinChunk), PD: f.pd, Access: verbs.RemoteRead | verbs.RemoteWrite | f.access, First: wire.FirstOffset}
	if f.chunks, err = region.Register(cfg, f.mem, pmem.Heap); err != nil {
		f.t.Error(err)
	}
	if f.scratch, err = f.pd.RegisterMR(make([]byte, 4096), verbs.RemoteRead|verbs.RemoteWrite); err != nil {
		f.t.Error(err)
	}
	g := wire.Grant{Session: f.session, Scratch: wire.Area{Base: f.scratch.Addr(), RKey: f.scratch.RKey(), Len: 4096}, Fabric: f.lanesAt, Credits: f.credits, MaxRanges: wire.MaxRanges, Method: f.method, Why: "as the test wants", Region: f.reach()}
	if f.spoil != nil {
		f.spoil(&g)
	}
	return g.Append(nil)
}

func (f *fakeTarget) acceptLanes() {
	for {
		req, err := f.fabric.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		pd, session := f.pd, f.session
		if pd == nil || f.admit(req, pd, session) != nil {
			req.Reject([]byte("no session"))
		}
		f.mu.Unlock()
	}
}

const laneSlots = 64

// admit makes a lane. Caller holds mu.
func (f *fakeTarget) admit(req verbs.ConnRequest, pd verbs.PD, session uint64) error {
	h := &fakeHandler{f: f, session: session}
	var err error
	if h.cq, err = f.dev.CreateCQ(4 * laneSlots); err != nil {
		return err
	}
	if h.qp, err = pd.CreateQP(verbs.QPAttr{SendCQ: h.cq, RecvCQ: h.cq, SendDepth: 2 * laneSlots, RecvDepth: laneSlots}); err != nil {
		return err
	}
	h.in, _ = pd.RegisterMR(make([]byte, laneSlots*wire.MaxFlush), verbs.LocalWrite)
	h.out, _ = pd.RegisterMR(make([]byte, laneSlots*wire.AnswerSize), 0)
	for i := range uint64(f.credits) {
		h.recv(i)
	}
	l := &fakeLane{qp: h.qp, done: make(chan struct{})}
	f.lanes = append(f.lanes, l)
	err = req.Accept(h.qp, nil)
	f.group.Go(func() {
		h.run()
		h.qp.Close()
		h.in.Deregister()
		h.out.Deregister()
		h.cq.Close()
		close(l.done)
	})
	if err != nil {
		h.qp.Close()
	}
	return nil
}

// fakeHandler is the flush handler of one lane. Its ranges are "persistent" as they are.
type fakeHandler struct {
	f       *fakeTarget
	qp      verbs.QP
	cq      verbs.CQ
	in, out verbs.MR
	session uint64
	taken   uint64
	slot    uint64
	msg     wire.Flush
	ans     wire.FlushAnswer
	wr      [1]verbs.SendWR
	rr      [1]verbs.RecvWR
	wcs     [16]verbs.WC
}

func (h *fakeHandler) recv(i uint64) {
	h.rr[0] = verbs.RecvWR{ID: i, Local: verbs.SGE{MR: h.in, Off: i * wire.MaxFlush, Len: wire.MaxFlush}}
	h.qp.PostRecv(h.rr[:])
}

func (h *fakeHandler) run() {
	for {
		n, err := h.cq.Poll(h.wcs[:])
		if err != nil {
			return
		}
		for i := range n {
			if h.wcs[i].Status != verbs.StatusOK {
				return
			}
			if h.wcs[i].Op == verbs.OpRecv {
				h.flush(h.wcs[i].ID, int(h.wcs[i].Len))
			}
		}
		if n == 0 {
			h.cq.Wait(time.Second)
		}
	}
}

func (h *fakeHandler) flush(slot uint64, n int) {
	f, m := h.f, &h.msg
	if err := m.Decode(h.in.Bytes()[slot*wire.MaxFlush:][:n]); err != nil {
		f.t.Errorf("flush request: %v", err)
	}
	mem := f.memory()
	if where, ok := m.Check(uint64(len(mem))); !ok || m.Session != h.session {
		f.t.Errorf("flush request of session %d with a bad offset %d", m.Session, where)
		return
	}
	h.taken++
	h.recv(slot)
	status := wire.FlushStatus(f.status.Load())
	if m.Seal.Off != 0 && status == wire.FlushOK {
		binary.LittleEndian.PutUint64(mem[m.Seal.Off:], m.Seal.Val)
		select {
		case f.seals <- m.Seal:
		default:
		}
	}
	f.sends.Add(1)
	if !m.Answer {
		return
	}
	f.asked.Add(1)
	if f.deaf.Load() {
		return
	}
	h.ans = wire.FlushAnswer{Status: status, Seq: m.Seq, Taken: h.taken, Term: 9, Where: 8192}
	off := h.slot % laneSlots * wire.AnswerSize
	h.slot++
	h.ans.Encode(h.out.Bytes()[off:])
	h.wr[0] = verbs.SendWR{Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: h.out, Off: off, Len: wire.AnswerSize}}
	h.qp.PostSend(h.wr[:])
}
