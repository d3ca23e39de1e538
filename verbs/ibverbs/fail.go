//go:build linux && cgo

package ibverbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

const (
	// lastWords is how long an answer may take that was on its way when the queue pair failed: that of the peer to a request that it
	// refused before it left, for the device takes none once it is told to flush, or that of this side, which the news that it leaves
	// must not overtake.
	lastWords = 250 * time.Millisecond
	// flushPatience is how long the device may take to flush the queues of a failed queue pair.
	flushPatience = 200 * time.Millisecond
)

// errFlushed is the cause where the device flushes the queues before anything says why. Over TCP that is a connection that ended or a
// Terminate, whose content the device keeps to itself.
var errFlushed = errors.New("the connection ended, by the peer or by a fault that the device does not tell")

// lose fails the queue pair from outside of a completion. The device may know a better cause: what it has completed comes first.
func (q *qp) lose(status verbs.Status, cause error) {
	q.scq.reap()
	q.rcq.reap()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == stateConnected {
		q.fail(status, cause)
	}
}

// fail puts the queue pair into the error state. The lock is held. What the device has not got yet is flushed here, behind what it has.
func (q *qp) fail(status verbs.Status, cause error) {
	if q.state == stateFailed || q.state == stateClosed {
		return
	}
	q.state, q.status, q.cause = stateFailed, status, cause
	q.detachQueues()
	select {
	case q.broken <- struct{}{}:
	default:
	}
}

// detachQueues keeps new requests from the device. The lock is held.
func (q *qp) detachQueues() {
	q.sq.device, q.rq.device = q.sq.tail, q.rq.tail
}

// watch takes a failed connection down: the peer gets to know, and the device flushes the queues.
func (q *qp) watch() {
	if !q.awaitFailure() || !q.pause(lastWords) {
		return
	}
	C.shim_qp_error(q.c)         // an error means that it is in this state, or that the device is gone
	C.shim_cm_disconnect(q.id.c) // an error means that it is disconnected
	if !q.pause(flushPatience) {
		return
	}
	q.scq.reap()
	q.rcq.reap()
	q.abandon()
}

// pause returns false if Close came before the end of d.
func (q *qp) pause(d time.Duration) bool {
	select {
	case <-q.life.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// abandon flushes what the device has not flushed. Completions that it still makes find nothing any more.
func (q *qp) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flushAll()
}

// flushAll flushes what is outstanding. The lock is held.
func (q *qp) flushAll() {
	q.sq.device, q.rq.device = q.sq.head, q.rq.head
	q.settle()
}

// settle flushes the requests behind those of the device, once that has completed its own. The lock is held, and the queue pair
// has failed or is closed.
func (q *qp) settle() {
	for _, k := range []*queue{&q.sq, &q.rq} {
		if k.head != k.device {
			continue
		}
		for !k.empty() {
			q.flush(k)
			k.device = k.head
		}
	}
}

// flush completes the oldest request of k as flushed, or with the cause if it is the one to tell it. The lock is held.
func (q *qp) flush(k *queue) {
	wc := verbs.WC{Status: verbs.StatusFlushed}
	if !q.told && (k == &q.sq || q.sq.empty()) {
		q.told = true
		wc.Status = q.status
	}
	q.finish(k, wc)
}

// finish completes the oldest request of k. The lock is held.
func (q *qp) finish(k *queue, wc verbs.WC) {
	r := k.at(k.head)
	k.head++
	wc.ID, wc.Op, wc.QP = r.id, r.op, q
	k.account.Complete(wc)
}

// complete is told by the device that request seq is done, and with it the unsignaled ones before it.
func (q *qp) complete(recv bool, seq uint32, w *C.struct_shim_wc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := &q.sq
	if recv {
		k = &q.rq
	}
	if !k.holds(seq) {
		return // flushed here already
	}
	if q.state == stateConnecting && w.status != C.IBV_WC_SUCCESS {
		return // an attempt that fails: rewind posts the receive again
	}
	r := k.at(seq)
	r.done, r.status, r.vendor = true, w.status, w.vendor
	if recv && w.status == C.IBV_WC_SUCCESS {
		r.len = uint32(w.len)
	}
	if recv || r.op == verbs.OpRead {
		q.answered = true
	}
	// Those before it are done if they are not reported themselves. Only siw reports a Write before an earlier Read.
	for s := k.head; s != seq; s++ {
		if e := k.at(s); !e.reported {
			e.done = true
		}
	}
	for !k.empty() && k.at(k.head).done {
		q.retire(k)
	}
	if q.state >= stateFailed {
		q.settle()
	}
}

// retire gives back the oldest request of k, which is done. The lock is held.
func (q *qp) retire(k *queue) {
	switch r := k.at(k.head); {
	case r.status != C.IBV_WC_SUCCESS:
		q.retireFailed(k, r)
	case k.failed: // siw has completed a Write before a Read in front of it, which failed
		q.flush(k)
	case !r.signaled:
		k.head++
		k.account.Skip()
	case r.op == verbs.OpRecv || r.op == verbs.OpRead:
		q.finish(k, verbs.WC{Len: r.len})
	default:
		q.finish(k, verbs.WC{})
	}
}

func (q *qp) retireFailed(k *queue, r *request) {
	k.failed = true
	status, cause := statusOf(r.op, r.status, r.vendor)
	if status == verbs.StatusFlushed {
		q.fail(verbs.StatusPeer, errFlushed)
		q.flush(k)
		return
	}
	cause = fmt.Errorf("ibverbs: %v: %w", r.op, cause)
	q.fail(status, cause)
	switch {
	case q.told:
		status = verbs.StatusFlushed
	case q.state == stateFailed: // this tells more than an event that came first
		q.told, q.status, q.cause = true, status, cause
	}
	q.finish(k, verbs.WC{Status: status})
}
