//go:build linux && cgo

package ibverbs

import (
	"errors"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// A queue pair that could not be made anew after a connection that did not come about has no C memory left. Its receives end, and so do later
// requests, which touch none.
func TestBereaved(t *testing.T) {
	c, err := cq.New(4)
	if err != nil {
		t.Fatal(err)
	}
	q := &qp{dev: &device{}, broken: make(chan struct{}, 1)}
	if q.sq, err = newQueue(c, 2); err == nil {
		q.rq, err = newQueue(c, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
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
