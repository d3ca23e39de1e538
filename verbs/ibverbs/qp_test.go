//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// bare is a queue pair of two sends and two receives without a device's.
func bare(t *testing.T) (*qp, *cq.Queue) {
	c, err := cq.New(4)
	if err != nil {
		t.Fatal(err)
	}
	d := newDevice()
	queue := &completionQueue{Queue: c, dev: d, gone: true}
	q := &qp{dev: d, pd: &pd{dev: d}, scq: queue, rcq: queue, broken: make(chan struct{}, 1)}
	q.life, q.end = context.WithCancel(t.Context())
	if q.sq, err = newQueue(c, 2); err == nil {
		q.rq, err = newQueue(c, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	return q, c
}

// A queue pair that could not be made anew after a connection that did not come about has no C memory left. Its receives end, and so do later
// requests, which touch none.
func TestBereaved(t *testing.T) {
	q, c := bare(t)
	q.state = stateConnecting
	q.rq.account.Take(1)
	*q.rq.at(0) = request{id: 1, op: verbs.OpRecv, signaled: true, reported: true}
	q.rq.tail, q.rq.device = 1, 1

	cause := errors.New("no memory")
	q.bereave(cause)
	if err := q.PostRecv([]verbs.RecvWR{{ID: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := q.PostSend([]verbs.SendWR{{ID: 3, Op: verbs.OpSend, Signaled: true}}); err != nil {
		t.Fatal(err)
	}
	var wcs [4]verbs.WC
	n, err := c.Poll(wcs[:])
	if err != nil || n != 3 {
		t.Fatalf("%d completions, %v", n, err)
	}
	for i, want := range []verbs.Status{verbs.StatusTransport, verbs.StatusFlushed, verbs.StatusFlushed} {
		if w := wcs[i]; w.Status != want || w.ID != uint64(i+1) {
			t.Errorf("completion %d is %+v, want %v", i, w, want)
		}
	}
	if !errors.Is(q.Err(), cause) {
		t.Errorf("cause %v", q.Err())
	}
}

// siw completes a Write before a Read in front of it. When that fails, the Write has not succeeded either.
func TestNothingSucceedsBehindAFailure(t *testing.T) {
	const flushed = 5 // IBV_WC_WR_FLUSH_ERR
	q, c := bare(t)
	q.state = stateConnected
	q.sq.account.Take(2)
	*q.sq.at(0) = request{id: 1, op: verbs.OpRead, signaled: true, reported: true, done: true, status: flushed}
	*q.sq.at(1) = request{id: 2, op: verbs.OpWrite, signaled: true, reported: true, done: true}
	q.sq.tail, q.sq.device = 2, 2
	q.retire(&q.sq)
	q.retire(&q.sq)
	var wcs [4]verbs.WC
	n, err := c.Poll(wcs[:])
	if err != nil || n != 2 {
		t.Fatalf("%d completions, %v", n, err)
	}
	for i, want := range []verbs.Status{verbs.StatusPeer, verbs.StatusFlushed} {
		if w := wcs[i]; w.Status != want || w.ID != uint64(i+1) {
			t.Errorf("completion %d is %+v, want %v", i, w, want)
		}
	}
}

// Close calls a connection in the making off, and does not free what that uses before it has ended.
func TestCloseWaitsForAnAttempt(t *testing.T) {
	q, _ := bare(t)
	if err := q.begin(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	select {
	case <-q.life.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the attempt is not called off")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed under an attempt: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	q.attempts.Done()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := q.begin(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("an attempt after Close: %v", err)
	}
}

// An attempt that the kernel holds up does not hold Close up: queue pair and protection domain are freed when it ends, and Close of the device waits for that.
func TestCloseLeavesAnAttemptBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bare(t)
		q.pd.refs.Add(1)
		q.pd.hold()
		if err := q.begin(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := q.Close(); err != nil || time.Since(begun) != closePatience {
			t.Errorf("Close: %v, after %v", err, time.Since(begun))
		}
		if n := q.pd.refs.Load(); n != 0 || q.pd.pairs != 1 {
			t.Errorf("%d open and %d kept queue pairs", n, q.pd.pairs)
		}
		if err := q.dev.Close(); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("Close of the device: %v", err)
		}
		q.attempts.Done()
		if !q.dev.settled() || q.pd.pairs != 0 {
			t.Errorf("the queue pair is not freed: %d are kept", q.pd.pairs)
		}
	})
}

// What the peer offers bounds the Reads of this side, not what it asks for.
func TestInitiatorLimit(t *testing.T) {
	for _, c := range []struct{ asks, offers, want int }{{16, 4, 4}, {1, 8, 8}, {4, 32, 16}, {4, 0, 16}} {
		if n := (event{responder: c.asks, initiator: c.offers}).initiatorLimit(16); n != c.want {
			t.Errorf("a peer that asks for %d and offers %d: %d", c.asks, c.offers, n)
		}
	}
}

// A region of which a device only reads is not fetched for writing.
func TestStores(t *testing.T) {
	for a, want := range map[verbs.Access]bool{
		0: false, verbs.RemoteRead: false, verbs.RemoteRead | verbs.OnDemand: false, verbs.RemoteFlush | verbs.RemoteRead: false,
		verbs.LocalWrite: true, verbs.RemoteWrite: true, verbs.LocalWrite | verbs.RemoteRead | verbs.OnDemand: true,
	} {
		for _, d := range []*device{{}, {iwarp: true}, {iwarp: true, siw: true}} {
			if d.stores(a) != want {
				t.Errorf("rights %b, iWARP %v: not %v", a, d.iwarp, want)
			}
		}
	}
}

// Only an iWARP adapter is not taken to place Writes in order.
func TestOrdered(t *testing.T) {
	for _, c := range []struct{ iwarp, siw, want bool }{{false, false, true}, {true, true, true}, {true, false, false}} {
		if d := (&device{iwarp: c.iwarp, siw: c.siw}); d.ordered() != c.want {
			t.Errorf("iWARP %v, siw %v: not %v", c.iwarp, c.siw, c.want)
		}
	}
}

// A connection without a deadline gets one; another deadline stays.
func TestBounded(t *testing.T) {
	begun := time.Now()
	ctx, cancel := bounded(t.Context())
	defer cancel()
	if at, ok := ctx.Deadline(); !ok || at.After(time.Now().Add(setupTimeout)) || at.Before(begun.Add(setupTimeout)) {
		t.Errorf("deadline %v, %v", at, ok)
	}
	long, stop := context.WithTimeout(t.Context(), 6*setupTimeout)
	defer stop()
	want, _ := long.Deadline()
	ctx, cancel = bounded(long)
	defer cancel()
	if at, ok := ctx.Deadline(); !ok || !at.Equal(want) {
		t.Errorf("deadline %v, want %v", at, want)
	}
}
