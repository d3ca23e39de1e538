package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// The receiver's ring: memory of its own, not the file. The pages of a mapped file could be written back while the device still
// stores to them.
const (
	slots       = 8
	slotSize    = 1 << 20
	maxSessions = 8 // connections at a time
)

type receiver struct {
	dev       verbs.Device
	root      *os.Root
	overwrite bool
	every     uint64 // bytes after which what has arrived is made durable
	limit     time.Duration
	log       func(format string, a ...any)
}

// serve takes connections until ctx ends or, with once, until one file has arrived or was refused.
func (r *receiver) serve(ctx context.Context, listener verbs.Listener, once bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	places := make(chan struct{}, maxSessions)
	for {
		req, err := listener.Accept()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			if errors.Is(err, verbs.ErrClosed) {
				return nil
			}
			return err
		}
		select {
		case places <- struct{}{}:
		default:
			req.Reject([]byte("too many files are being received"))
			continue
		}
		sessions.Go(func() {
			err := r.session(ctx, req)
			<-places
			if once && (err == nil || errors.As(err, new(*refusal))) {
				cancel(err)
			}
		})
	}
}

// session receives one file.
func (r *receiver) session(ctx context.Context, req verbs.ConnRequest) error {
	from := req.RemoteAddr()
	err := r.accept(ctx, req)
	if err != nil {
		r.log("%v: %v", from, err)
	}
	return err
}

func (r *receiver) accept(ctx context.Context, req verbs.ConnRequest) error {
	if string(req.PrivateData()) != private {
		req.Reject([]byte("this is a receiver of sendfile, version 1"))
		return refuse(reasonProtocol, "a connection of another program was rejected")
	}
	l, err := newLink(r.dev, r.limit)
	if err == nil {
		defer l.close()
		err = l.makeRing(slots, slotSize, verbs.LocalWrite|verbs.RemoteWrite)
	}
	if err != nil {
		req.Reject([]byte("the receiver lacks resources"))
		return err
	}
	if err := req.Accept(l.qp, nil); err != nil {
		return err
	}
	l.connected()
	err = r.take(ctx, l)
	if why, ok := errors.AsType[*refusal](err); ok {
		l.giveUp(why)
	}
	return err
}

// take answers one OFFER.
func (r *receiver) take(ctx context.Context, l *link) error {
	m, err := l.expect(ctx, kindOffer)
	if err != nil {
		return err
	}
	offer := *m
	if err := checkName(offer.name); err != nil {
		return err
	}
	if _, err := r.root.Lstat(offer.name); err == nil && !r.overwrite {
		return refuseExisting(offer.name)
	}
	p, note, err := openPartial(ctx, r.root, offer.name, offer.size, r.every, l.alive)
	if err != nil {
		return err
	}
	if note != "" {
		r.log("%s: begins anew: %s", offer.name, note)
	}
	err = r.receive(ctx, l, p, fs.FileMode(offer.mode))
	if err == nil || p.gone {
		p.f.Close()
		return err
	}
	if err := p.close(); err != nil {
		r.log("%s: what has arrived could not be kept: %v", offer.name, err)
	}
	return fmt.Errorf("%s: %w; %d of %d bytes are kept", offer.name, err, p.durable, p.size)
}

// receive gets the content of p and gives the file its name.
func (r *receiver) receive(ctx context.Context, l *link, p *partial, mode fs.FileMode) error {
	accept := message{kind: kindAccept, off: p.durable, sum: [sumSize]byte(p.sum.Sum(nil)), addr: l.ring.Addr(), rkey: l.ring.RKey(), slot: slotSize, n: slots}
	if err := l.send(ctx, accept); err != nil {
		return err
	}
	start, err := l.expect(ctx, kindStart)
	if err != nil {
		return err
	}
	switch start.off {
	case p.durable:
	case 0:
		r.log("%s: begins anew: the sender has other content than the %d bytes that are here", p.name, p.durable)
		if err := p.restart(); err != nil {
			return err
		}
	default:
		return refuse(reasonProtocol, "START at %d, %d bytes are here", start.off, p.durable)
	}
	begun := p.written
	sum, err := r.drain(ctx, l, p)
	if err != nil {
		return err
	}
	if err := p.finish(sum, mode, r.overwrite); err != nil {
		return err
	}
	r.log("%s: %d bytes, %d of them were here already, SHA-256 %x", p.name, p.size, begun, sum)
	if err := l.send(ctx, message{kind: kindDone, sum: sum}); err != nil {
		return nil // the file is there, and the sender finds it if it asks again
	}
	for { // the sender closes when it has the message
		if _, err := l.receive(ctx, l.limit); err != nil {
			return nil
		}
	}
}

// drain takes slots out of the ring until the sender says that it has filled the last one, and returns the sum that it names.
func (r *receiver) drain(ctx context.Context, l *link, p *partial) (sum [sumSize]byte, err error) {
	for seq := uint64(0); ; {
		m, err := l.receive(ctx, l.limit)
		if err != nil {
			return sum, err
		}
		switch {
		case m == nil:
			continue
		case m.kind == kindFinish:
			return m.sum, nil
		case m.kind != kindFilled:
			return sum, outOfTurn(m, "FILLED")
		case m.seq != seq || m.n == 0 || m.n > slotSize || uint64(m.n) > p.size-p.written:
			return sum, refuse(reasonProtocol, "slot %d with %d bytes came, after slot %d, %d of %d bytes", m.seq, m.n, seq, p.written, p.size)
		}
		if err := p.write(l.ring.Bytes()[seq%slots*slotSize:][:m.n]); err != nil {
			return sum, err
		}
		seq++
		if err := l.send(ctx, message{kind: kindFreed, seq: seq}); err != nil {
			return sum, err
		}
	}
}
