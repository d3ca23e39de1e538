//go:build linux && cgo

package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// #cgo noescape shim_poll
// #cgo nocallback shim_poll
// #cgo noescape shim_arm
// #cgo nocallback shim_arm
// #cgo noescape shim_cq_event
// #cgo nocallback shim_cq_event
// #include "shim.h"
import "C"

// How long a Wait polls before it sleeps. It begins at the most, grows with each Wait that polling ended and shrinks with each that
// had to sleep; from nothing it starts again once in spinRetry Waits.
const (
	maxSpin   = 50 * time.Microsecond
	minSpin   = time.Microsecond
	spinRetry = 64
)

// completionQueue implements verbs.CQ. The completions of the device go through a cq.Queue, which counts the places of work queues and takes the
// completions that are made here, those of requests that the device does not flush.
//
// The device's queue has room for twice the places: completions of a queue pair that was closed, which nobody wants any more, can
// still stand in it while new requests take the places. So can those of nudges that were flushed.
type completionQueue struct {
	*cq.Queue
	dev     *device
	channel *channel
	take    func(uintptr) bool // takes an event of the channel; made once

	// Of the goroutine in Wait.
	spin  time.Duration
	waits uint
	errno C.int // of the last take

	c      *C.struct_shim_cq
	addr   C.uintptr_t // of c
	number uint64      // no other one of the process has it
	broken atomic.Bool // the device completes nothing in it any more

	mu     sync.Mutex // protects the following and polling c; so completions go on in the order of the device
	users  int        // queue pairs
	closed bool
	gone   bool // c is destroyed
}

// lastCQ is the number of the completion queue made last.
var lastCQ atomic.Uint64

func (d *device) CreateCQ(depth int) (verbs.CQ, error) {
	q, err := cq.New(depth)
	if err != nil {
		return nil, err
	}
	if depth > d.maxCQE {
		return nil, fmt.Errorf("ibverbs: a completion queue of depth %d: RDMA device %s has %d at most", depth, d.name, d.maxCQE)
	}
	if err := d.cm.present(); err != nil {
		return nil, fmt.Errorf("ibverbs: create a completion queue: %w", err)
	}
	number := lastCQ.Add(1)
	r := C.shim_cq(d.context, C.int(min(2*depth+d.nudgePlaces(), d.maxCQE)), C.uintptr_t(number))
	if err := failed("ibverbs: create a completion queue of "+d.name, r.err); err != nil {
		return nil, err
	}
	c := &completionQueue{Queue: q, dev: d, c: cqOf(r), addr: addressOf(r), number: number, spin: maxSpin}
	if runtime.GOMAXPROCS(0) == 1 {
		c.spin = 0
	}
	if c.channel, err = newChannel(int(c.c.channel.fd), "completion channel"); err != nil {
		return nil, errors.Join(err, destroyed("ibverbs: destroy completion queue", C.shim_cq_destroy(c.c)))
	}
	c.take = c.takeEvent
	q.Attach(c)
	d.refs.Add(1)
	d.addCQ(c)
	return c, nil
}

// Poll takes completions from the device first.
func (q *completionQueue) Poll(wc []verbs.WC) (int, error) {
	q.reap()
	return q.Queue.Poll(wc)
}

// reap hands on what the device has completed. It returns how much that was.
func (q *completionQueue) reap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	total := 0
	for !q.gone {
		n := int(C.shim_poll(q.addr))
		for i := range n {
			w := &q.c.wc[i]
			handle, recv, seq := splitID(uint64(w.id))
			if p := q.dev.find(handle); p != nil {
				p.complete(recv, seq, w)
			}
		}
		total += max(n, 0)
		if n < C.SHIM_POLL { // a device that is gone gives an error: the events of the device end the queue pairs
			break
		}
	}
	return total
}

// attach and detach count the queue pairs: the device's queue lives as long as one of them.
func (q *completionQueue) attach() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return verbs.ErrClosed
	case q.broken.Load():
		return errQueue
	}
	q.users++
	return nil
}

func (q *completionQueue) detach() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.users--
	return q.destroy()
}

// destroy ends the device's queue if nobody needs it. The lock is held.
func (q *completionQueue) destroy() error {
	if !q.closed || q.users > 0 || q.gone {
		return nil
	}
	err := q.channel.close() // ends a Wait, which uses q.c
	err = errors.Join(err, destroyed("ibverbs: destroy completion queue", C.shim_cq_destroy(q.c)))
	q.gone = true
	q.dev.removeCQ(q)
	q.dev.refs.Add(-1)
	return err
}

// Close wakes a Wait. The device's queue goes with the last queue pair.
func (q *completionQueue) Close() error {
	err := q.Queue.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return errors.Join(err, q.destroy())
}

// Take, Receive and Interrupt make the device the source of cq.Queue: a Wait itself takes completions from the device.
func (q *completionQueue) Take() bool { return true }

// Receive polls for a while, then sleeps on the completion channel.
func (q *completionQueue) Receive(_ *cq.Queue, until time.Time) {
	if q.reap() > 0 || q.spinUntil(until) {
		return
	}
	for time.Now().Before(until) {
		// Armed before the last look, so what comes after that look makes an event.
		if !q.arm() || q.reap() > 0 {
			return
		}
		// The deadline is set before Block, after which Interrupt may move it.
		if q.channel.file.SetReadDeadline(until) != nil || !q.Block() {
			return
		}
		err := q.channel.wait(q.take)
		q.Unblock()
		if q.reap() > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || q.errno != 0 {
			return
		}
	}
}

// spinUntil polls for a while; it returns true if something came.
func (q *completionQueue) spinUntil(until time.Time) bool {
	q.waits++
	if q.spin == 0 && q.waits%spinRetry == 0 && runtime.GOMAXPROCS(0) > 1 {
		q.spin = minSpin
	}
	if q.spin == 0 {
		return false
	}
	end := time.Now().Add(q.spin)
	if until.Before(end) {
		end = until
	}
	for time.Now().Before(end) {
		if q.reap() > 0 {
			q.spin = min(2*q.spin, maxSpin)
			return true
		}
	}
	if q.spin /= 2; q.spin < minSpin {
		q.spin = 0
	}
	return false
}

func (q *completionQueue) arm() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.gone && C.shim_arm(q.c) == 0
}

// takeEvent is called with the channel kept open, and so before the device's queue is destroyed.
func (q *completionQueue) takeEvent(uintptr) bool {
	q.errno = C.shim_cq_event(q.c)
	if syscall.Errno(q.errno) == syscall.EAGAIN {
		q.errno = 0
		return false
	}
	return true
}

// Interrupt ends the sleep of a Receive.
func (q *completionQueue) Interrupt() { _ = q.channel.file.SetReadDeadline(time.Unix(1, 0)) }
