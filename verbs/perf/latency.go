package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// exchange is one side of an exchange of WRITEs.
type exchange struct {
	*side
	size int
	next uint64 // sequence number of the next WRITE of this side
}

func newExchange(s *side, size int, first uint64) *exchange {
	e := &exchange{side: s, size: size, next: first}
	e.wrs[0] = s.write(size)
	e.wrs[0].Signaled = true
	return e
}

// turn posts the next WRITE and waits for its completion, as perftest does before it looks for the answer. The source, which held the WRITE before,
// is free: the answer of the peer has proven that that is placed.
func (e *exchange) turn() error {
	wordAt(e.out.Bytes(), e.size-8).Store(e.next)
	e.next++
	return e.roundTrip(1)
}

// trip is one WRITE and the answer to it.
func (e *exchange) trip(ctx context.Context) error {
	value := e.next
	if err := e.turn(); err != nil {
		return err
	}
	return e.await(ctx, e.word(e.size), value)
}

// serve answers one WRITE.
func (e *exchange) serve(ctx context.Context) error {
	if err := e.await(ctx, e.word(e.size), e.next); err != nil {
		return err
	}
	return e.turn()
}

// startExchange agrees with the server on n WRITEs of size bytes. first is the sequence number of the first: none was used before. From then on
// the server polls without ever sleeping if it is to be busy.
func (s *side) startExchange(ctx context.Context, size, n int, first uint64, busy bool) (*exchange, error) {
	b := s.sendBuffer()
	binary.LittleEndian.PutUint32(b, uint32(size))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	binary.LittleEndian.PutUint64(b[8:], first)
	binary.LittleEndian.PutUint64(b[16:], 0)
	if busy {
		b[16] = 1
	}
	if err := s.send(requestSize); err != nil {
		return nil, err
	}
	ready, err := s.message(ctx, limit)
	if err == nil && len(ready) != 0 {
		err = fmt.Errorf("a message of %d bytes came where the server was to be ready", len(ready))
	}
	if err != nil {
		return nil, err
	}
	return newExchange(s, size, first), nil
}

// roundTrip posts the first n work requests of s.wrs, of which the last is signaled, and waits for it.
func (s *side) roundTrip(n int) error {
	if err := s.qp.PostSend(s.wrs[:n]); err != nil {
		return err
	}
	return s.done()
}

// read makes a READ of size bytes.
func (s *side) read(size int) verbs.SendWR {
	return verbs.SendWR{ID: idOne, Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: s.out, Len: uint64(size)}, RemoteAddr: s.peer.addr, RKey: s.peer.rkey}
}

// write makes a WRITE of size bytes.
func (s *side) write(size int) verbs.SendWR {
	return verbs.SendWR{ID: idOne, Op: verbs.OpWrite, Inline: size <= s.dev.Caps().MaxInline, Local: verbs.SGE{MR: s.out, Len: uint64(size)},
		RemoteAddr: s.peer.addr, RKey: s.peer.rkey}
}

// measure times loop once for each place of times, after a tenth as many times to warm up. It looks at the clock once for each: in an emulated
// machine that is not cheap.
func measure(ctx context.Context, times []time.Duration, loop func() error) error {
	for range warmUp(len(times)) {
		if err := loop(); err != nil {
			return err
		}
	}
	begin := time.Now()
	var last time.Duration // since begin
	for i := range times {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := loop(); err != nil {
			return err
		}
		now := time.Since(begin)
		times[i], last = now-last, now
	}
	return ctx.Err()
}

func warmUp(n int) int { return max(1, n/10) }
