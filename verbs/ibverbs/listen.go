//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// backlog bounds the connection requests that nobody has accepted yet.
const backlog = 64

// listener implements verbs.Listener.
type listener struct {
	dev      *device
	id       *connID
	addr     *net.TCPAddr
	requests chan *connRequest // written with the lock of the manager held
	closed   chan struct{}
	closing  sync.Once
	broken   chan struct{} // closed after cause is set
	breaking sync.Once
	cause    error
}

func (d *device) Listen(addr string) (verbs.Listener, error) {
	l, err := d.listen(addr)
	if err != nil {
		return nil, fmt.Errorf("ibverbs: listen on %s over RDMA device %s: %w", addr, d.name, err)
	}
	return l, nil
}

func (d *device) listen(addr string) (_ *listener, err error) {
	if err := d.cm.present(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	a, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	l := &listener{dev: d, requests: make(chan *connRequest, backlog), closed: make(chan struct{}), broken: make(chan struct{})}
	if l.id, err = d.cm.newID(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.id.destroy())
		}
	}()
	if err := l.id.bind(a); err != nil {
		return nil, fmt.Errorf("%w: use an address of the network interface of %s (127.0.0.1 has no RDMA device)", err, d.name)
	}
	if name := l.id.deviceName(); name != "" && name != d.name {
		return nil, fmt.Errorf("the address is of RDMA device %s", name)
	}
	d.cm.mu.Lock()
	l.id.listener = l
	d.cm.mu.Unlock()
	if err := failed("rdma_listen", C.shim_cm_listen(l.id.c, backlog)); err != nil {
		return nil, err
	}
	l.addr = l.id.localAddr()
	d.refs.Add(1)
	return l, nil
}

// offer takes a connection request. It does not wait; the lock of the manager is held.
func (l *listener) offer(id *connID, e event) bool {
	r := &connRequest{dev: l.dev, id: id, event: e}
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.requests <- r:
		return true
	default:
		return false
	}
}

func (l *listener) fail(cause error) {
	l.breaking.Do(func() {
		l.cause = cause
		close(l.broken)
	})
}

func (l *listener) Accept() (verbs.ConnRequest, error) {
	select {
	case <-l.closed:
		return nil, verbs.ErrClosed
	default:
	}
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, verbs.ErrClosed
	case <-l.broken:
		return nil, l.cause
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

// Close refuses what waits.
func (l *listener) Close() error {
	var err error
	l.closing.Do(func() {
		l.dev.cm.mu.Lock()
		close(l.closed)
		l.dev.cm.mu.Unlock()
		err = l.id.destroy()
		for len(l.requests) > 0 {
			r := <-l.requests
			_ = r.Reject(nil) // the peer may have gone
		}
		l.dev.refs.Add(-1)
	})
	return err
}

// connRequest implements verbs.ConnRequest.
type connRequest struct {
	dev   *device
	id    *connID
	event event
}

func (r *connRequest) PrivateData() []byte  { return unpackPrivate(r.event.private, r.dev.iwarp) }
func (r *connRequest) RemoteAddr() net.Addr { return r.id.peerAddr() }

func (r *connRequest) Reject(private []byte) error {
	var err error
	if len(private) > verbs.MaxReason {
		err = fmt.Errorf("ibverbs: %d bytes of private data are more than %d", len(private), verbs.MaxReason)
		private = private[:verbs.MaxReason]
	}
	p := packPrivate(private, r.dev.iwarp)
	return errors.Join(err, failed("ibverbs: rdma_reject", C.shim_cm_reject(r.id.c, pointerTo(p), C.uint8_t(len(p)))), r.id.destroy())
}

// Accept returns when the connection stands.
func (r *connRequest) Accept(v verbs.QP, private []byte) error {
	if err := r.accept(v, private); err != nil {
		return fmt.Errorf("ibverbs: accept a connection over RDMA device %s: %w", r.dev.name, err)
	}
	return nil
}

func (r *connRequest) accept(v verbs.QP, private []byte) error {
	q, ok := v.(*qp)
	switch {
	case !ok || q.dev != r.dev:
		return errors.Join(errors.New("the queue pair is of another device"), r.Reject(nil))
	case len(private) > verbs.MaxPrivate:
		return errors.Join(fmt.Errorf("%d bytes of private data are more than %d", len(private), verbs.MaxPrivate), r.Reject(nil))
	case r.id.deviceName() != r.dev.name:
		return errors.Join(fmt.Errorf("the request came over RDMA device %s: listen on an address of one device", r.id.deviceName()), r.Reject(nil))
	}
	if err := q.begin(); err != nil {
		return errors.Join(err, r.Reject(nil))
	}
	defer q.attempts.Done()
	err := q.answer(r, private)
	if err == nil {
		err = q.connected(r.id, false)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, r.id.destroy(), q.rewind())
}

// answer goes through the set-up.
func (q *qp) answer(r *connRequest, private []byte) error {
	d := q.dev
	responder, initiator := min(d.depth, r.event.responder), min(d.depth, r.event.initiator)
	if d.iwarp && responder == 0 && initiator == 0 { // a peer that does not say: revision 1 of MPA
		responder, initiator = d.depth, d.depth
	}
	if err := failed("prepare the queue pair", C.shim_cm_to_init(r.id.c, q.c, d.access)); err != nil {
		return err
	}
	if !d.iwarp {
		if err := q.ready(r.id, responder, initiator); err != nil {
			return err
		}
	}
	p := packPrivate(private, d.iwarp)
	err := failed("rdma_accept", C.shim_cm_accept(r.id.c, C.uint32_t(q.c.qp.qp_num), pointerTo(p), C.uint8_t(len(p)), C.uint8_t(responder), C.uint8_t(initiator), r.dev.paging()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.life, setupTimeout)
	defer cancel()
	_, err = r.id.await(ctx, C.RDMA_CM_EVENT_ESTABLISHED)
	return err
}
