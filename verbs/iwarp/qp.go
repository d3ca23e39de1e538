package iwarp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

type state uint8

const (
	stateIdle       state = iota
	stateConnecting       // a set-up uses the queue pair
	stateConnected
	stateFailed // the cause is known, the receiver is on its way to flush
	stateEnded  // flushed, or closed before it was connected
)

// farewell bounds what a queue pair still does for its peer after an error.
const farewell = time.Second

var errNotConnected = errors.New("iwarp: the queue pair is not connected")

// qp implements verbs.QP.
type qp struct {
	pd         *pd
	sends      *cq.Account
	recvs      *cq.Account
	stream     *stream
	tx         tx
	rx         rx
	turn       turn          // to use rx
	waits      *cq.Queue     // whose Wait may take the turn; nil if the two completion queues are not the same
	kick       chan struct{} // a token: the server has something to do
	stop       chan struct{} // closed by the receiver to end the server
	serverDone chan struct{}
	done       chan struct{} // closed when the receiver has flushed
	closing    sync.Once

	mu      sync.Mutex // protects the following
	state   state
	closed  bool
	cause   failure
	told    bool      // the cause has been reported in a completion, or there is none to report
	lost    error     // a failed write; the receiver decides whether the peer said why
	last    time.Time // when it stops to read after that
	sq      sendQueue
	rq      recvQueue
	inbound inboundReads
	ord     int
	gated   bool // responder: the first frame of the initiator has not come yet
	unheard bool // initiator: the first frame of the responder has not come yet
}

// failure is the end of a queue pair.
type failure struct {
	status verbs.Status
	err    error
	victim victim
	index  uint64          // of the victim in the send queue
	term   *TerminateError // to be sent to the peer, if not nil
}

// victim is the work request at fault.
type victim uint8

const (
	victimUnknown victim = iota
	victimSend           // the one at failure.index
	victimRecv           // the oldest receive
)

func newQP(p *pd, attr verbs.QPAttr) (*qp, error) {
	sq, ok1 := attr.SendCQ.(*cq.Queue)
	rq, ok2 := attr.RecvCQ.(*cq.Queue)
	if !ok1 || !ok2 {
		return nil, errors.New("iwarp: create queue pair: the completion queues are of another provider")
	}
	if attr.SendDepth < 1 || attr.RecvDepth < 0 {
		return nil, fmt.Errorf("iwarp: create queue pair: depths %d and %d make no sense", attr.SendDepth, attr.RecvDepth)
	}
	sends, err := sq.Open(attr.SendDepth)
	if err != nil {
		return nil, fmt.Errorf("iwarp: create queue pair: %w", err)
	}
	recvs, err := rq.Open(attr.RecvDepth)
	if err != nil {
		sends.Close()
		return nil, fmt.Errorf("iwarp: create queue pair: %w", err)
	}
	q := &qp{
		pd: p, sends: sends, recvs: recvs,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), serverDone: make(chan struct{}), done: make(chan struct{}),
	}
	if sq == rq {
		q.waits = sq
	}
	q.sq.ring = make([]sendEntry, attr.SendDepth)
	q.rq.ring = make([]recvEntry, attr.RecvDepth)
	p.refs.Add(1)
	return q, nil
}

// claim reserves the queue pair for a connection set-up.
func (q *qp) claim() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return verbs.ErrClosed
	case q.state != stateIdle:
		return errors.New("iwarp: the queue pair has a connection or had one: make a new one")
	}
	q.state = stateConnecting
	return nil
}

// unclaim gives it back after a set-up that failed.
func (q *qp) unclaim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == stateConnecting {
		q.state = stateIdle
	}
}

// start makes conn the connection of a claimed queue pair. It owns conn only if it returns nil.
func (q *qp) start(conn net.Conn, t terms) error {
	s, err := newStream(conn, &q.pd.dev.opt)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		_ = s.file.Close() // nothing was exchanged on it
		return verbs.ErrClosed
	}
	q.stream = s
	q.tx.init(q, t.crc)
	q.rx.init(q, t.crc)
	q.turn.init()
	q.inbound.ring = make([]inboundRead, t.ird)
	q.sq.reads = make([]uint64, t.ord)
	q.ord = t.ord
	q.gated, q.unheard = t.gated, t.initiator
	q.state = stateConnected
	if q.waits != nil {
		q.waits.Attach(q)
	}
	go q.receive()
	return nil
}

// fail ends the connection for a reason found outside of the receiver.
func (q *qp) fail(f failure) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateConnected {
		return
	}
	q.state = stateFailed
	q.cause = f
	q.recall()
}

// lose notes a write that failed because the peer or the network ended the connection. What the peer sent before
// that, a Terminate above all, says more than the errno, so the receiver gets a moment to read it.
func (q *qp) lose(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != stateConnected || q.lost != nil {
		return
	}
	q.lost, q.last = err, time.Now().Add(farewell)
	q.recall()
}

// recall brings the turn to the receiver, for good. The lock is held.
func (q *qp) recall() {
	q.turn.finish()
	q.stream.interrupt()
}

// end carries out the end of the connection in this order: 1 nothing new is started; 2 a Terminate goes out; 3 the socket
// is closed, which frees whoever writes to it; 4 server and senders are gone; 5 the queues are flushed. So a flushed
// completion also says that nothing touches the memory any more.
func (q *qp) end(f failure) {
	q.turn.finish()
	q.mu.Lock()
	if q.state == stateConnected {
		q.state = stateFailed
		var said *TerminateError
		if q.lost != nil && !errors.As(f.err, &said) {
			f = failure{status: verbs.StatusTransport, err: q.lost}
		}
		q.cause = f
	}
	f = q.cause
	q.mu.Unlock()

	if f.term != nil {
		q.sayTerminate(f.term)
	}
	_ = q.stream.file.Close() // nothing is left to be lost by an error here
	close(q.stop)
	<-q.serverDone
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state = stateEnded
	q.flush()
	if q.waits != nil {
		q.waits.Detach(q)
	}
}

// sayTerminate sends a Terminate and reads on for a moment: closing a socket with unread bytes resets the connection, and
// the reset could overtake the Terminate.
func (q *qp) sayTerminate(e *TerminateError) {
	limit := time.Now().Add(farewell)
	_ = q.stream.file.SetWriteDeadline(limit) // frees a PostSend that waits for room; arm keeps to it
	q.tx.mu.Lock()
	said := q.tx.terminate(e, q.rx.guilty())
	q.tx.mu.Unlock()
	if !said {
		return
	}
	q.stream.closeWrite()
	q.stream.expire(limit)
	for {
		if _, err := q.stream.read(nil, nil, q.rx.buf); err != nil {
			return
		}
	}
}

// flush completes everything outstanding: the cause first, then StatusFlushed. The lock is held.
func (q *qp) flush() {
	if !q.told {
		q.told = q.tell()
	}
	for q.sq.head < q.sq.tail {
		e := q.sq.at(q.sq.head)
		if !e.told {
			q.sends.Complete(q.sendWC(e, verbs.StatusFlushed, 0))
		}
		*e = sendEntry{}
		q.sq.head++
	}
	q.sq.next = q.sq.tail
	for q.rq.head < q.rq.tail {
		e := q.rq.at(q.rq.head)
		if !e.told {
			q.recvs.Complete(q.recvWC(e, verbs.StatusFlushed, 0))
		}
		*e = recvEntry{}
		q.rq.head++
	}
}

// tell completes the work request at fault with the cause. It returns false if there is no work request to tell it by.
func (q *qp) tell() bool {
	c := &q.cause
	sends, recvs := q.sq.head < q.sq.tail, q.rq.head < q.rq.tail
	at := q.sq.head
	if c.victim == victimSend && c.index >= q.sq.head && c.index < q.sq.tail {
		at = c.index
	}
	switch {
	case c.victim == victimRecv && recvs, !sends && recvs:
		e := q.rq.at(q.rq.head)
		e.told = true
		q.recvs.Complete(q.recvWC(e, c.status, 0))
	case sends:
		e := q.sq.at(at)
		e.told = true
		q.sends.Complete(q.sendWC(e, c.status, 0))
	default:
		return false
	}
	return true
}

// Err is the cause of the error state, or nil. After Close without an earlier error it is verbs.ErrClosed.
func (q *qp) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause.err
}

func (q *qp) Close() error {
	q.closing.Do(q.close)
	return nil
}

func (q *qp) close() {
	q.mu.Lock()
	q.closed = true
	switch q.state {
	case stateIdle, stateConnecting:
		q.state, q.told = stateEnded, true
		q.cause.err = verbs.ErrClosed
		q.flush()
		q.mu.Unlock()
	case stateConnected:
		q.state, q.told = stateFailed, true
		q.cause = failure{status: verbs.StatusFlushed, err: verbs.ErrClosed}
		q.recall()
		fallthrough
	default:
		q.mu.Unlock()
		<-q.done
	}
	q.sends.Close()
	q.recvs.Close()
	q.pd.refs.Add(-1)
}
