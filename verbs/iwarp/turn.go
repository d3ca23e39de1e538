package iwarp

import (
	"sync"
	"time"
)

const (
	// tick is how often an idle receiver looks whether waiters still come for the turn. It takes over between one and two
	// ticks after the last one left.
	tick = 500 * time.Microsecond
	// patience is the number of ticks without any change after which the receiver looks no more: the waiter that has the turn
	// wakes it when it leaves. Exchanges that take less time never pay for that.
	patience = 20
)

// turn is the right to use rx and to read from the socket. It belongs to a goroutine in CQ.Wait, to the receiver of the
// queue pair, or to nobody. The receiver takes it when no waiter comes for it any more, and for good when the connection ends.
//
// In an exchange of small messages a waiter takes and gives the turn once for each of them and wakes nobody: the receiver
// finds out by its clock when that has ended.
type turn struct {
	wake  chan struct{} // a token: the receiver has to look
	timer *time.Timer   // of the receiver
	seen  uint64        // moves when the receiver looked last
	still int           // ticks since a move

	mu     sync.Mutex // protects the following; leaf
	holder holder
	moves  uint64 // how often a waiter took or gave the turn
	asked  bool   // a waiter wants it from the receiver
	urgent bool   // the receiver need not wait for the clock
	parked bool   // the receiver waits for wake alone
	over   bool   // no waiter gets it any more
}

type holder uint8

const (
	nobody holder = iota
	waiter
	receiver
)

// init gives the turn to the receiver.
func (t *turn) init() {
	t.wake = make(chan struct{}, 1)
	t.timer = time.NewTimer(time.Hour)
	t.timer.Stop()
	t.holder = receiver
}

// take gives the turn to a waiter if it is free. If it is not, ask says whether to interrupt the receiver, which then
// yields.
func (t *turn) take() (ok, ask bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false, false
	}
	if t.holder == nobody {
		t.holder = waiter
		t.moves++
		return true, false
	}
	t.asked = true
	return false, true
}

// give ends the turn of a waiter. busy says that the peer is in the middle of something, so that the receiver goes on
// with it at once.
func (t *turn) give(busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder = nobody
	t.moves++
	t.urgent = busy
	if busy || t.parked {
		t.call()
	}
}

// finish keeps the turn from waiters from now on. One that has it is to be interrupted.
func (t *turn) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.call()
}

// ending says whether finish was called.
func (t *turn) ending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// call wakes the receiver. The lock is held.
func (t *turn) call() {
	t.parked = false
	select {
	case t.wake <- struct{}{}:
	default: // a token is there
	}
}

// await returns when the receiver has the turn.
func (t *turn) await() {
	for {
		mine, park := t.look()
		if mine {
			return
		}
		if park {
			<-t.wake
			continue
		}
		t.timer.Reset(tick)
		select {
		case <-t.wake:
		case <-t.timer.C:
		}
		t.timer.Stop()
	}
}

// look takes the turn for the receiver if it should have it now, else says whether it can wait without a clock.
func (t *turn) look() (mine, park bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved := t.moves != t.seen
	t.seen = t.moves
	if t.holder == receiver {
		return true, false
	}
	if t.holder == nobody && (!moved || t.urgent || t.over) {
		t.holder, t.still = receiver, 0
		return true, false
	}
	t.still++
	if moved {
		t.still = 0
	}
	t.parked = t.holder == waiter && (t.still >= patience || t.over)
	return false, t.parked
}

// wanted says whether a waiter has asked for the turn.
func (t *turn) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked && !t.over
}

// yield ends the turn of the receiver, in favour of the waiter that asked for it.
func (t *turn) yield() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder, t.asked = nobody, false
	t.moves++
}
