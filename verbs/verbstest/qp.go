package verbstest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

type state uint8

const (
	stateIdle state = iota
	stateConnected
	stateFailed
)

// qp implements verbs.QP.
type qp struct {
	pd     *pd
	sends  *cq.Account
	recvs  *cq.Account
	peer   *qp
	state  state
	closed bool
	sq     []request // not over, oldest first
	rq     []verbs.RecvWR
	posted uint64   // work requests so far
	flight []flight // placed at the peer and not known to be persistent; see persist.go

	err    error
	status verbs.Status // of the completion with the cause
	told   bool         // that completion was made, or there is none to make
}

// victim is the work request that gets the cause.
type victim uint8

const (
	unknown victim = iota // the oldest send, else the oldest receive
	firstSend
	firstRecv
)

func (q *qp) unused() error {
	switch {
	case q.closed:
		return verbs.ErrClosed
	case q.state != stateIdle:
		return errors.New("verbstest: the queue pair has a connection or had one: make a new one")
	}
	return nil
}

func (q *qp) PostSend(wrs []verbs.SendWR) error {
	f := q.pd.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case q.closed:
		return verbs.ErrClosed
	case q.state == stateIdle:
		return errors.New("verbstest: the queue pair is not connected")
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return fmt.Errorf("verbstest: post %v (work request %d): %w", wrs[i].Op, wrs[i].ID, err)
		}
	}
	if !q.sends.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	for i := range wrs {
		q.append(&wrs[i])
		if q.state == stateConnected {
			f.order = append(f.order, q)
		}
	}
	if q.state == stateFailed {
		q.flush(unknown)
	}
	q.retire()
	for f.auto && f.step() {
	}
	return nil
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) error {
	f := q.pd.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	for i := range wrs {
		if err := q.pd.checkLocal(wrs[i].Local, verbs.LocalWrite); err != nil {
			return fmt.Errorf("verbstest: post receive (work request %d): %w", wrs[i].ID, err)
		}
	}
	if !q.recvs.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	q.rq = append(q.rq, wrs...)
	if q.state == stateFailed {
		q.flush(unknown)
	}
	return nil
}

// fail puts q into the error state.
func (q *qp) fail(s verbs.Status, err error, v victim) {
	if q.state == stateFailed {
		return
	}
	q.state, q.status, q.err = stateFailed, s, err
	q.flush(v)
}

// flush completes everything outstanding, the cause first.
func (q *qp) flush(v victim) {
	q.pd.dev.fabric.forget(q, true)
	if !q.told {
		q.tell(v)
	}
	for i := range q.sq {
		if !q.sq[i].told {
			q.sends.Complete(q.sendWC(i, verbs.StatusFlushed))
		}
	}
	for i := range q.rq {
		q.recvs.Complete(q.recvWC(i, verbs.StatusFlushed))
	}
	q.sq, q.rq = nil, nil
}

// tell completes one work request with the cause, if there is one.
func (q *qp) tell(v victim) {
	i := slices.IndexFunc(q.sq, func(r request) bool { return !r.told })
	switch {
	case v != firstRecv && i >= 0:
		q.sends.Complete(q.sendWC(i, q.status))
		q.sq = slices.Delete(q.sq, i, i+1)
	case len(q.rq) > 0:
		q.recvs.Complete(q.recvWC(0, q.status))
		q.rq = slices.Delete(q.rq, 0, 1)
	default:
		return
	}
	q.told = true
}

func (q *qp) sendWC(i int, s verbs.Status) verbs.WC {
	wr := &q.sq[i]
	return verbs.WC{ID: wr.ID, Op: wr.Op, Status: s, QP: q}
}

func (q *qp) recvWC(i int, s verbs.Status) verbs.WC {
	return verbs.WC{ID: q.rq[i].ID, Op: verbs.OpRecv, Status: s, QP: q}
}

func (q *qp) Err() error {
	q.pd.dev.fabric.mu.Lock()
	defer q.pd.dev.fabric.mu.Unlock()
	return q.err
}

// Close ends the connection; the peer sees it as StatusPeer.
func (q *qp) Close() error {
	f := q.pd.dev.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	if q.state == stateConnected {
		q.peer.fail(verbs.StatusPeer, errors.New("verbstest: the peer closed the connection"), unknown)
	}
	if q.state != stateFailed {
		q.told = true
		q.fail(verbs.StatusFlushed, verbs.ErrClosed, unknown)
	}
	q.sends.Close()
	q.recvs.Close()
	q.pd.refs--
	return nil
}
