package iwarp

import (
	"errors"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// receive is the receiver goroutine: it receives while no waiter does, and it ends the connection.
func (q *qp) receive() {
	defer close(q.done)
	go q.serve()
	for {
		q.turn.await()
		if f := q.onDuty(); f != nil {
			q.end(*f)
			return
		}
		q.turn.yield()
		q.waits.Nudge()
	}
}

// onDuty receives until a waiter asks for the turn, which gives nil, or until the connection has to end.
func (q *qp) onDuty() *failure {
	x := &q.rx
	for x.failed == nil {
		if q.rearm() {
			return x.ended(os.ErrDeadlineExceeded)
		}
		if q.turn.wanted() {
			return nil
		}
		for x.advance(x.fill()) {
		}
	}
	return x.failed
}

// rearm sets the receiver's read deadline: none, or the end of the farewell after a write that failed. It returns true if the
// connection has to end now. It has the lock, so no interruption by fail, lose or Close gets lost.
func (q *qp) rearm() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stream.expire(q.last)
	return q.state != stateConnected || !q.last.IsZero() && !time.Now().Before(q.last)
}

// Take implements cq.Source.
func (q *qp) Take() bool {
	ok, ask := q.turn.take()
	if ask {
		q.stream.interrupt()
	}
	return ok
}

// Interrupt implements cq.Source.
func (q *qp) Interrupt() { q.stream.interrupt() }

// Receive implements cq.Source. A deadline that an earlier call has set is kept if it comes first: setting it for every message
// would cost more than being woken once too often.
func (q *qp) Receive(c *cq.Queue, until time.Time) {
	x := &q.rx
	set := q.stream.limit.IsZero() || q.stream.limit.After(until)
	for x.failed == nil {
		if set {
			q.stream.expire(until)
			if q.turn.ending() || !time.Now().Before(until) {
				break
			}
		}
		if !c.Block() {
			break
		}
		err := x.fill()
		c.Unblock()
		set = !x.advance(err)
	}
	if x.failed != nil {
		q.turn.finish()
	}
	q.turn.give(!x.idle())
}

// advance takes what fill has read. It returns false if there was nothing to read before the deadline, or if the connection has
// to end, which failed then says.
func (x *rx) advance(err error) bool {
	switch {
	case err == nil:
		x.failed = x.parse()
	case !errors.Is(err, os.ErrDeadlineExceeded):
		x.failed = x.broken(err)
	}
	return err == nil && x.failed == nil
}
