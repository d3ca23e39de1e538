package replicate

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// reap takes the completions that are there, appends their outcomes to out, and posts what they made room for. After an error the
// lane is of no further use.
func (l *lane) reap(out []outcome) ([]outcome, error) {
	for {
		n, err := l.cq.Poll(l.wcs[:])
		l.reaped += uint64(n)
		for i := range n {
			if out, err = l.complete(&l.wcs[i], out); err != nil {
				return out, err
			}
		}
		if err != nil {
			return out, fmt.Errorf("polling the lane: %w", err)
		}
		if n == 0 {
			return out, nil
		}
		if err := l.pump(); err != nil {
			return out, fmt.Errorf("posting to the lane: %w", err)
		}
	}
}

func (l *lane) complete(wc *verbs.WC, out []outcome) ([]outcome, error) {
	if l.copier.Mine(wc) {
		return out, l.copier.Complete(wc)
	}
	if wc.Status != verbs.StatusOK {
		return out, &verbs.WCError{Op: wc.Op, Status: wc.Status, ID: wc.ID, Cause: l.qp.Err()}
	}
	switch wc.ID & (1<<idBits - 1) {
	case idRecv:
		return l.answer(wc, out)
	case idRead:
		out = append(out, outcome{kind: outRead, n: wc.Len})
	}
	l.free += l.units[l.unitHead]
	l.unitHead = (l.unitHead + 1) % maxUnits
	l.unitN--
	return out, nil
}

// answer handles one flush answer and posts its receive again.
func (l *lane) answer(wc *verbs.WC, out []outcome) ([]outcome, error) {
	i := wc.ID >> idBits
	off := i * wire.AnswerSize
	if wc.Len > wire.AnswerSize {
		return out, errors.New("the target's answer is too long: run the same release of pmemfs on both sides")
	}
	a := &l.ans
	if err := a.Decode(l.recvs.Bytes()[off : off+uint64(wc.Len)]); err != nil {
		return out, err
	}
	if l.askN == 0 || a.Taken < l.taken || a.Taken > l.sent {
		return out, fmt.Errorf("answer to drain %d covers %d Sends of %d, or was not asked for: %w", a.Seq, a.Taken, l.sent, wire.ErrCorrupt)
	}
	l.taken = a.Taken
	last := l.asked[l.askHead]
	l.askHead = (l.askHead + 1) % maxAnswers
	l.askN--
	if err := l.postRecv(i); err != nil {
		return out, err
	}
	j := &l.jobs[l.head]
	if a.Seq != j.seq {
		return out, fmt.Errorf("answer to drain %d, drain %d is the oldest: %w", a.Seq, j.seq, wire.ErrCorrupt)
	}
	o := outcome{kind: outDrained, seq: a.Seq, status: a.Status, where: a.Where, term: a.Term}
	if a.Status == wire.FlushOK && !last {
		o.kind = outProgress
		return append(out, o), nil
	}
	*j = job{}
	l.head = (l.head + 1) % MaxInFlight
	l.n--
	if last {
		l.full--
	}
	return append(out, o), nil
}
