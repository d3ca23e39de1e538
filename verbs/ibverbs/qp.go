//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// #include "shim.h"
import "C"

type state uint8

const (
	stateIdle       state = iota
	stateConnecting       // a connection is being set up
	stateConnected
	stateFailed
	stateClosed
)

// request is what is kept of a work request until its completion.
type request struct {
	id       uint64
	addr     uint64 // of a receive, local, to post it again
	lkey     uint32 // of a receive
	len      uint32 // of what was asked for; of a receive that is done, of what arrived
	op       verbs.Opcode
	signaled bool // the user wants its completion
	reported bool // the device was asked for its completion
	done     bool // the completion was there, or that of a later request
	status   C.uint32_t
	vendor   C.uint32_t
}

// queue is a send or receive queue. Requests are numbered from 0; those from head to tail are outstanding, and those before device are the
// device's to complete: all of them until the queue pair fails.
type queue struct {
	account            *cq.Account
	ring               []request
	head, tail, device uint32
	failed             bool // a request has completed with an error
}

func (k *queue) at(seq uint32) *request { return &k.ring[seq%uint32(len(k.ring))] }
func (k *queue) empty() bool            { return k.head == k.tail }

// holds reports whether a request is outstanding. The numbers wrap.
func (k *queue) holds(seq uint32) bool { return seq-k.head < k.tail-k.head }

// newQueue makes a queue; its ring has a power of two places, so that they go on where the numbers wrap.
func newQueue(q *cq.Queue, depth int) (queue, error) {
	a, err := q.Open(depth)
	if err != nil {
		return queue{}, err
	}
	n := 1
	for n < depth {
		n *= 2
	}
	return queue{account: a, ring: make([]request, n)}, nil
}

// qp implements verbs.QP.
type qp struct {
	pd       *pd
	dev      *device
	attr     verbs.QPAttr
	scq, rcq *completionQueue
	c        *C.struct_shim_qp
	addr     C.uintptr_t // of c
	rings    rings
	handle   uint32 // this and qpn are written under the lock of the device
	qpn      uint32

	closing  sync.Once
	closeErr error
	attempts sync.WaitGroup // connections in the making, which use c; added to under mu, before stateClosed
	broken   chan struct{}  // a token when a connected queue pair has failed
	life     context.Context
	end      context.CancelFunc // of life, called by Close
	watched  sync.WaitGroup     // the goroutine that takes a failed connection down

	mu     sync.Mutex // protects the following, and posting
	state  state
	id     *connID
	sq, rq queue
	status verbs.Status // of cause
	cause  error
	told   bool // a completion has carried the cause

	answered bool // the peer has shown that it looks at what arrives, or need not show it: see nudge
}

func (p *pd) CreateQP(a verbs.QPAttr) (verbs.QP, error) {
	scq, ok1 := a.SendCQ.(*completionQueue)
	rcq, ok2 := a.RecvCQ.(*completionQueue)
	if !ok1 || !ok2 || scq.dev != p.dev || rcq.dev != p.dev {
		return nil, fmt.Errorf("ibverbs: create queue pair: both completion queues must be of RDMA device %s", p.dev.name)
	}
	if a.SendDepth < 0 || a.RecvDepth < 0 {
		return nil, fmt.Errorf("ibverbs: create queue pair: depths %d and %d must not be negative", a.SendDepth, a.RecvDepth)
	}
	if p.closed.Load() {
		return nil, fmt.Errorf("ibverbs: create queue pair: %w", verbs.ErrClosed)
	}
	q := &qp{pd: p, dev: p.dev, scq: scq, rcq: rcq, broken: make(chan struct{}, 1)}
	q.life, q.end = context.WithCancel(context.Background())
	if err := q.open(a); err != nil {
		return nil, fmt.Errorf("ibverbs: create queue pair: %w", err)
	}
	p.refs.Add(1)
	p.hold()
	p.dev.add(q)
	return q, nil
}

func (q *qp) open(a verbs.QPAttr) (err error) {
	if q.sq, err = newQueue(q.scq.Queue, a.SendDepth); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			q.sq.account.Close()
		}
	}()
	if q.rq, err = newQueue(q.rcq.Queue, a.RecvDepth); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			q.rq.account.Close()
		}
	}()
	if err := q.scq.attach(); err != nil {
		return err
	}
	if err := q.rcq.attach(); err != nil {
		return errors.Join(err, q.scq.detach())
	}
	q.attr = a
	if err := q.create(); err != nil {
		return errors.Join(err, q.scq.detach(), q.rcq.detach())
	}
	return nil
}

// create makes the device's queue pair.
func (q *qp) create() error {
	r := q.pd.create(q.attr, q.scq, q.rcq, q.dev.caps.MaxInline)
	if r.err != 0 {
		return failed(fmt.Sprintf("%d sends and %d receives on RDMA device %s", q.attr.SendDepth, q.attr.RecvDepth, q.dev.name), r.err)
	}
	q.c, q.addr = qpOf(r), addressOf(r)
	q.rings = ringsOf(q.c, q.attr.SendDepth+q.dev.nudgePlaces(), q.attr.RecvDepth)
	return nil
}

// create makes the device's queue pair, in the state in which it takes receives.
func (p *pd) create(a verbs.QPAttr, scq, rcq *completionQueue, inline int) C.struct_shim_pointer {
	attr := C.struct_shim_qp_attr{
		scq: scq.c.cq, rcq: rcq.c.cq, send_depth: C.uint32_t(a.SendDepth + p.dev.nudgePlaces()), recv_depth: C.uint32_t(a.RecvDepth), max_inline: C.uint32_t(inline),
		port: C.uint8_t(p.dev.port), access: p.dev.access,
	}
	if p.dev.caps.Flush {
		attr.flush = 1
	}
	if p.dev.caps.AtomicWrite {
		attr.atomic_write = 1
	}
	return C.shim_qp(p.c, &attr)
}

func (q *qp) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}

// begin reserves the queue pair for a connection. If it returns nil, attempts.Done is called when the attempt uses q no more.
func (q *qp) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state {
	case stateIdle:
		q.state = stateConnecting
		q.attempts.Add(1)
		return nil
	case stateClosed:
		return fmt.Errorf("the queue pair: %w", verbs.ErrClosed)
	case stateFailed:
		return fmt.Errorf("the queue pair has failed: %w", q.cause)
	}
	return errors.New("the queue pair is connected, or is being connected")
}

// rewind gives it back after a connection that did not come about. The device's queue pair may have come too far, or have
// flushed its receives, so it is replaced by a new one that has the same receives.
func (q *qp) rewind() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateConnecting {
		return nil
	}
	q.dev.remove(q) // completions of the old one find nothing from here on
	err := destroyed("destroy queue pair", C.shim_qp_destroy(q.c))
	if err == nil {
		err = q.create()
	}
	if err != nil {
		q.bereave(err)
		return err
	}
	q.state = stateIdle
	q.dev.add(q)
	return q.repost()
}

// bereave fails a queue pair whose device's one is gone, and with it the memory for batches. The lock is held.
func (q *qp) bereave(cause error) {
	q.c, q.rings = nil, rings{}
	q.fail(verbs.StatusTransport, cause)
	q.flushAll()
}

// repost posts the outstanding receives again.
func (q *qp) repost() error {
	n := 0
	for seq := q.rq.head; seq != q.rq.tail; seq++ {
		r := q.rq.at(seq)
		r.done = false
		q.fillRecv(n, seq, r)
		n++
	}
	if n > 0 {
		q.postRecv(n)
	}
	return q.cause
}

// connected makes id the connection of the queue pair, and starts the goroutine that takes it down when it fails. With asked, this side has asked for it.
func (q *qp) connected(id *connID, asked bool) error {
	id.manager.mu.Lock()
	defer id.manager.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateConnecting {
		return fmt.Errorf("the queue pair: %w", verbs.ErrClosed)
	}
	q.state, q.id, q.answered = stateConnected, id, !asked || !q.dev.siw
	q.watched.Go(q.watch)
	id.qp = q
	switch {
	case id.early != nil:
		q.fail(verbs.StatusPeer, id.early)
	case q.scq.broken.Load() || q.rcq.broken.Load():
		q.fail(verbs.StatusTransport, errQueue)
	}
	return nil
}

// closePatience is how long a Close waits for a connection in the making that was called off.
const closePatience = time.Second

// Close is no error: what it finds outstanding completes as flushed. When it returns, the device does not touch memory for the queue
// pair any more. If the kernel does not let go of a connection in the making, the rest is done when it does, and Close of the device waits for that.
func (q *qp) Close() error {
	q.closing.Do(func() { q.closeErr = q.shut() })
	return q.closeErr
}

func (q *qp) shut() error {
	q.mu.Lock()
	q.state = stateClosed
	q.told = true
	q.detachQueues()
	id := q.id
	q.mu.Unlock()

	q.end()
	q.watched.Wait()
	if id == nil && q.c != nil {
		C.shim_qp_error(q.c) // a connection in the making, if there is one, comes to nothing
	}
	ended, freed := make(chan struct{}), make(chan error, 1)
	q.dev.late.Go(func() {
		q.attempts.Wait()
		close(ended)
		freed <- q.free(id)
	})
	defer q.pd.refs.Add(-1)
	select {
	case <-ended:
		return <-freed
	case <-time.After(closePatience):
		q.abandon()
		return nil
	}
}

// free ends the connection id, if there is one, and gives the queue pair back to the device. It is called when no attempt uses it any more.
func (q *qp) free(id *connID) error {
	var errs []error
	if id != nil {
		q.dev.cm.drain()
		C.shim_cm_disconnect(id.c) // an error means that it is disconnected
		errs = append(errs, id.destroy())
	}
	if q.c != nil {
		C.shim_qp_error(q.c) // an error means that the device is gone
		q.scq.reap()
		q.rcq.reap()
		errs = append(errs, destroyed("ibverbs: destroy queue pair", C.shim_qp_destroy(q.c)))
	}
	q.scq.reap()
	q.rcq.reap()
	q.abandon()
	q.dev.remove(q)
	q.sq.account.Close()
	q.rq.account.Close()
	errs = append(errs, q.scq.detach(), q.rcq.detach(), q.pd.release())
	return errors.Join(errs...)
}
