// Package cq is the completion queue of the providers that are written in Go: a bounded ring that cannot overflow,
// because every queue of a queue pair reserves its places in it beforehand.
//
// An Account is one work queue's share. Its user takes a place for each work request before it is posted; the place
// comes back when the completion that covers the request has been polled. So PostSend can refuse a batch that has
// no room, and a completion always has room.
//
// A Wait sleeps until a completion wakes it, or, if the Queue has a Source, it receives for that connection itself; see there.
//
// One mutex per Queue protects the ring and all its accounts. With it held nothing is called but Source.Take and
// Source.Interrupt.
package cq

import (
	"fmt"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

type entry struct {
	wc     verbs.WC
	from   *Account
	places int
}

// Queue implements verbs.CQ.
type Queue struct {
	mu       sync.Mutex
	ring     []entry
	head     int
	len      int
	reserved int  // places promised to accounts
	waiting  bool // a Wait sleeps, or receives for driven, and must be woken
	closed   bool
	source   Source
	driven   Source // the one that a Wait receives for now

	wake  chan struct{} // one token, sent when waiting is taken back
	timer *time.Timer   // of the one goroutine that may wait
}

// New makes a queue for depth completions.
func New(depth int) (*Queue, error) {
	if depth <= 0 {
		return nil, fmt.Errorf("verbs: a completion queue of depth %d is of no use: ask for at least 1", depth)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Queue{ring: make([]entry, depth), wake: make(chan struct{}, 1), timer: t}, nil
}

// Poll takes up to len(wc) completions without waiting. After Close it returns what is left, then ErrClosed.
func (q *Queue) Poll(wc []verbs.WC) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.len == 0 && q.closed {
		return 0, verbs.ErrClosed
	}
	n := min(len(wc), q.len)
	for i := range n {
		e := &q.ring[q.head]
		wc[i] = e.wc
		e.from.giveBack(e.places)
		*e = entry{}
		if q.head++; q.head == len(q.ring) {
			q.head = 0
		}
	}
	q.len -= n
	return n, nil
}

// Close wakes a Wait. Completions that are there can still be polled.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
	return nil
}

// Account is the share of one work queue. Its fields are protected by the lock of its Queue.
type Account struct {
	q       *Queue
	free    int
	pending int // places of unsignaled work requests, given back with the next completion
	closed  bool
}

// Open reserves depth places.
func (q *Queue) Open(depth int) (*Account, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, verbs.ErrClosed
	}
	if depth < 0 || depth > len(q.ring)-q.reserved {
		return nil, fmt.Errorf("verbs: the completion queue of depth %d has %d places left, %d are needed: make it deeper",
			len(q.ring), len(q.ring)-q.reserved, depth)
	}
	q.reserved += depth
	return &Account{q: q, free: depth}, nil
}

// Take takes n places, or none and returns false.
func (a *Account) Take(n int) bool {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	if n > a.free {
		return false
	}
	a.free -= n
	return true
}

// Complete delivers the completion of the oldest work request that holds a place.
func (a *Account) Complete(wc verbs.WC) {
	q := a.q
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.head + q.len
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = entry{wc, a, 1 + a.pending}
	a.pending = 0
	q.len++
	q.signal()
}

// Skip notes that an unsignaled work request is done: its place comes back with the next completion.
func (a *Account) Skip() {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	a.pending++
}

// Close ends the reservation. Places of completions not yet polled come back when they are.
func (a *Account) Close() {
	q := a.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	n := a.free + a.pending
	a.free, a.pending = 0, 0
	q.reserved -= n
}

// giveBack returns n places. The lock is held.
func (a *Account) giveBack(n int) {
	if a.closed {
		a.q.reserved -= n
		return
	}
	a.free += n
}
