package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/pmemfs/pmemfs/verbs"
)

// maxClients is how many connections a server takes at a time.
const maxClients = 4

// Serve lets clients measure until ctx ends. It owns the listener. ended is told of each client that has gone; its error is nil after an ordinary end.
func Serve(ctx context.Context, dev verbs.Device, listener verbs.Listener, ended func(client net.Addr, err error)) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer listener.Close()
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	places := make(chan struct{}, maxClients)
	for {
		req, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				req.Reject([]byte("the server ends"))
			}
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
		default:
			req.Reject([]byte("too many clients measure already"))
			continue
		}
		clients.Go(func() {
			err := serve(ctx, dev, req)
			<-places
			ended(req.RemoteAddr(), err)
		})
	}
}

func serve(ctx context.Context, dev verbs.Device, req verbs.ConnRequest) error {
	s, err := newSide(dev)
	if err == nil {
		defer s.close()
		err = s.meet(req.PrivateData())
	}
	if err != nil {
		req.Reject([]byte(err.Error())[:min(len(err.Error()), verbs.MaxReason)])
		return err
	}
	if err := req.Accept(s.qp, s.hello()); err != nil {
		return err
	}
	for {
		b, err := s.message(ctx, limit)
		if errors.Is(err, verbs.ErrTimeout) {
			s.busy = false // the client may be gone without a word
			continue       // or it measures what this side has nothing to do with
		}
		if ctx.Err() != nil || ended(err) {
			return nil
		}
		if err == nil {
			err = s.answer(ctx, b)
		}
		if err != nil {
			return err
		}
	}
}

// ended tells whether err is that of a client that has closed the connection. The completion with the cause may be that of a Send.
func ended(err error) bool {
	wc, ok := errors.AsType[*verbs.WCError](err)
	return ok && (wc.Status == verbs.StatusPeer || wc.Status == verbs.StatusFlushed)
}

// answer is one exchange of WRITEs.
func (s *side) answer(ctx context.Context, request []byte) error {
	if len(request) != requestSize {
		return fmt.Errorf("the client's message has %d bytes, want %d", len(request), requestSize)
	}
	size, n := binary.LittleEndian.Uint32(request), binary.LittleEndian.Uint32(request[4:])
	if size < MinSize || size > MaxSize || size%8 != 0 {
		return fmt.Errorf("the client asks for WRITEs of %d bytes: want a multiple of 8, %d to %d", size, MinSize, MaxSize)
	}
	e := newExchange(s, int(size), binary.LittleEndian.Uint64(request[8:]))
	s.busy = request[16] == 1 && runtime.GOMAXPROCS(0) > 1 // with one, nothing else of this process would run
	if err := s.send(0); err != nil {
		return err
	}
	for i := range n {
		if i%looksPerTime == 0 && ctx.Err() != nil {
			return nil // a client that is fast enough never leaves a word to wait for
		}
		if err := e.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}
