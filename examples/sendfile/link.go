package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/bulk"
)

const (
	maxSlots  = 64 // slots of a ring; each is announced by one message, and given back by one
	spare     = 8  // messages beyond those of the slots
	maxMsgs   = maxSlots + spare
	look      = 100 * time.Millisecond // how often a side that waits looks whether it is to stop
	farewell  = time.Second
	idleAlive = time.Second  // how often a side that computes says that it is alive
	private   = "sendfile 1" // of the connection request, so that other programs are turned away at once
)

// IDs of work requests.
const (
	idSend = iota
	idRecv
	idData
	idBits = 2
)

// link is a connection: messages by Send and Recv, and one ring of memory for data. It is used by one goroutine.
//
// A message buffer is written again maxMsgs messages later. By then the peer has answered what was in it: of FILLED and FREED at
// most one for each slot is unanswered, of the others fewer than spare, and all ALIVE messages are equal.
type link struct {
	dev   verbs.Device
	pd    verbs.PD // of its own: no other connection reaches the ring
	cq    verbs.CQ
	qp    verbs.QP
	sends verbs.MR
	recvs verbs.MR
	ring  verbs.MR // data: source of the sender, destination at the receiver
	data  *bulk.Copier
	limit time.Duration // how long the peer may be silent

	sent, freed uint64 // message buffers
	heard       time.Time
	spoke       time.Time
	wcs         [16]verbs.WC
	ready       []verbs.WC // completions that were polled and not handled
	in          message
}

// newLink makes everything but the ring, with all receives posted.
func newLink(dev verbs.Device, limit time.Duration) (l *link, err error) {
	l = &link{dev: dev, limit: limit}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	const depth = maxMsgs + bulk.DefaultWindow
	if l.pd, err = dev.AllocPD(); err != nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	if l.cq, err = dev.CreateCQ(depth + maxMsgs); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	if l.qp, err = l.pd.CreateQP(verbs.QPAttr{SendCQ: l.cq, RecvCQ: l.cq, SendDepth: depth, RecvDepth: maxMsgs}); err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	for _, mr := range []*verbs.MR{&l.sends, &l.recvs} {
		if *mr, err = l.pd.RegisterMR(make([]byte, maxMsgs*maxMessage), verbs.LocalWrite); err != nil {
			return nil, fmt.Errorf("registering message buffers: %w", err)
		}
	}
	for i := range uint64(maxMsgs) {
		if err := l.postRecv(i); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *link) postRecv(i uint64) error {
	return l.qp.PostRecv([]verbs.RecvWR{{ID: i<<idBits | idRecv, Local: verbs.SGE{MR: l.recvs, Off: i * maxMessage, Len: maxMessage}}})
}

// connected starts the clocks.
func (l *link) connected() { l.heard, l.spoke = time.Now(), time.Now() }

// close ends the connection and frees everything.
func (l *link) close() {
	if l.qp != nil {
		l.qp.Close()
	}
	for _, mr := range []verbs.MR{l.sends, l.recvs, l.ring} {
		if mr != nil {
			mr.Deregister()
		}
	}
	if l.cq != nil {
		l.cq.Close()
	}
	if l.pd != nil {
		l.pd.Close()
	}
}

// makeRing registers n slots of size bytes.
func (l *link) makeRing(n, size uint32, access verbs.Access) (err error) {
	if l.ring, err = l.pd.RegisterMR(make([]byte, uint64(n)*uint64(size)), access); err != nil {
		return fmt.Errorf("registering a ring of %d slots of %d bytes: %w", n, size, err)
	}
	return nil
}

// send sends a message.
func (l *link) send(ctx context.Context, m message) error {
	if l.sent-l.freed == maxMsgs {
		return fmt.Errorf("sending %v: %w", m.kind, verbs.ErrQueueFull)
	}
	off := l.sent % maxMsgs * maxMessage
	n := m.encode(l.sends.Bytes()[off : off+maxMessage : off+maxMessage])
	l.spoke = time.Now()
	if err := l.qp.PostSend([]verbs.SendWR{{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: l.sends, Off: off, Len: uint64(n)}}}); err != nil {
		return fmt.Errorf("sending %v: %w", m.kind, err)
	}
	l.sent++
	return nil
}

// alive sends a sign of life if the last message is some time ago. A side that computes for long calls it now and then, at a time
// when the peer waits for its next message.
func (l *link) alive(ctx context.Context) error {
	m, err := l.receive(ctx, 0)
	if m != nil {
		err = outOfTurn(m, "nothing")
	}
	if err != nil || time.Since(l.spoke) < idleAlive {
		return err
	}
	return l.send(ctx, message{kind: kindAlive})
}

// receive handles completions up to the first that is a message, and returns that; it is good until the next call. It returns nil
// when it has handled all that were there or has waited for d. A REFUSE of the peer and every failure is an error, and so is a peer
// that has been silent for too long.
func (l *link) receive(ctx context.Context, d time.Duration) (*message, error) {
	if len(l.ready) == 0 {
		n, err := l.cq.Poll(l.wcs[:])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, l.wait(ctx, d)
		}
		l.ready = l.wcs[:n]
	}
	for len(l.ready) > 0 {
		wc := &l.ready[0]
		l.ready = l.ready[1:]
		if m, err := l.complete(wc); m != nil || err != nil {
			return m, err
		}
	}
	return nil, nil
}

// wait waits up to d for a completion.
func (l *link) wait(ctx context.Context, d time.Duration) error {
	since := l.heard
	if l.spoke.After(since) { // this side was busy, and has answered only then
		since = l.spoke
	}
	silent := time.Since(since)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case d == 0:
		return nil
	case silent >= l.limit:
		return fmt.Errorf("the peer has said nothing for %v: %w", silent.Round(time.Millisecond), verbs.ErrTimeout)
	}
	err := l.cq.Wait(min(d, l.limit-silent, look))
	if errors.Is(err, verbs.ErrTimeout) {
		return nil
	}
	return err
}

// complete handles one completion, and returns the message if it is one for the caller.
func (l *link) complete(wc *verbs.WC) (*message, error) {
	if l.data != nil && l.data.Mine(wc) {
		return nil, l.data.Complete(wc)
	}
	if wc.Status != verbs.StatusOK {
		return nil, &verbs.WCError{Op: wc.Op, Status: wc.Status, ID: wc.ID, Cause: l.qp.Err()}
	}
	if wc.ID&(1<<idBits-1) == idSend {
		l.freed++
		return nil, nil
	}
	l.heard = time.Now()
	i := wc.ID >> idBits
	m := &l.in
	if err := m.decode(l.recvs.Bytes()[i*maxMessage:][:wc.Len]); err != nil {
		return nil, refuse(reasonProtocol, "%v", err)
	}
	if err := l.postRecv(i); err != nil {
		return nil, err
	}
	switch m.kind {
	case kindAlive:
		return nil, nil
	case kindRefuse:
		return nil, &peerError{m.why, m.text}
	}
	return m, nil
}

// expect waits for a message of kind k.
func (l *link) expect(ctx context.Context, k kind) (*message, error) {
	for {
		m, err := l.receive(ctx, l.limit)
		if err != nil {
			return nil, err
		}
		if m != nil && m.kind != k {
			return nil, outOfTurn(m, k.String())
		}
		if m != nil {
			return m, nil
		}
	}
}

func outOfTurn(m *message, want string) error {
	return refuse(reasonProtocol, "%v came in place of %s", m.kind, want)
}

// giveUp tells the peer why, and waits a little until it has closed the connection: closing first could overtake the message.
func (l *link) giveUp(r *refusal) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if l.send(ctx, message{kind: kindRefuse, why: r.why, text: r.text}) != nil {
		return
	}
	for {
		if _, err := l.receive(ctx, farewell); err != nil {
			return
		}
	}
}
