package iwarp

import (
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

// PostRecv posts receives, also before the queue pair is connected.
func (q *qp) PostRecv(wrs []verbs.RecvWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return verbs.ErrClosed
	}
	for i := range wrs {
		if _, err := local(q.pd, wrs[i].Local, verbs.LocalWrite); err != nil {
			return fmt.Errorf("iwarp: post receive (work request %d): %w", wrs[i].ID, err)
		}
	}
	if !q.recvs.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	for i := range wrs {
		e := q.rq.at(q.rq.tail)
		*e = recvEntry{wr: wrs[i]}
		e.mr, _ = wrs[i].Local.MR.(*mr)
		q.rq.tail++
	}
	if q.state == stateEnded {
		q.flush()
	}
	return nil
}
