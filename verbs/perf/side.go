package perf

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// MaxSize is the most bytes of one work request.
	MaxSize = 1 << 20
	// MinSize is the least: the sequence number of an exchange of WRITEs.
	MinSize = 8

	magic       = "PMFPERF1"
	helloSize   = 24
	requestSize = 24
	messages    = 4   // receives and Sends at a time
	depth       = 512 // work requests

	// limit is how long the peer may be silent in the middle of something.
	limit = 10 * time.Second
	look  = 100 * time.Millisecond

	// Of a wait for a WRITE.
	looksPerTime = 256 // between two looks at the clock
	spin         = 100 * time.Microsecond
	pause        = 20 * time.Microsecond
	alone        = time.Millisecond // how long a busy side keeps the scheduler out
)

// IDs of work requests.
const (
	idOne = iota // the one that a loop waits for
	idSend
	idRecv
	idBulk
	idBits = 2
)

// region is where WRITEs go and READs come from, on the other side.
type region struct {
	addr uint64
	rkey uint32
}

// side is one end of a connection. It is used by one goroutine.
type side struct {
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	mem  []byte   // all that is registered. Not of Go's heap: this side looks at a word of it while the peer stores to it
	in   verbs.MR // MaxSize bytes that the peer stores to and reads
	out  verbs.MR // MaxSize bytes: source of WRITEs, sink of READs
	msgs verbs.MR // receives, then Sends
	peer region
	busy bool          // poll without ever sleeping, except in the middle of a transfer
	most time.Duration // limit

	wrs   [2]verbs.SendWR
	wcs   [1]verbs.WC
	early verbs.WC // of a message that came while done waited: a client is through with an exchange before the server's last completion
	came  bool     // early is set
}

func newSide(dev verbs.Device) (s *side, err error) {
	s = &side{dev: dev, most: limit}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.pd, err = dev.AllocPD(); err != nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	if s.cq, err = dev.CreateCQ(depth + messages); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	if s.qp, err = s.pd.CreateQP(verbs.QPAttr{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth, RecvDepth: messages}); err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	const messageBytes = 2 * messages * requestSize
	if s.mem, err = unix.Mmap(-1, 0, 2*MaxSize+messageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("mapping memory: %w", err)
	}
	free := s.mem
	for _, r := range []struct {
		mr     *verbs.MR
		size   int
		access verbs.Access
	}{{&s.in, MaxSize, verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead}, {&s.out, MaxSize, verbs.LocalWrite}, {&s.msgs, messageBytes, verbs.LocalWrite}} {
		if *r.mr, err = s.pd.RegisterMR(free[:r.size:r.size], r.access); err != nil {
			return nil, fmt.Errorf("registering %d bytes: %w", r.size, err)
		}
		free = free[r.size:]
	}
	for i := range uint64(messages) {
		if err := s.postRecv(i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *side) close() {
	if s.qp != nil {
		s.qp.Close()
	}
	for _, mr := range []verbs.MR{s.in, s.out, s.msgs} {
		if mr != nil {
			mr.Deregister()
		}
	}
	if s.cq != nil {
		s.cq.Close()
	}
	if s.pd != nil {
		s.pd.Close()
	}
	if s.mem != nil {
		unix.Munmap(s.mem)
	}
}

func (s *side) postRecv(i uint64) error {
	return s.qp.PostRecv([]verbs.RecvWR{{ID: i<<idBits | idRecv, Local: verbs.SGE{MR: s.msgs, Off: i * requestSize, Len: requestSize}}})
}

// hello is this side's private data.
func (s *side) hello() []byte {
	b := append([]byte(magic), make([]byte, helloSize-len(magic))...)
	binary.LittleEndian.PutUint64(b[8:], s.in.Addr())
	binary.LittleEndian.PutUint32(b[16:], s.in.RKey())
	return b
}

func (s *side) meet(private []byte) error {
	if len(private) != helloSize || string(private[:len(magic)]) != magic {
		return errors.New("the other side is no `pmemfs bench fabric` of this release")
	}
	s.peer = region{binary.LittleEndian.Uint64(private[8:]), binary.LittleEndian.Uint32(private[16:])}
	return nil
}

// send sends a message of n bytes, which stand in its buffer.
func (s *side) send(n uint64) error {
	wr := verbs.SendWR{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: s.msgs, Off: messages * requestSize, Len: n}}
	return s.qp.PostSend([]verbs.SendWR{wr})
}

func (s *side) sendBuffer() []byte { return s.msgs.Bytes()[messages*requestSize:][:requestSize] }

// message waits for a message and returns its bytes, which are good until the next one but messages-1. Completions of Sends are dropped.
func (s *side) message(ctx context.Context, patience time.Duration) ([]byte, error) {
	end := time.Now().Add(patience)
	for {
		n, err := s.poll()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			if err := s.wait(ctx, time.Until(end)); err != nil {
				return nil, err
			}
			continue
		}
		wc := &s.wcs[0]
		if wc.Status != verbs.StatusOK {
			return nil, s.failed(wc)
		}
		if wc.ID&(1<<idBits-1) == idRecv {
			i := wc.ID >> idBits
			b := append([]byte(nil), s.msgs.Bytes()[i*requestSize:][:wc.Len]...)
			return b, s.postRecv(i)
		}
	}
}

// poll takes the completion that is due to message.
func (s *side) poll() (int, error) {
	if s.came {
		s.came, s.wcs[0] = false, s.early
		return 1, nil
	}
	return s.cq.Poll(s.wcs[:])
}

// wait returns when there may be a completion.
func (s *side) wait(ctx context.Context, d time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case d <= 0:
		return fmt.Errorf("the other side is silent: %w", verbs.ErrTimeout)
	case s.busy:
		return nil
	}
	if err := s.cq.Wait(min(d, look)); err != nil && !errors.Is(err, verbs.ErrTimeout) {
		return err
	}
	return nil
}

func (s *side) failed(wc *verbs.WC) error {
	return &verbs.WCError{Op: wc.Op, Status: wc.Status, ID: wc.ID, Cause: s.qp.Err()}
}

// done waits for the completion of the one signaled work request that is posted.
func (s *side) done() error {
	var begin time.Time
	for looks := 1; ; looks++ {
		n, err := s.cq.Poll(s.wcs[:])
		if err != nil {
			return err
		}
		if n > 0 {
			if s.wcs[0].Status != verbs.StatusOK {
				return s.failed(&s.wcs[0])
			}
			switch {
			case s.wcs[0].ID == idSend:
				continue
			case s.wcs[0].ID&(1<<idBits-1) == idRecv:
				s.came, s.early = true, s.wcs[0]
				continue
			}
			return nil
		}
		switch {
		case !s.busy:
			err = s.cq.Wait(s.most)
		case looks%looksPerTime == 0:
			err = s.late(&begin)
		}
		if errors.Is(err, verbs.ErrTimeout) {
			return fmt.Errorf("no completion for %v: %w", s.most, err)
		}
		if err != nil {
			return err
		}
	}
}

// late is verbs.ErrTimeout once begin, which it sets at the first call, is too long ago.
func (s *side) late(begin *time.Time) error {
	if begin.IsZero() {
		*begin = time.Now()
	}
	if time.Since(*begin) > s.most {
		return verbs.ErrTimeout
	}
	return nil
}

// word is the last 8 bytes of a WRITE of size bytes, in memory that the peer stores to.
func (s *side) word(size int) *atomic.Uint64 { return wordAt(s.in.Bytes(), size-8) }

// await returns when the word has the value. It looks at it without a pause at first, then, unless the side is busy, with pauses: the
// goroutine or the process that is waited for may need the processor. A busy side does not even let other goroutines run for a while: each Gosched
// wakes a thread that looks for work, and that thread takes a processor from the peer or from the kernel's half of a software device.
func (s *side) await(ctx context.Context, w *atomic.Uint64, value uint64) error {
	var begin time.Time
	for looks := 1; w.Load() != value; looks++ {
		if looks%looksPerTime != 0 {
			continue
		}
		if err := cmp.Or(s.qp.Err(), ctx.Err()); err != nil {
			return err
		}
		now := time.Now()
		if begin.IsZero() {
			begin = now
		}
		switch d := now.Sub(begin); {
		case d > s.most:
			return fmt.Errorf("no WRITE of the other side for %v: %w", s.most, verbs.ErrTimeout)
		case s.busy && d < alone:
		case s.busy || d < spin:
			runtime.Gosched()
		default:
			time.Sleep(pause)
		}
	}
	return nil
}
