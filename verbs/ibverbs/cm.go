//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// manager takes the events of the connection manager, for all connections of a device.
type manager struct {
	c       *C.struct_rdma_event_channel
	channel *channel
	done    chan struct{} // closed when run has ended

	// mu protects the following. It is held from taking an event until that is handed over, so an event is never that of a later
	// connection at the same address: an id is forgotten, under the lock, before it is destroyed.
	mu    sync.Mutex
	ids   map[*C.struct_rdma_cm_id]*connID
	dev   string // name of the device that the connections are made with
	gone  bool   // it was removed or has failed
	event C.struct_shim_cm_event
}

// event of the connection manager.
type event struct {
	kind                 C.int
	status               int
	private              []byte
	responder, initiator int // Reads that the peer may have outstanding, and that it takes (rdma_get_cm_event(3))
}

// connID is a connection, a listener, or one of them in the making.
type connID struct {
	manager *manager
	c       *C.struct_rdma_cm_id
	events  chan event // of the set-up; more than it needs are dropped

	// Protected by the lock of manager.
	listener *listener
	qp       *qp   // told of the end of the connection
	early    error // the connection ended before there was a qp
}

// setupEvents is more than the set-up of a connection has.
const setupEvents = 8

func newManager() (*manager, error) {
	r := C.shim_cm_channel()
	if err := failed("open the connection manager (rdma_cm)", r.err); err != nil {
		return nil, err
	}
	m := &manager{c: channelOf(r), done: make(chan struct{}), ids: make(map[*C.struct_rdma_cm_id]*connID)}
	var err error
	if m.channel, err = newChannel(int(m.c.fd), "rdma_cm"); err != nil {
		C.rdma_destroy_event_channel(m.c)
		return nil, err
	}
	go m.run()
	return m, nil
}

// close is called when no id is left.
func (m *manager) close() error {
	err := m.channel.close()
	<-m.done
	C.rdma_destroy_event_channel(m.c)
	return err
}

// run hands over events until the channel is closed.
func (m *manager) run() {
	defer close(m.done)
	_ = m.channel.wait(func(uintptr) bool {
		for m.next() {
		}
		return false
	})
}

// drain hands over the events that are there already. Before a removal of the device ends a connection, it makes an event of that connection, which
// goes with its id: whoever ends a connection has to look first, for there may be no other news of the removal (siw has none).
func (m *manager) drain() {
	for m.next() {
	}
}

// next hands over one event, if there is one. The caller holds no lock.
func (m *manager) next() bool {
	m.mu.Lock()
	errno := C.shim_cm_next(m.c, &m.event)
	var refused *connID
	if errno == 0 {
		refused = m.dispatch(&m.event)
	}
	m.mu.Unlock()
	if refused != nil {
		C.shim_cm_reject(refused.c, nil, 0) // an error means that the peer has gone
		_ = refused.destroy()               // as above
	}
	return errno == 0 || syscall.Errno(errno) == syscall.EINTR
}

// dispatch hands an event over. It returns a connection request that nobody takes. The lock is held.
func (m *manager) dispatch(c *C.struct_shim_cm_event) (refused *connID) {
	e := event{c.event, int(c.status), nil, int(c.responder_resources), int(c.initiator_depth)}
	e.private = bytesOf(c)
	if c.listener != nil {
		id := m.register(c.id)
		if l := m.ids[c.listener]; l == nil || l.listener == nil || !l.listener.offer(id, e) {
			return id
		}
		return nil
	}
	id := m.ids[c.id]
	if id == nil {
		return nil
	}
	select {
	case id.events <- e:
	default:
	}
	switch e.kind {
	case C.RDMA_CM_EVENT_DISCONNECTED:
		id.end(verbs.StatusPeer, errors.New("ibverbs: the peer ended the connection"))
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		m.gone = m.gone || id.deviceName() == m.dev
		id.end(verbs.StatusTransport, errRemoved)
	}
	return nil
}

var errRemoved = fmt.Errorf("ibverbs: the RDMA device was removed: %w", verbs.ErrDeviceGone)

// end tells whoever has the connection. The lock of the manager is held.
func (id *connID) end(status verbs.Status, cause error) {
	switch {
	case id.listener != nil:
		id.listener.fail(cause)
	case id.qp != nil:
		id.qp.lose(status, cause)
	default:
		id.early = cause
	}
}

// failListeners ends the listeners of a device that does not come back.
func (m *manager) failListeners(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	for _, id := range m.ids {
		if id.listener != nil {
			id.listener.fail(cause)
		}
	}
}

// present returns an error once it is known that the device does not come back: what would be asked of it says less.
func (m *manager) present() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return fmt.Errorf("RDMA device %s: %w", m.dev, verbs.ErrDeviceGone)
	}
	return nil
}

// register makes events of an id find it. The lock is held.
func (m *manager) register(c *C.struct_rdma_cm_id) *connID {
	id := &connID{manager: m, c: c, events: make(chan event, setupEvents)}
	m.ids[c] = id
	return id
}

func (m *manager) newID() (*connID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := C.shim_cm_id(m.c)
	if err := failed("rdma_create_id", r.err); err != nil {
		return nil, err
	}
	return m.register(idOf(r)), nil
}

// destroy ends a connection or listener. It can take as long as the kernel holds on to it.
func (id *connID) destroy() error {
	id.manager.mu.Lock()
	delete(id.manager.ids, id.c)
	id.manager.mu.Unlock()
	return destroyed("ibverbs: rdma_destroy_id", C.shim_cm_destroy(id.c))
}

// await waits for one of the events of a set-up.
func (id *connID) await(ctx context.Context, want ...C.int) (event, error) {
	select {
	case e := <-id.events:
		if slices.Contains(want, e.kind) {
			return e, nil
		}
		return e, e.err(id.iwarp())
	case <-ctx.Done():
		return event{}, timeout(ctx)
	}
}

func timeout(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer in time: %w", verbs.ErrTimeout)
	}
	return ctx.Err()
}

// Reasons of a rejection on InfiniBand and RoCE (enum ib_cm_rej_reason of the kernel).
const (
	rejectNoListener = 8
	rejectByUser     = 28
)

// err is what an event means that ends a set-up.
func (e event) err(iwarp bool) error {
	switch errno := syscall.Errno(-e.status); e.kind {
	case C.RDMA_CM_EVENT_ADDR_ERROR:
		return fmt.Errorf("no RDMA device leads to the address, or it does not answer: %w", errno)
	case C.RDMA_CM_EVENT_ROUTE_ERROR:
		return fmt.Errorf("no route: %w", errno)
	case C.RDMA_CM_EVENT_UNREACHABLE:
		return fmt.Errorf("the peer does not answer: %w", errno)
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		return errRemoved
	case C.RDMA_CM_EVENT_REJECTED:
		switch {
		case iwarp && len(e.private) > 0 || !iwarp && e.status == rejectByUser:
			return &verbs.RejectedError{Private: unpackPrivate(e.private, iwarp)}
		case iwarp:
			return fmt.Errorf("the peer ended the connection: %w", errno)
		case e.status == rejectNoListener:
			return errors.New("nothing listens at the address")
		}
		return fmt.Errorf("the peer's connection manager refuses, reason %d", e.status)
	case C.RDMA_CM_EVENT_DISCONNECTED:
		return errors.New("the peer ended the connection")
	}
	return fmt.Errorf("event %d of the connection manager, status %d", e.kind, e.status)
}

// deviceName is the device on which the connection is, empty before that is known.
func (id *connID) deviceName() string {
	if id.c.verbs == nil {
		return ""
	}
	return C.GoString(C.ibv_get_device_name(id.c.verbs.device))
}

func (id *connID) iwarp() bool {
	return id.c.verbs != nil && id.c.verbs.device.transport_type == C.IBV_TRANSPORT_IWARP
}

func (id *connID) bind(a *net.TCPAddr) error {
	return failed(fmt.Sprintf("bind to %v", a), C.shim_cm_bind(id.c, newSockaddr(a).pointer()))
}

// packPrivate puts a byte with the length in front, where the transport does not tell that (verbs.MaxPrivate).
func packPrivate(b []byte, iwarp bool) []byte {
	if iwarp {
		return b
	}
	return append([]byte{byte(len(b))}, b...)
}

// unpackPrivate undoes it. A length that is not true comes from a stranger.
func unpackPrivate(b []byte, iwarp bool) []byte {
	if iwarp {
		return b
	}
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return nil
	}
	return b[1:][:b[0]]
}
