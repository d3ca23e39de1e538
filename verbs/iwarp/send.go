package iwarp

import (
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// PostSend encodes the batch and hands it to the socket. Errors of the connection come as completions.
func (q *qp) PostSend(wrs []verbs.SendWR) error {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if err := q.enqueue(wrs); err != nil {
		return err
	}
	q.push()
	return nil
}

// enqueue checks the batch and appends it to the send queue, or does nothing.
func (q *qp) enqueue(wrs []verbs.SendWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return verbs.ErrClosed
	case q.state < stateConnected:
		return errNotConnected
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return fmt.Errorf("iwarp: post %v (work request %d): %w", wrs[i].Op, wrs[i].ID, err)
		}
	}
	if !q.sends.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	for i := range wrs {
		e := q.sq.at(q.sq.tail)
		*e = sendEntry{wr: wrs[i]}
		e.mr, _ = wrs[i].Local.MR.(*mr)
		q.sq.tail++
	}
	if q.state == stateEnded {
		q.flush()
	}
	return nil
}

func (q *qp) checkSend(wr *verbs.SendWR) error {
	if wr.Inline && (wr.Op == verbs.OpRead || wr.Local.Len > 0) {
		return fmt.Errorf("inline data: %w", verbs.ErrUnsupported)
	}
	var need verbs.Access
	switch wr.Op {
	case verbs.OpWrite, verbs.OpSend:
	case verbs.OpRead:
		if q.state == stateConnected && q.ord == 0 {
			return fmt.Errorf("the peer accepts no Reads: %w", verbs.ErrUnsupported)
		}
		need = verbs.LocalWrite
	default:
		return verbs.ErrUnsupported
	}
	_, err := local(q.pd, wr.Local, need)
	return err
}

// push starts all work requests that may be started. The caller holds tx.mu.
func (q *qp) push() {
	from, to := uint64(0), uint64(0)
	for !q.tx.broken {
		e, i := q.startNext()
		if e == nil {
			break
		}
		if to == 0 {
			from, to = i, i
		}
		if !q.encode(e, i) {
			break
		}
		to = i + 1
	}
	if q.tx.flush() {
		q.sent(from, to)
	}
}

func (q *qp) startNext() (*sendEntry, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateConnected || q.gated {
		return nil, 0
	}
	return q.sq.start(q.ord)
}

// encode puts one work request into the encoder. The entry is not changed by others before it is done. It returns false if
// the queue pair failed.
func (q *qp) encode(e *sendEntry, i uint64) bool {
	wr := &e.wr
	switch wr.Op {
	case verbs.OpWrite:
		h := header{tagged: true, op: opWrite, stag: wr.RKey, to: wr.RemoteAddr}
		return q.tx.message(&h, e.mr, wr.Local.Off, wr.Local.Len, i)
	case verbs.OpSend:
		h := header{op: opSend, queue: queueSend, msn: q.tx.nextMSN(queueSend)}
		return q.tx.message(&h, e.mr, wr.Local.Off, wr.Local.Len, i)
	default: // OpRead
		r := readReq{size: uint32(wr.Local.Len), srcSTag: wr.RKey, srcTO: wr.RemoteAddr}
		r.sinkSTag, r.sinkTO = e.sink()
		return q.tx.readRequest(&r)
	}
}

// sink is the steering tag and tagged offset that the response of a Read starts with.
func (e *sendEntry) sink() (uint32, uint64) {
	if e.mr == nil {
		return 0, 0
	}
	return e.mr.stag, e.mr.base + e.wr.Local.Off
}

// sent marks the Writes and Sends in [from, to) as done: TCP has their bytes.
func (q *qp) sent(from, to uint64) {
	if from == to {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := from; i < to; i++ {
		if e := q.sq.at(i); e.wr.Op != verbs.OpRead {
			e.done = true
		}
	}
	q.retire()
}

// serve is the server goroutine: it sends what neither the receiver nor PostSend may wait for.
func (q *qp) serve() {
	defer close(q.serverDone)
	wait := firstReady
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		select {
		case <-q.stop:
			return
		case <-again.C:
			if q.silentPeer() {
				q.sayReady()
				wait = min(2*wait, lastReady)
				again.Reset(wait)
			}
			continue
		case <-q.kick:
		}
		q.tx.mu.Lock()
		for q.answer() {
		}
		q.push()
		q.tx.mu.Unlock()
	}
}

// silentPeer tells whether an initiator waits for its peer's first frame.
func (q *qp) silentPeer() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unheard && q.state == stateConnected
}

// wakeServer tells the server that there is something to send.
func (q *qp) wakeServer() {
	select {
	case q.kick <- struct{}{}:
	default: // a token is there, and the server looks at everything when it takes it
	}
}

// answer sends the response to the oldest Read of the peer. It returns false if there is none. The caller holds tx.mu.
func (q *qp) answer() bool {
	q.mu.Lock()
	if q.state != stateConnected || q.inbound.head == q.inbound.tail {
		q.mu.Unlock()
		return false
	}
	// The place is free before the response is out: with the last byte of that the peer may send its next Read.
	r := *q.inbound.at(q.inbound.head)
	*q.inbound.at(q.inbound.head) = inboundRead{}
	q.inbound.head++
	q.mu.Unlock()

	h := header{tagged: true, op: opReadResp, stag: r.req.sinkSTag, to: r.req.sinkTO}
	return q.tx.message(&h, r.mr, r.off, uint64(r.req.size), noOwner) && q.tx.flush()
}
