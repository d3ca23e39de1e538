package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

const (
	partSize = 2 << 20
	patience = 20 * time.Second
)

// rig is a target on loopback with one pool set, "p.set", whose pool is not made yet.
type rig struct {
	t    testing.TB
	dir  string
	cfg  *config.Target
	dev  verbs.Device
	srv  *Server
	prep func(*Server) // before the server runs; may be nil
	stop func()        // ends the server and waits; may be called twice
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOver(t, t.TempDir(), iwarp.New(iwarp.Options{}), 0)
}

// newRigOver has its pool in dir, a device, which it closes, and bounce buffers of this size in bytes.
func newRigOver(t testing.TB, dir string, dev verbs.Device, bounce config.Bytes) *rig {
	t.Helper()
	cfg := config.DefaultTarget()
	cfg.Listen, cfg.Fabric, cfg.PoolDir, cfg.Socket = "127.0.0.1:0", "127.0.0.1:0", dir, filepath.Join(dir, "s")
	cfg.Durability = config.Memory // wherever the tests run
	cfg.Bounce = bounce
	r := &rig{t: t, dir: dir, cfg: cfg, dev: dev}
	r.set("p.set", fmt.Sprintf("PMEMPOOLSET\n%d %s\n", partSize, r.part()))
	r.start()
	return r
}

func (r *rig) part() string { return filepath.Join(r.dir, "p.part") }

func (r *rig) set(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) start() {
	r.t.Helper()
	srv, err := Listen(r.cfg, r.dev, quiet())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.prep != nil {
		r.prep(srv)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	stopped := false
	r.srv, r.stop = srv, func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("server: %v", err)
		}
		if err := r.dev.Close(); err != nil {
			r.t.Errorf("the server left something of the device open: %v", err)
		}
	}
	r.t.Cleanup(r.stop)
}

// state is the durable state of the pool, read past the daemon.
func (r *rig) info() pool.Info {
	r.t.Helper()
	set, err := poolset.ParseFile(filepath.Join(r.dir, "p.set"))
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := pool.Inspect(set)
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// lock opens the pool as another user of it.
func (r *rig) lock() *pool.Pool {
	r.t.Helper()
	set, err := poolset.ParseFile(filepath.Join(r.dir, "p.set"))
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := pool.Open(set, pool.OpenOptions{Role: "mount"})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// client is a small initiator.
type client struct {
	t  testing.TB
	nc net.Conn
	id uint32
}

func (r *rig) dial() *client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.srv.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { nc.Close() })
	return &client{t: r.t, nc: nc}
}

type appender interface{ Append([]byte) []byte }

// ask sends a request and returns the body of its answer; a refusal is a *wire.RefusedError. Notices on the way are dropped.
func (c *client) ask(t wire.Type, m appender) ([]byte, error) {
	c.id++
	f := wire.Frame{Type: t, ID: c.id}
	if m != nil {
		f.Body = m.Append(nil)
	}
	c.nc.SetDeadline(time.Now().Add(patience))
	if err := wire.WriteFrame(c.nc, f); err != nil {
		return nil, err
	}
	for {
		a, err := wire.ReadFrame(c.nc)
		switch {
		case err != nil:
			return nil, err
		case a.Type == wire.TypeFenced:
			continue
		case a.Type != t|wire.Answer || a.ID != c.id:
			return nil, fmt.Errorf("answer %v to request %d is %v to %d", a.Type, c.id, t, a.ID)
		case a.Status != wire.StatusOK:
			return nil, wire.Refusal(a)
		}
		return a.Body, nil
	}
}

func (c *client) must(t wire.Type, m appender) []byte {
	c.t.Helper()
	b, err := c.ask(t, m)
	if err != nil {
		c.t.Fatalf("%v: %v", t, err)
	}
	return b
}

func (c *client) state(body []byte) wire.State {
	c.t.Helper()
	var s wire.State
	if err := s.Decode(body); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// create makes the pool as poolID with copyID.
func (c *client) create() wire.State {
	c.t.Helper()
	return c.state(c.must(wire.TypeCreate, &wire.Create{Attr: wire.Attr{PoolUUID: poolID, CopyID: copyID}, Pool: "p.set"}))
}

func claimFor(writer wire.UUID, term uint64) *wire.Claim {
	return &wire.Claim{PoolUUID: poolID, Writer: writer, Term: term, Gen: 7, Lanes: 2, Durability: wire.DurabilityMemory, Methods: wire.AllMethods, Pool: "p.set"}
}

func (c *client) claim(m *wire.Claim) (wire.Grant, error) {
	var g wire.Grant
	b, err := c.ask(wire.TypeClaim, m)
	if err == nil {
		err = g.Decode(b)
	}
	return g, err
}

func (c *client) mustClaim(m *wire.Claim) wire.Grant {
	c.t.Helper()
	g, err := c.claim(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

// setGen gives the copy generation g, as an initiator does after its first full copy.
func (c *client) setGen(session, g uint64) {
	c.t.Helper()
	c.must(wire.TypeSetState, &wire.SetState{Session: session, Gen: g})
}

// link is the initiator's end of a lane. Send buffers are slots of MaxFlush bytes.
type link struct {
	t           testing.TB
	grant       wire.Grant
	dev         verbs.Device
	pd          verbs.PD
	cq          verbs.CQ
	qp          verbs.QP
	mr          verbs.MR
	seq         uint64
	recvs, data uint64 // offsets in mr
	answers     []wire.FlushAnswer
}

const linkSlots = 64

// connect makes lane number of a grant; it may be refused.
func connect(t testing.TB, g wire.Grant, number uint16) (*link, error) {
	return connectPrivate(t, g, (&wire.Private{Lane: number, Session: g.Session}).Append(nil))
}

func connectPrivate(t testing.TB, g wire.Grant, private []byte) (*link, error) {
	t.Helper()
	l := &link{t: t, grant: g, dev: iwarp.New(iwarp.Options{})}
	l.recvs = linkSlots * wire.MaxFlush
	l.data = l.recvs + 2*linkSlots*wire.AnswerSize
	var err error
	check := func(e error) {
		if err = e; err != nil {
			t.Fatal(err)
		}
	}
	l.pd, err = l.dev.AllocPD()
	check(err)
	l.cq, err = l.dev.CreateCQ(1024)
	check(err)
	l.mr, err = l.pd.RegisterMR(make([]byte, l.data+1<<20), verbs.LocalWrite)
	check(err)
	l.qp, err = l.pd.CreateQP(verbs.QPAttr{SendCQ: l.cq, RecvCQ: l.cq, SendDepth: 512, RecvDepth: 2 * linkSlots})
	check(err)
	t.Cleanup(func() { l.qp.Close() })
	for i := range uint64(2 * linkSlots) {
		check(l.postRecv(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = l.dev.Connect(ctx, l.qp, g.Fabric, private)
	return l, err
}

func mustConnect(t testing.TB, g wire.Grant) *link {
	t.Helper()
	l, err := connect(t, g, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *link) postRecv(i uint64) error {
	sge := verbs.SGE{MR: l.mr, Off: l.recvs + i*wire.AnswerSize, Len: wire.AnswerSize}
	return l.qp.PostRecv([]verbs.RecvWR{{ID: i, Local: sge}})
}

// write places b at pool offset off, within one chunk.
func (l *link) write(off uint64, b []byte) error {
	copy(l.mr.Bytes()[l.data:], b)
	addr, rkey := l.grant.At(off)
	return l.qp.PostSend([]verbs.SendWR{{Op: verbs.OpWrite, Signaled: true, RKey: rkey,
		Local: verbs.SGE{MR: l.mr, Off: l.data, Len: uint64(len(b))}, RemoteAddr: addr}})
}

// send sends a request without waiting for an answer. edit may spoil its bytes.
func (l *link) send(m *wire.Flush, edit func([]byte) []byte) error {
	slot := l.seq % linkSlots * wire.MaxFlush
	l.seq++
	m.Seq = l.seq
	buf := l.mr.Bytes()[slot : slot+wire.MaxFlush]
	n := m.Encode(buf)
	if edit != nil {
		n = len(edit(buf[:n]))
	}
	return l.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: l.mr, Off: slot, Len: uint64(n)}}})
}

// answer waits for the next answer.
func (l *link) answer() (wire.FlushAnswer, error) {
	var wcs [16]verbs.WC
	deadline := time.Now().Add(patience)
	for len(l.answers) == 0 {
		n, err := l.cq.Poll(wcs[:])
		if err != nil {
			return wire.FlushAnswer{}, err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.StatusOK {
				return wire.FlushAnswer{}, &verbs.WCError{Op: wc.Op, Status: wc.Status, Cause: l.qp.Err()}
			}
			if wc.Op != verbs.OpRecv {
				continue
			}
			var a wire.FlushAnswer
			if err := a.Decode(l.mr.Bytes()[l.recvs+wc.ID*wire.AnswerSize:][:wc.Len]); err != nil {
				return a, err
			}
			l.answers = append(l.answers, a)
			if err := l.postRecv(wc.ID); err != nil {
				return a, err
			}
		}
		if time.Now().After(deadline) {
			return wire.FlushAnswer{}, errors.New("no answer")
		}
		if n == 0 {
			_ = l.cq.Wait(100 * time.Millisecond)
		}
	}
	a := l.answers[0]
	l.answers = l.answers[1:]
	return a, nil
}

// flush sends a request and waits for its answer.
func (l *link) flush(seal pmem.Seal, rs ...pmem.Range) (wire.FlushAnswer, error) {
	if err := l.send(&wire.Flush{Session: l.grant.Session, Answer: true, Seal: seal, Ranges: rs}, nil); err != nil {
		return wire.FlushAnswer{}, err
	}
	return l.answer()
}

func (l *link) mustFlush(want wire.FlushStatus, seal pmem.Seal, rs ...pmem.Range) wire.FlushAnswer {
	l.t.Helper()
	a, err := l.flush(seal, rs...)
	if err != nil || a.Status != want || a.Seq != l.seq {
		l.t.Fatalf("flush %v %v: answer %+v, %v; want status %d, seq %d", rs, seal, a, err, want, l.seq)
	}
	return a
}
