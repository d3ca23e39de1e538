//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

const (
	// setupTimeout bounds a set-up for which the caller gives no deadline.
	setupTimeout = 10 * time.Second
	// resolveStep is the time of one question for the address of a peer on its network.
	resolveStep = 500 * time.Millisecond
	// ackTimeout is the time after which a packet is sent again, 4.096 us << ackTimeout = 0.27 s. After 6 retries, 1.9 s, a silent
	// peer is given up.
	ackTimeout = 16
)

// Connect connects a queue pair.
func (d *device) Connect(ctx context.Context, v verbs.QP, addr string, private []byte) ([]byte, error) {
	got, err := d.connect(ctx, v, addr, private)
	if err != nil {
		return nil, fmt.Errorf("ibverbs: connect to %s over RDMA device %s: %w", addr, d.name, err)
	}
	return got, nil
}

func (d *device) connect(ctx context.Context, v verbs.QP, addr string, private []byte) ([]byte, error) {
	q, ok := v.(*qp)
	if !ok || q.dev != d {
		return nil, errors.New("the queue pair is of another device")
	}
	if len(private) > verbs.MaxPrivate {
		return nil, fmt.Errorf("%d bytes of private data are more than %d", len(private), verbs.MaxPrivate)
	}
	if err := d.cm.present(); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	defer context.AfterFunc(q.life, cancel)()
	to, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	id, err := d.cm.newID()
	if err != nil {
		defer q.attempts.Done()
		return nil, errors.Join(err, q.rewind())
	}
	done := make(chan dialed, 1)
	go func() {
		defer q.attempts.Done()
		done <- q.dial(ctx, id, to, private)
	}()
	select {
	case r := <-done:
		return r.private, r.err
	case <-ctx.Done():
	}
	// The attempt has ended too, unless the kernel holds it up. What it has come to counts.
	select {
	case r := <-done:
		return r.private, r.err
	case <-time.After(graceTimeout):
		return nil, timeout(ctx)
	}
}

// bounded gives ctx a deadline, unless it has one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, setupTimeout)
}

// graceTimeout is how long Connect waits for an attempt that is being called off.
const graceTimeout = 20 * time.Millisecond

type dialed struct {
	private []byte
	err     error
}

// dial makes the connection, or undoes the attempt. A Connect that did not wait for it has called it off: then it fails too.
func (q *qp) dial(ctx context.Context, id *connID, to *net.TCPAddr, private []byte) dialed {
	got, err := q.establish(ctx, id, to, private)
	if err == nil {
		if err = ctx.Err(); err == nil {
			err = q.connected(id, true)
		}
	}
	if err == nil {
		return dialed{private: got}
	}
	q.dev.cm.drain()
	return dialed{err: errors.Join(err, id.destroy(), q.rewind())}
}

// establish goes through the set-up.
func (q *qp) establish(ctx context.Context, id *connID, to *net.TCPAddr, private []byte) ([]byte, error) {
	d := q.dev
	if err := id.resolve(ctx, d.source(to), newSockaddr(to)); err != nil {
		return nil, err
	}
	if name := id.deviceName(); name != d.name {
		return nil, fmt.Errorf("the route leads over RDMA device %q: name that one (device = %q), or an address in the network of %s", name, name, d.name)
	}
	if !d.iwarp {
		C.shim_cm_ack_timeout(id.c, ackTimeout) // becomes part of the route; an error leaves the usual one, which is longer
	}
	if err := failed("rdma_resolve_route", C.shim_cm_route(id.c, milliseconds(ctx))); err != nil {
		return nil, err
	}
	if _, err := id.await(ctx, C.RDMA_CM_EVENT_ROUTE_RESOLVED); err != nil {
		return nil, err
	}
	if err := failed("prepare the queue pair", C.shim_cm_to_init(id.c, q.c, d.access)); err != nil {
		return nil, err
	}
	p := packPrivate(private, d.iwarp)
	err := failed("rdma_connect", C.shim_cm_connect(id.c, C.uint32_t(q.c.qp.qp_num), pointerTo(p), C.uint8_t(len(p)), C.uint8_t(d.depth), d.paging()))
	if err != nil {
		return nil, err
	}
	e, err := id.await(ctx, C.RDMA_CM_EVENT_CONNECT_RESPONSE, C.RDMA_CM_EVENT_ESTABLISHED)
	if err != nil {
		return nil, err
	}
	if !d.iwarp {
		if err := q.ready(id, d.depth, e.initiatorLimit(d.depth)); err != nil {
			return nil, err
		}
		if err := failed("rdma_establish", C.shim_cm_establish(id.c)); err != nil {
			return nil, err
		}
	}
	return unpackPrivate(e.private, d.iwarp), nil
}

// paging tells C whether this side may have to wait for pages.
func (d *device) paging() C.int {
	if d.caps.OnDemand {
		return 1
	}
	return 0
}

// initiatorLimit is how many of depth Reads the peer lets this side have outstanding: as many as it keeps resources for. One that does not
// say so lets it have all.
func (e event) initiatorLimit(depth int) int {
	if e.initiator == 0 {
		return depth
	}
	return min(depth, e.initiator)
}

// ready moves the queue pair into the state in which it receives, and on into that in which it sends. On iWARP the kernel does that.
func (q *qp) ready(id *connID, responder, initiator int) error {
	gid := C.int(AnyGID)
	if q.dev.ethernet {
		var index C.int
		if err := failed("look up the GID", C.shim_cm_gid(id.c, &index)); err != nil {
			return err
		}
		gid = C.int(q.dev.gidFor(int(index)))
	}
	err := failed("make the queue pair ready to receive", C.shim_cm_to_rtr(id.c, q.c, q.dev.access, C.uint8_t(responder), gid))
	if err != nil {
		return err
	}
	return failed("make the queue pair ready to send", C.shim_cm_to_rts(id.c, q.c, C.uint8_t(initiator)))
}

// source is the local address for a connection to a peer, nil if the route decides.
func (d *device) source(to *net.TCPAddr) *sockaddr {
	if !d.chosen.addr.IsValid() || d.chosen.addr.Is4() != (to.IP.To4() != nil) {
		return nil
	}
	return newSockaddr(&net.TCPAddr{IP: d.chosen.addr.AsSlice()})
}

// resolve finds the device and the address of the peer on its network. It asks again and again: a kernel that has to find the neighbour
// first can miss that it has found it, and then answers only at the end of the time.
func (id *connID) resolve(ctx context.Context, from, to *sockaddr) error {
	for {
		ms := min(milliseconds(ctx), C.int(resolveStep.Milliseconds()))
		if err := failed("rdma_resolve_addr", C.shim_cm_resolve(id.c, from.pointer(), to.pointer(), ms)); err != nil {
			return err
		}
		if _, err := id.await(ctx, C.RDMA_CM_EVENT_ADDR_RESOLVED); err == nil || ctx.Err() != nil || !errors.Is(err, syscall.ETIMEDOUT) {
			return err
		}
	}
}

// milliseconds are left until the deadline, at least one.
func milliseconds(ctx context.Context) C.int {
	left := setupTimeout
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return C.int(max(1, left.Milliseconds()))
}
