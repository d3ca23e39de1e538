//go:build linux && cgo

package ibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// asyncEvents takes the asynchronous events of a device: errors that no completion reports.
type asyncEvents struct {
	dev     *device
	channel *channel
	done    chan struct{} // closed when run has ended
	event   C.struct_shim_async_event
}

// asyncEvent is one of them.
type asyncEvent struct {
	kind C.int  // enum ibv_event_type
	port int    // number
	qpn  uint32 // number of the queue pair
	cq   uint64 // number of the completion queue
}

func newAsyncEvents(d *device) (*asyncEvents, error) {
	fd := d.context.async_fd
	if err := failed("asynchronous events of RDMA device "+d.name, C.shim_nonblock(fd)); err != nil {
		return nil, err
	}
	c, err := newChannel(int(fd), "asynchronous events")
	if err != nil {
		return nil, err
	}
	a := &asyncEvents{dev: d, channel: c, done: make(chan struct{})}
	go a.run()
	return a, nil
}

func (a *asyncEvents) close() error {
	err := a.channel.close()
	<-a.done
	return err
}

// run takes events until the channel is closed. A device that is gone has none any more and says EIO.
func (a *asyncEvents) run() {
	defer close(a.done)
	_ = a.channel.wait(func(uintptr) bool {
		for {
			switch errno := C.shim_async(a.dev.context, &a.event); syscall.Errno(errno) {
			case 0:
				e := &a.event
				a.take(asyncEvent{e._type, int(e.port), uint32(e.qpn), uint64(e.cq)})
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				a.dev.lost(errRemoved)
				return true
			}
		}
	})
}

// take carries out what an event means. Not looked at are those of what is not made here (shared receive queues, alternative paths) and changes
// of addresses, after which a peer that cannot be reached any more is given up as any silent one.
func (a *asyncEvents) take(e asyncEvent) {
	one := func(q *qp) bool { return q.qpn == e.qpn }
	all := func(*qp) bool { return true }
	switch e.kind {
	case C.IBV_EVENT_QP_ACCESS_ERR:
		a.dev.failAll(verbs.StatusProtect, errors.New("ibverbs: the peer violated key, bounds or rights of a region"), one)
	case C.IBV_EVENT_QP_REQ_ERR:
		a.dev.failAll(verbs.StatusPeer, errors.New("ibverbs: the peer sent an invalid request"), one)
	case C.IBV_EVENT_QP_FATAL:
		a.dev.failAll(verbs.StatusTransport, errors.New("ibverbs: the queue pair failed"), one)
	case C.IBV_EVENT_CQ_ERR:
		a.dev.failCQ(e.cq)
	case C.IBV_EVENT_DEVICE_FATAL:
		a.dev.lost(fmt.Errorf("ibverbs: RDMA device %s failed or was removed: %w", a.dev.name, verbs.ErrDeviceGone))
	case C.IBV_EVENT_PORT_ERR:
		if e.port == a.dev.port {
			a.dev.failAll(verbs.StatusTransport, fmt.Errorf("ibverbs: port %d of RDMA device %s went down", e.port, a.dev.name), all)
		}
	}
}
