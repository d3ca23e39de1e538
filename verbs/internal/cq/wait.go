package cq

import (
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// Source is a connection whose receiving side a Wait can work itself. That saves the hand-over between a goroutine that
// receives and the one that waits, which costs more than everything else on the way of a small message.
type Source interface {
	// Take asks for the right to receive. If the answer is no, Nudge is called when it is worth asking again. It is called
	// with the lock of the Queue held.
	Take() bool
	// Receive is called after Take, and ends the right to receive. It takes what arrives until Block says no, until the
	// deadline, or until the source has another use for the right. Between Block and Unblock it may sleep, and must not complete
	// anything.
	Receive(q *Queue, until time.Time)
	// Interrupt makes a Receive that sleeps, or is about to, call Unblock and then Block again. It is called with the
	// lock of the Queue held.
	Interrupt()
}

// minDrive is the shortest Wait that receives for a Source. One without time to receive anything could keep others from it.
const minDrive = time.Millisecond

// Attach makes s the source of the queue, unless it has one. A Wait under way gets to know it.
func (q *Queue) Attach(s Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.source == nil {
		q.source = s
		q.signal()
	}
}

// Detach ends that. A Receive under way goes on.
func (q *Queue) Detach(s Source) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.source == s {
		q.source = nil
	}
}

// Nudge makes a Wait under way look again whether it can receive.
func (q *Queue) Nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.signal()
}

// Block is called by a Receive before it sleeps. If it returns false, the Wait is over. If it returns true, the next completion calls
// Interrupt.
func (q *Queue) Block() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = q.len == 0 && !q.closed
	return q.waiting
}

// Unblock is called after the sleep.
func (q *Queue) Unblock() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = false
}

// Wait returns nil when a completion may be there, ErrTimeout after d, or ErrClosed.
func (q *Queue) Wait(d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.len > 0 || q.closed {
		return q.state()
	}
	for until := time.Now().Add(d); d > 0; d = time.Until(until) {
		if d >= minDrive && q.source != nil && q.source.Take() {
			q.drive(until)
		} else {
			q.sleep(d)
		}
		if q.len > 0 || q.closed {
			break
		}
	}
	return q.state()
}

// drive receives for the source. The lock is held, but not meanwhile.
func (q *Queue) drive(until time.Time) {
	s := q.source
	q.driven = s
	q.mu.Unlock()
	s.Receive(q, until)
	q.mu.Lock()
	q.driven = nil
}

// sleep waits for a signal. The lock is held, but not meanwhile.
func (q *Queue) sleep(d time.Duration) {
	select { // a token that a timed-out sleep left behind
	case <-q.wake:
	default:
	}
	q.waiting = true
	q.mu.Unlock()
	q.timer.Reset(d)
	select {
	case <-q.wake:
	case <-q.timer.C:
	}
	q.timer.Stop()
	q.mu.Lock()
	q.waiting = false
}

// state is the answer of Wait. The lock is held.
func (q *Queue) state() error {
	switch {
	case q.len > 0:
		return nil
	case q.closed:
		return verbs.ErrClosed
	}
	return verbs.ErrTimeout
}

// signal ends a sleep. The lock is held.
func (q *Queue) signal() {
	if !q.waiting {
		return
	}
	q.waiting = false
	if q.driven != nil {
		q.driven.Interrupt()
		return
	}
	q.wake <- struct{}{} // never blocks: one sleep, one token
}
