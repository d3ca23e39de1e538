package target

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// credits is how many receives a lane has posted: so many Sends an initiator may have unanswered.
	credits = 64
	// answers is how many answers a lane may have on their way. An initiator that keeps to its credits has at most that many
	// requests unanswered, and as many again may wait in the completion queue ahead of the completions of their answers.
	answers = 2*credits + 16
	// idleWait is how long a handler sleeps before it looks around without a completion.
	idleWait = time.Second
)

// State of a lane. It is made connecting, and is idle when its connection stands. The handler moves idle to busy and back around each request;
// whoever ends the lane moves any state to closing, and closes the queue pair itself if no request was under way, else leaves
// that to the handler: a request that was begun is finished and answered. Closing the queue pair also calls off a connection in the making,
// for which a peer that falls silent could else make everybody wait.
const (
	laneIdle int32 = iota
	laneConnecting
	laneBusy
	laneClosing
)

// failure is why a session makes nothing persistent any more. term is that of the session, or the one that fenced it.
type failure struct {
	status wire.FlushStatus
	where  uint64 // pool offset
	term   uint64
}

// lane is one connection of a grant and its flush handler, which is the only user of all fields but state.
type lane struct {
	g     *grant
	state atomic.Int32
	done  chan struct{} // closed when the handler has ended and nothing of the lane is left

	qp         verbs.QP
	cq         verbs.CQ
	recv, send verbs.MR // credits buffers of MaxFlush bytes; answers buffers of AnswerSize bytes

	req    wire.Flush
	taken  uint64 // Sends taken so far
	answer uint64 // answers posted so far; number n uses buffer n % answers
	free   int    // answer buffers not on their way
	sendWR [1]verbs.SendWR
	recvWR [1]verbs.RecvWR
	wcs    [16]verbs.WC
}

// newLane makes a queue pair with all receives posted.
func newLane(g *grant, dev verbs.Device) (l *lane, err error) {
	l = &lane{g: g, done: make(chan struct{}), free: answers}
	l.state.Store(laneConnecting)
	l.req.Ranges = make([]pmem.Range, 0, wire.MaxRanges)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.release())
		}
	}()
	if l.cq, err = dev.CreateCQ(credits + answers); err != nil {
		return nil, fmt.Errorf("target: completion queue of a lane: %w", err)
	}
	if l.recv, err = g.pd.RegisterMR(make([]byte, credits*wire.MaxFlush), verbs.LocalWrite); err != nil {
		return nil, fmt.Errorf("target: register receive buffers: %w", err)
	}
	if l.send, err = g.pd.RegisterMR(make([]byte, answers*wire.AnswerSize), verbs.LocalWrite); err != nil {
		return nil, fmt.Errorf("target: register answer buffers: %w", err)
	}
	l.qp, err = g.pd.CreateQP(verbs.QPAttr{SendCQ: l.cq, RecvCQ: l.cq, SendDepth: answers, RecvDepth: credits})
	if err != nil {
		return nil, fmt.Errorf("target: queue pair of a lane: %w", err)
	}
	for i := range uint64(credits) {
		if err := l.postRecv(i); err != nil {
			return nil, fmt.Errorf("target: post receives: %w", err)
		}
	}
	return l, nil
}

// release gives back what newLane made. The handler has ended or never began.
func (l *lane) release() error {
	var errs []error
	if l.qp != nil {
		errs = append(errs, l.qp.Close())
	}
	for _, mr := range []verbs.MR{l.recv, l.send} {
		if mr != nil {
			errs = append(errs, mr.Deregister())
		}
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Close())
	}
	return errors.Join(errs...)
}

// connected is called before the handler begins. It changes nothing if the lane is closed already.
func (l *lane) connected() { l.state.CompareAndSwap(laneConnecting, laneIdle) }

// close ends the lane; done is closed some time after. It waits for nothing but the queue pair.
func (l *lane) close() {
	if was := l.state.Swap(laneClosing); was == laneIdle || was == laneConnecting {
		_ = l.qp.Close() // the handler closes it again and reports
	}
}

// run is the flush handler. It returns when the queue pair is in the error state or the lane is closed.
func (l *lane) run() error {
	for {
		n, err := l.poll(len(l.wcs))
		if err != nil {
			return err
		}
		if l.state.Load() == laneClosing {
			return nil
		}
		if n == 0 {
			if err := l.cq.Wait(idleWait); err != nil && !errors.Is(err, verbs.ErrTimeout) {
				return err
			}
		}
	}
}

// poll handles up to limit completions and tells how many there were.
func (l *lane) poll(limit int) (int, error) {
	n, err := l.cq.Poll(l.wcs[:limit])
	for i := 0; i < n && err == nil; i++ {
		err = l.complete(&l.wcs[i])
	}
	return n, err
}

func (l *lane) complete(wc *verbs.WC) error {
	if wc.Status != verbs.StatusOK {
		return &verbs.WCError{Op: wc.Op, Status: wc.Status, ID: wc.ID, Cause: l.qp.Err()}
	}
	if wc.Op == verbs.OpSend {
		l.free++
		return nil
	}
	if !l.state.CompareAndSwap(laneIdle, laneBusy) {
		return nil // closing: the request was not begun
	}
	err := l.serve(wc.ID, wc.Len)
	l.state.CompareAndSwap(laneBusy, laneIdle)
	return err
}

// serve carries out the request in receive buffer slot. The receive is posted again before the answer, whose field taken
// tells the initiator that it is.
func (l *lane) serve(slot uint64, n uint32) error {
	buf := l.recv.Bytes()[slot*wire.MaxFlush:][:n]
	wanted, f := l.flush(buf)
	l.taken++
	if err := l.postRecv(slot); err != nil {
		return err
	}
	if !wanted {
		return nil
	}
	return l.postAnswer(f)
}

// flush makes the ranges of the request persistent, after their bytes were copied from the staging area if they stand there, and then
// stores its seal. After the first failure of the session nothing is done any more.
func (l *lane) flush(buf []byte) (wanted bool, f *failure) {
	if err := l.req.Decode(buf); err != nil {
		l.req.Seq = 0
		return true, l.g.fail(wire.FlushBadRequest, 0, err)
	}
	if f := l.g.failure.Load(); f != nil {
		return l.req.Answer, f
	}
	if l.req.Session != l.g.id {
		return l.req.Answer, l.g.fail(wire.FlushBadRequest, 0, errWrongSession)
	}
	if where, ok := l.req.Check(l.g.size.Load()); !ok {
		return l.req.Answer, l.g.fail(wire.FlushBadRange, where, errBadRange)
	}
	if err := l.g.checkStage(&l.req); err != nil {
		return l.req.Answer, l.g.fail(wire.FlushBadRequest, 0, err)
	}
	if l.req.Stage != wire.Unstaged && !mutant.On(mutant.StagedLate) {
		if err := l.g.move(&l.req); err != nil {
			return l.req.Answer, l.g.fail(wire.FlushIO, whereOf(err, &l.req), err)
		}
	}
	if l.req.Stage == wire.Fetch {
		return l.req.Answer, nil
	}
	if mutant.On(mutant.TargetSealFirst) {
		_ = pmem.Drain(l.g.region, nil, l.req.Seal)
	}
	if err := pmem.Drain(l.g.region, l.req.Ranges, l.req.Seal); err != nil {
		return l.req.Answer, l.g.fail(wire.FlushIO, whereOf(err, &l.req), err)
	}
	if l.req.Stage != wire.Unstaged && mutant.On(mutant.StagedLate) {
		_ = l.g.move(&l.req)
	}
	return l.req.Answer, nil
}

var (
	errWrongSession = errors.New("target: flush request of another session")
	errBadRange     = errors.New("target: flush request outside the pool")
	errNoAnswers    = errors.New("target: the initiator does not take its answers")
)

// whereOf is the pool offset of a failed drain, as exact as the error has it.
func whereOf(err error, req *wire.Flush) uint64 {
	if fe, ok := errors.AsType[*pmem.FaultError](err); ok {
		return fe.Off
	}
	if se, ok := errors.AsType[*pmem.SyncError](err); ok {
		return se.Off
	}
	if len(req.Ranges) > 0 {
		return req.Ranges[0].Off
	}
	return req.Seal.Off
}

func (l *lane) postRecv(slot uint64) error {
	l.recvWR[0] = verbs.RecvWR{ID: slot, Local: verbs.SGE{MR: l.recv, Off: slot * wire.MaxFlush, Len: wire.MaxFlush}}
	return l.qp.PostRecv(l.recvWR[:])
}

// postAnswer answers the request just served; f is nil if all went well.
func (l *lane) postAnswer(f *failure) error {
	if l.free == 0 {
		return errNoAnswers
	}
	a := wire.FlushAnswer{Status: wire.FlushOK, Seq: l.req.Seq, Taken: l.taken, Term: l.g.term}
	if f != nil {
		a.Status, a.Where, a.Term = f.status, f.where, f.term
	}
	off := l.answer % answers * wire.AnswerSize
	a.Encode(l.send.Bytes()[off:])
	l.sendWR[0] = verbs.SendWR{ID: l.answer, Op: verbs.OpSend, Signaled: true,
		Local: verbs.SGE{MR: l.send, Off: off, Len: wire.AnswerSize}}
	if err := l.qp.PostSend(l.sendWR[:]); err != nil {
		return err
	}
	l.answer++
	l.free--
	return nil
}
