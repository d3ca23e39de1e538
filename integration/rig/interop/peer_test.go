//go:build linux && cgo && rdma

package interop

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

const patience = 10 * time.Second // of every wait

// end is one end of a connection.
type end struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mr  verbs.MR
}

// newEnd makes a queue pair with so many receives of 1 KiB, and a region that the peer may read and write.
func newEnd(t testing.TB, dev verbs.Device, receives int) *end {
	t.Helper()
	const size = 64 << 10
	e := &end{dev: dev}
	var err error
	e.pd, err = dev.AllocPD()
	check(t, err)
	e.cq, err = dev.CreateCQ(128)
	check(t, err)
	e.qp, err = e.pd.CreateQP(verbs.QPAttr{SendCQ: e.cq, RecvCQ: e.cq, SendDepth: 64, RecvDepth: 64})
	check(t, err)
	e.mr, err = e.pd.RegisterMR(make([]byte, size), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	check(t, err)
	for i := range receives {
		check(t, e.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), Local: e.sge(size/2+i<<10, 1<<10)}}))
	}
	return e
}

func (e *end) close(t testing.TB) {
	t.Helper()
	check(t, e.qp.Close())
	check(t, e.mr.Deregister())
	check(t, e.pd.Close())
	check(t, e.cq.Close())
}

func (e *end) sge(off, n int) verbs.SGE { return verbs.SGE{MR: e.mr, Off: uint64(off), Len: uint64(n)} }

// reap waits for the next completion.
func (e *end) reap(t testing.TB) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		n, err := e.cq.Poll(wc[:])
		check(t, err)
		if n == 1 {
			return wc[0]
		}
		check(t, e.cq.Wait(patience))
	}
}

// accept takes the next connection of l for e.
func (e *end) accept(l verbs.Listener) <-chan error {
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err == nil {
			err = r.Accept(e.qp, nil)
		}
		done <- err
	}()
	return done
}

// join connects a to b, which listens at ip.
func join(t testing.TB, a, b *end, ip string) {
	t.Helper()
	l, err := b.dev.Listen(net.JoinHostPort(ip, "0"))
	check(t, err)
	accepted := b.accept(l)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = a.dev.Connect(ctx, a.qp, l.Addr().String(), nil)
	check(t, err)
	check(t, <-accepted)
	check(t, l.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
