package iwarp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// maxSetups bounds the connections whose request has not been read yet. Beyond that new ones stay in the kernel's backlog.
const maxSetups = 64

// listener implements verbs.Listener. A goroutine accepts; one more for each connection waits for its request, so that a silent
// peer holds up nobody.
type listener struct {
	dev   *device
	tcp   net.Listener
	ready chan *connRequest
	stop  chan struct{} // closed by Close
	slots chan struct{} // a token for each set-up under way
	wg    sync.WaitGroup
	once  sync.Once

	mu    sync.Mutex // protects conns
	conns map[net.Conn]struct{}
}

func (d *device) Listen(addr string) (verbs.Listener, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("iwarp: listen on %s: %w", addr, err)
	}
	l := &listener{
		dev: d, tcp: tcp, ready: make(chan *connRequest), stop: make(chan struct{}),
		slots: make(chan struct{}, maxSetups), conns: make(map[net.Conn]struct{}),
	}
	d.refs.Add(1)
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

func (l *listener) accept() {
	defer l.wg.Done()
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.stop:
			return
		}
		conn, err := l.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !l.track(conn) {
			<-l.slots
			l.pause()
			continue
		}
		l.wg.Add(1)
		go l.setup(conn)
	}
}

// pause keeps accept from spinning when the process has no descriptors left.
func (l *listener) pause() {
	select {
	case <-l.stop:
	case <-time.After(10 * time.Millisecond):
	}
}

// track enters conn into the list that Close closes.
func (l *listener) track(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = conn.Close() // nothing was exchanged on it
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

// untrack takes conn off the list. It returns false if Close has closed it.
func (l *listener) untrack(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.conns[conn]
	delete(l.conns, conn)
	return ok
}

// setup reads the request of one connection and offers it to Accept. A connection that sends none is dropped.
func (l *listener) setup(conn net.Conn) {
	defer l.wg.Done()
	_ = conn.SetReadDeadline(time.Now().Add(l.dev.opt.SetupTimeout)) // fails only if closed; then the read does too
	req, err := readMPA(conn, requestKey)
	<-l.slots
	if err == nil {
		_ = conn.SetReadDeadline(time.Time{})
		select {
		case l.ready <- &connRequest{listener: l, conn: conn, req: req}:
			return
		case <-l.stop:
		}
	}
	l.untrack(conn)
	_ = conn.Close() // the peer learns it as the end of the connection
}

func (l *listener) Accept() (verbs.ConnRequest, error) {
	select {
	case r := <-l.ready:
		return r, nil
	case <-l.stop:
		return nil, verbs.ErrClosed
	}
}

// Close also drops the connections that were neither accepted nor rejected.
func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.stop)
		err = l.tcp.Close()
		l.mu.Lock()
		for conn := range l.conns {
			_ = conn.Close() // it carries nothing yet
		}
		l.conns = nil
		l.mu.Unlock()
		l.wg.Wait()
		l.dev.refs.Add(-1)
	})
	return err
}

// connRequest implements verbs.ConnRequest.
type connRequest struct {
	listener *listener
	conn     net.Conn
	req      *mpaFrame
}

func (r *connRequest) PrivateData() []byte  { return r.req.private }
func (r *connRequest) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// Accept sends the reply and starts the queue pair. After an error the connection is gone and the queue pair can be used again.
func (r *connRequest) Accept(vq verbs.QP, private []byte) error {
	err := r.accept(vq, private)
	if err != nil {
		r.listener.untrack(r.conn)
		_ = r.conn.Close() // the error that counts is err
		return fmt.Errorf("iwarp: accept %v: %w", r.conn.RemoteAddr(), err)
	}
	return nil
}

func (r *connRequest) accept(vq verbs.QP, private []byte) error {
	d := r.listener.dev
	q, ok := vq.(*qp)
	if !ok || q.pd.dev != d {
		return errors.New("the queue pair is of another device")
	}
	if err := checkPrivate(private, verbs.MaxPrivate); err != nil {
		return err
	}
	rep, t, err := d.opt.answer(r.req, private)
	if err != nil {
		reason := err.Error()
		return errors.Join(err, r.reply(&mpaFrame{revision: 2, flags: mpaReject, private: []byte(reason[:min(len(reason), verbs.MaxReason)])}))
	}
	if err := q.claim(); err != nil {
		return err
	}
	if err = r.reply(rep); err == nil {
		err = r.handOver(q, t)
	}
	if err != nil {
		q.unclaim()
	}
	return err
}

// handOver makes the connection that of q.
func (r *connRequest) handOver(q *qp, t terms) error {
	if !r.listener.untrack(r.conn) {
		return verbs.ErrClosed
	}
	return q.start(r.conn, t)
}

// Reject refuses the request and closes the connection.
func (r *connRequest) Reject(private []byte) error {
	defer r.conn.Close()
	r.listener.untrack(r.conn)
	if err := checkPrivate(private, verbs.MaxReason); err != nil {
		return err
	}
	rep := &mpaFrame{revision: r.req.revision, flags: r.req.flags&(mpaCRC|mpaEnhanced) | mpaReject, private: private}
	if err := r.reply(rep); err != nil {
		return fmt.Errorf("iwarp: reject %v: %w", r.conn.RemoteAddr(), err)
	}
	return nil
}

func (r *connRequest) reply(f *mpaFrame) error {
	if err := r.conn.SetWriteDeadline(time.Now().Add(r.listener.dev.opt.SetupTimeout)); err != nil {
		return err
	}
	if _, err := r.conn.Write(f.appendTo(nil, replyKey)); err != nil {
		return err
	}
	return r.conn.SetWriteDeadline(time.Time{})
}
