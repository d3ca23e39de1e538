//go:build linux && cgo

package ibverbs

import (
	"errors"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// Types of asynchronous events (enum ibv_event_type of libibverbs).
const (
	eventCQErr       = 0
	eventQPFatal     = 1
	eventQPReqErr    = 2
	eventQPAccessErr = 3
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortErr     = 10
)

// waiting is a connected queue pair of dev, which has the number qpn; that of its completion queue is number.
func waiting(t *testing.T, dev *device, qpn uint32, number uint64) *qp {
	q, _ := bare(t)
	q.dev, q.scq.dev, q.scq.number = dev, dev, number
	q.state, q.handle, q.qpn = stateConnected, qpn, qpn
	(*dev.qps.Load())[qpn], dev.cqs[number] = q, q.scq
	return q
}

// Each event fails the queue pairs that it is about, and no other. Events that say nothing of the kind fail none.
func TestAsyncEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		event  asyncEvent
		fails  [2]bool // of two queue pairs, numbers 1 and 2, completion queues 11 and 12
		status verbs.Status
	}{
		{"access", asyncEvent{kind: eventQPAccessErr, qpn: 1}, [2]bool{true, false}, verbs.StatusProtect},
		{"request", asyncEvent{kind: eventQPReqErr, qpn: 1}, [2]bool{true, false}, verbs.StatusPeer},
		{"queue pair", asyncEvent{kind: eventQPFatal, qpn: 2}, [2]bool{false, true}, verbs.StatusTransport},
		{"completion queue", asyncEvent{kind: eventCQErr, cq: 11}, [2]bool{true, false}, verbs.StatusTransport},
		{"a completion queue that is destroyed", asyncEvent{kind: eventCQErr, cq: 7}, [2]bool{}, 0},
		{"device", asyncEvent{kind: eventDeviceFatal}, [2]bool{true, true}, verbs.StatusTransport},
		{"port", asyncEvent{kind: eventPortErr, port: 1}, [2]bool{true, true}, verbs.StatusTransport},
		{"another port", asyncEvent{kind: eventPortErr, port: 2}, [2]bool{}, 0},
		{"port active", asyncEvent{kind: eventPortActive, port: 1}, [2]bool{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := newDevice()
			dev.name, dev.port, dev.cm = "dev0", 1, &manager{}
			qps := []*qp{waiting(t, dev, 1, 11), waiting(t, dev, 2, 12)}
			(&asyncEvents{dev: dev}).take(c.event)
			for i, q := range qps {
				if got := q.state == stateFailed; got != c.fails[i] || got && q.status != c.status {
					t.Errorf("queue pair %d: failed %v with %v, %v", i+1, got, q.status, q.cause)
				}
			}
		})
	}
}

// A device that failed and is not removed takes no connections any more: whoever accepts them has to know.
func TestAsyncEvents_ListenerOfAFailedDevice(t *testing.T) {
	l := &listener{closed: make(chan struct{}), broken: make(chan struct{})}
	m := &manager{ids: map[*_Ctype_struct_rdma_cm_id]*connID{nil: {listener: l}}}
	d := newDevice()
	d.cm, d.maxCQE = m, 1<<10
	(&asyncEvents{dev: d}).take(asyncEvent{kind: eventDeviceFatal})
	if _, err := l.Accept(); !errors.Is(err, verbs.ErrDeviceGone) {
		t.Errorf("Accept: %v", err)
	}
	_, err := d.AllocPD()
	_, err2 := d.CreateCQ(8)
	_, err3 := d.Listen("127.0.0.1:0")
	_, err4 := d.Connect(t.Context(), &qp{dev: d}, "127.0.0.1:1", nil)
	for _, err := range []error{err, err2, err3, err4} {
		if !errors.Is(err, verbs.ErrDeviceGone) {
			t.Errorf("a device that failed is used: %v", err)
		}
	}
}

// A completion queue that has failed takes no queue pair any more, and one that gets its connection afterwards fails at once.
func TestAsyncEvents_BrokenQueue(t *testing.T) {
	q, _ := bare(t)
	q.scq.broken.Store(true)
	if err := q.scq.attach(); !errors.Is(err, errQueue) {
		t.Errorf("attach: %v", err)
	}
	if err := q.begin(); err != nil {
		t.Fatal(err)
	}
	q.attempts.Done()
	q.end() // so that nothing tells a device, which is not there
	if err := q.connected(&connID{manager: &manager{}}, true); err != nil || q.state != stateFailed || !errors.Is(q.cause, errQueue) {
		t.Errorf("connected: %v, state %d, %v", err, q.state, q.cause)
	}
	q.watched.Wait()
}
