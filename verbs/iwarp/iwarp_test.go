package iwarp

import (
	"context"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// peer is one side of a test connection.
type peer struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

func newPeer(t testing.TB, o Options, size int) *peer {
	t.Helper()
	p := &peer{dev: New(o), mem: make([]byte, size)}
	var err error
	p.pd, err = p.dev.AllocPD()
	check(t, err)
	p.cq, err = p.dev.CreateCQ(256)
	check(t, err)
	p.qp, err = p.pd.CreateQP(verbs.QPAttr{SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 128, RecvDepth: 128})
	check(t, err)
	p.mr, err = p.pd.RegisterMR(p.mem, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	check(t, err)
	t.Cleanup(func() {
		check(t, p.qp.Close())
		if p.mr != nil {
			check(t, p.mr.Deregister())
		}
		check(t, p.pd.Close())
		check(t, p.cq.Close())
		check(t, p.dev.Close())
	})
	return p
}

// connect connects a to b.
func connect(t testing.TB, a, b *peer) {
	t.Helper()
	l, err := b.dev.Listen("127.0.0.1:0")
	check(t, err)
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err == nil {
			err = r.Accept(b.qp, []byte("answer"))
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	private, err := a.dev.Connect(ctx, a.qp, l.Addr().String(), []byte("request"))
	check(t, err)
	check(t, <-accepted)
	if string(private) != "answer" {
		t.Fatalf("private data of the answer: %q", private)
	}
	check(t, l.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reap waits for one completion.
func (p *peer) reap(t testing.TB) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		n, err := p.cq.Poll(wc[:])
		check(t, err)
		if n == 1 {
			return wc[0]
		}
		check(t, p.cq.Wait(5*time.Second))
	}
}

func (p *peer) sge(off, n uint64) verbs.SGE { return verbs.SGE{MR: p.mr, Off: off, Len: n} }

func TestWriteThenSend(t *testing.T) {
	for _, crc := range []bool{false, true} {
		a, b := newPeer(t, Options{CRC: crc}, 1<<20), newPeer(t, Options{}, 1<<20)
		check(t, b.qp.PostRecv([]verbs.RecvWR{{ID: 7, Local: b.sge(0, 64)}}))
		connect(t, a, b)
		for i := range a.mem {
			a.mem[i] = byte(i * 7)
		}
		check(t, a.qp.PostSend([]verbs.SendWR{
			{ID: 1, Op: verbs.OpWrite, Local: a.sge(100, 500_001), RemoteAddr: b.mr.Addr() + 1000, RKey: b.mr.RKey()},
			{ID: 2, Op: verbs.OpSend, Signaled: true, Local: a.sge(0, 48)},
		}))
		if wc := a.reap(t); wc.Status != verbs.StatusOK || wc.ID != 2 {
			t.Fatalf("completion %+v, %v", wc, a.qp.Err())
		}
		if wc := b.reap(t); wc.Status != verbs.StatusOK || wc.ID != 7 || wc.Len != 48 {
			t.Fatalf("completion %+v, %v", wc, b.qp.Err())
		}
		for i, v := range b.mem[1000 : 1000+500_001] {
			if v != a.mem[100+i] {
				t.Fatalf("byte %d differs", i)
			}
		}
	}
}
