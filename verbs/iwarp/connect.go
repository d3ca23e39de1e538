package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// Connect carries out the initiator's side of the set-up (RFC 5044 section 7, RFC 6581).
func (d *device) Connect(ctx context.Context, vq verbs.QP, addr string, private []byte) ([]byte, error) {
	q, ok := vq.(*qp)
	if !ok || q.pd.dev != d {
		return nil, errors.New("iwarp: connect: the queue pair is of another device")
	}
	if err := checkPrivate(private, verbs.MaxPrivate); err != nil {
		return nil, err
	}
	if err := q.claim(); err != nil {
		return nil, fmt.Errorf("iwarp: connect to %s: %w", addr, err)
	}
	answer, err := d.initiate(ctx, q, addr, private)
	if err != nil {
		q.unclaim()
		return nil, fmt.Errorf("iwarp: connect to %s: %w", addr, err)
	}
	return answer, nil
}

func (d *device) initiate(ctx context.Context, q *qp, addr string, private []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.SetupTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, cause(ctx, err)
	}
	answer, err := d.exchange(ctx, q, conn, private)
	if err != nil {
		_ = conn.Close() // the error that counts is err
		return nil, err
	}
	return answer, nil
}

// exchange sends the request, takes the reply, and starts the queue pair on conn.
func (d *device) exchange(ctx context.Context, q *qp, conn net.Conn, private []byte) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := d.opt.request(private)
	if _, err := conn.Write(req.appendTo(nil, requestKey)); err != nil {
		return nil, cause(ctx, err)
	}
	rep, err := readMPA(conn, replyKey)
	if err != nil {
		return nil, cause(ctx, err)
	}
	t, err := d.opt.settle(req, rep)
	if err != nil {
		return nil, err
	}
	if !stop() {
		return nil, cause(ctx, context.Cause(ctx))
	}
	if err := q.start(conn, t); err != nil {
		return nil, err
	}
	q.sayReady()
	return rep.private, nil
}

// cause prefers the end of the context to the I/O error that it brought about. A dial that has the deadline of the context can
// give up a moment before the context does.
func cause(ctx context.Context, err error) error {
	var late net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil || errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("no answer in time: %w", verbs.ErrTimeout)
	}
	return err
}

// An initiator sends its ready-to-receive frame again and again until the responder has sent something. siw, as the responder, sends its reply to the
// set-up before it looks for what comes behind that (siw_accept in siw_cm.c, Linux 5.3 to 7.3): what is faster lies there until more bytes arrive.
const (
	firstReady = 50 * time.Millisecond
	lastReady  = time.Second
)

// sayReady sends the ready-to-receive frame, a zero-length Write as siw's: a responder may send nothing before the first frame
// of the initiator (RFC 5044 section 7.1.2), which else may never come.
func (q *qp) sayReady() {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if q.tx.ended { // nothing follows a Terminate
		return
	}
	h := header{tagged: true, op: opWrite, stag: 1}
	q.tx.message(&h, nil, 0, 0, noOwner)
	q.tx.flush()
}

func checkPrivate(b []byte, most int) error {
	if len(b) > most {
		return fmt.Errorf("iwarp: %d bytes of private data are more than %d", len(b), most)
	}
	return nil
}
