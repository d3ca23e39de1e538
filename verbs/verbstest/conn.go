package verbstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/pmemfs/pmemfs/verbs"
)

// address is a name on the fabric.
type address string

func (address) Network() string  { return "verbstest" }
func (a address) String() string { return string(a) }

// listener implements verbs.Listener.
type listener struct {
	dev   *device
	addr  address
	ready chan *connRequest
	stop  chan struct{}
	once  sync.Once
}

// Listen takes any host, and gives a port to an addr that asks for port 0.
func (d *device) Listen(addr string) (verbs.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("verbstest: listen: %w", err)
	}
	f := d.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if port == "0" {
		f.ports++
		addr = net.JoinHostPort(host, fmt.Sprint(f.ports))
	}
	if f.listeners[addr] != nil {
		return nil, fmt.Errorf("verbstest: listen on %s: the address is in use", addr)
	}
	l := &listener{dev: d, addr: address(addr), ready: make(chan *connRequest), stop: make(chan struct{})}
	f.listeners[addr] = l
	d.refs++
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (verbs.ConnRequest, error) {
	select {
	case r := <-l.ready:
		return r, nil
	case <-l.stop:
		return nil, verbs.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.stop)
		l.dev.fabric.mu.Lock()
		defer l.dev.fabric.mu.Unlock()
		delete(l.dev.fabric.listeners, string(l.addr))
		l.dev.refs--
	})
	return nil
}

// connRequest implements verbs.ConnRequest.
type connRequest struct {
	from     *qp
	private  []byte
	listener *listener
	answer   chan answer // of capacity 1, so that whoever answers never waits
}

type answer struct {
	private []byte
	err     error
}

// Connect waits until the request was accepted, rejected, or ctx ends.
func (d *device) Connect(ctx context.Context, v verbs.QP, addr string, private []byte) ([]byte, error) {
	q, ok := v.(*qp)
	if !ok || q.pd.dev != d {
		return nil, errors.New("verbstest: connect: the queue pair is of another device")
	}
	if len(private) > verbs.MaxPrivate {
		return nil, fmt.Errorf("verbstest: %d bytes of private data are more than %d", len(private), verbs.MaxPrivate)
	}
	l, err := d.find(q, addr)
	if err != nil {
		return nil, fmt.Errorf("verbstest: connect to %s: %w", addr, err)
	}
	r := &connRequest{from: q, private: slices.Clone(private), listener: l, answer: make(chan answer, 1)}
	select {
	case l.ready <- r:
	case <-l.stop:
		return nil, fmt.Errorf("verbstest: connect to %s: %w", addr, verbs.ErrClosed)
	case <-ctx.Done():
		return nil, ended(ctx, addr)
	}
	select {
	case a := <-r.answer:
		return a.private, a.err
	case <-ctx.Done():
		return nil, ended(ctx, addr)
	}
}

// find returns the listener at addr, if q can be connected to it.
func (d *device) find(q *qp, addr string) (*listener, error) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	l := d.fabric.listeners[addr]
	if l == nil {
		return nil, errors.New("nobody listens there")
	}
	return l, q.unused()
}

func ended(ctx context.Context, addr string) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = verbs.ErrTimeout
	}
	return fmt.Errorf("verbstest: connect to %s: %w", addr, err)
}

func (r *connRequest) PrivateData() []byte  { return r.private }
func (r *connRequest) RemoteAddr() net.Addr { return address(r.from.pd.dev.name + ":0") }

func (r *connRequest) Accept(v verbs.QP, private []byte) error {
	q, ok := v.(*qp)
	if !ok || q.pd.dev != r.listener.dev {
		return errors.New("verbstest: accept: the queue pair is of another device")
	}
	f := q.pd.dev.fabric
	f.mu.Lock()
	err := link(r.from, q)
	f.mu.Unlock()
	r.answer <- answer{slices.Clone(private), err}
	return err
}

func (r *connRequest) Reject(private []byte) error {
	if len(private) > verbs.MaxReason {
		return fmt.Errorf("verbstest: %d bytes of private data are more than %d", len(private), verbs.MaxReason)
	}
	r.answer <- answer{err: &verbs.RejectedError{Private: slices.Clone(private)}}
	return nil
}
