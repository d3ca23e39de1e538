package replicate

import (
	"fmt"

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
	if wc.Op == verbs.OpRecv {
		return l.how.complete(wc, unit{}, out)
	}
	u := l.retire()
	if wc.ID == idRead {
		return append(out, outcome{kind: outRead, n: wc.Len}), nil
	}
	return l.how.complete(wc, u, out)
}

// retire gives back the places of the oldest unit in the send queue.
func (l *lane) retire() unit {
	u := l.units[l.unitHead]
	l.free += u.slots
	l.unitHead = (l.unitHead + 1) % maxUnits
	l.unitN--
	return u
}

// ended takes the oldest drain out of the ring. o says how it ended.
func (l *lane) ended(o outcome) outcome {
	j := &l.jobs[l.head]
	o.kind, o.seq = outDrained, j.seq
	if j.whole {
		l.full--
	}
	*j = job{}
	l.head = (l.head + 1) % MaxInFlight
	l.n--
	return o
}
