package verbstest

import (
	"context"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

const (
	patience = 10 * time.Second // of every wait of the suite
	depth    = 64               // of every queue
	allRight = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead
)

// side is one end of a connection under test.
type side struct {
	dev verbs.Device
	pd  verbs.PD
	scq verbs.CQ
	rcq verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

// newSide makes an unconnected queue pair and a region of size bytes with all rights. The end of the test checks that
// everything can be closed.
func newSide(t testing.TB, dev verbs.Device, size int) *side {
	t.Helper()
	s := &side{dev: dev, mem: make([]byte, size)}
	s.pd = must(dev.AllocPD())(t)
	s.scq = must(dev.CreateCQ(depth))(t)
	s.rcq = must(dev.CreateCQ(depth))(t)
	s.qp = must(s.pd.CreateQP(verbs.QPAttr{SendCQ: s.scq, RecvCQ: s.rcq, SendDepth: depth, RecvDepth: depth}))(t)
	s.mr = s.region(t, s.mem, allRight)
	t.Cleanup(func() {
		check(t, s.qp.Close())
		s.drop(t, s.mr)
		check(t, s.pd.Close())
		check(t, s.scq.Close())
		check(t, s.rcq.Close())
	})
	return s
}

func (s *side) region(t testing.TB, b []byte, a verbs.Access) verbs.MR {
	t.Helper()
	return must(s.pd.RegisterMR(b, a))(t)
}

func (s *side) drop(t testing.TB, m verbs.MR) {
	t.Helper()
	check(t, m.Deregister())
}

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{MR: s.mr, Off: uint64(off), Len: uint64(n)}
}

// write is a Write of n bytes from offset from of s to offset to of o.
func (s *side) write(id uint64, from, n int, o *side, to int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpWrite, Signaled: true, Local: s.sge(from, n), RemoteAddr: o.mr.Addr() + uint64(to), RKey: o.mr.RKey()}
}

// read is a Read of n bytes from offset from of o to offset to of s.
func (s *side) read(id uint64, to, n int, o *side, from int) verbs.SendWR {
	wr := s.write(id, to, n, o, from)
	wr.Op = verbs.OpRead
	return wr
}

func (s *side) send(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpSend, Signaled: true, Local: s.sge(off, n)}
}

func (s *side) post(t testing.TB, wrs ...verbs.SendWR) {
	t.Helper()
	check(t, s.qp.PostSend(wrs))
}

func (s *side) postRecv(t testing.TB, id uint64, off, n int) {
	t.Helper()
	check(t, s.qp.PostRecv([]verbs.RecvWR{{ID: id, Local: s.sge(off, n)}}))
}

// next waits for the next completion.
func next(t testing.TB, q verbs.CQ) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		if n, err := q.Poll(wc[:]); err != nil || n == 1 {
			check(t, err)
			return wc[0]
		}
		check(t, q.Wait(patience))
	}
}

// good waits for the next completion, which must be a success of work request id.
func good(t testing.TB, q verbs.CQ, id uint64) verbs.WC {
	t.Helper()
	wc := next(t, q)
	if wc.Status != verbs.StatusOK || wc.ID != id {
		t.Fatalf("%v of work request %d: %v (%v); want success of %d", wc.Op, wc.ID, wc.Status, wc.QP.Err(), id)
	}
	return wc
}

// silent checks that no completion is there.
func silent(t testing.TB, q verbs.CQ) {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := q.Poll(wc[:]); n != 0 || err != nil {
		t.Fatalf("one more completion than expected: %+v, %v", wc[0], err)
	}
}

// failed waits for the first completion of q that is not a success, and checks that the n-1 that follow are flushed.
func failed(t testing.TB, q verbs.CQ, n int) verbs.WC {
	t.Helper()
	first := next(t, q)
	for first.Status == verbs.StatusOK {
		first = next(t, q)
		n--
	}
	for range n - 1 {
		if wc := next(t, q); wc.Status != verbs.StatusFlushed {
			t.Fatalf("%v of work request %d: %v; want flushed", wc.Op, wc.ID, wc.Status)
		}
	}
	silent(t, q)
	return first
}

// join connects a to b, with the private data that go with it.
func join(t testing.TB, a, b *side, addr string) {
	t.Helper()
	l := must(b.dev.Listen(addr))(t)
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err == nil {
			err = r.Accept(b.qp, nil)
		}
		done <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := a.dev.Connect(ctx, a.qp, l.Addr().String(), nil)
	check(t, err)
	check(t, <-done)
	check(t, l.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must unwraps a result, or fails the test that it is then given.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}
