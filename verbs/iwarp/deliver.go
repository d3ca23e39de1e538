package iwarp

import "github.com/pmemfs/pmemfs/verbs"

// What receiving changes in the queues. Entries that rx got a pointer to stay where they are until it takes them off:
// nobody else does, except flush, which runs after it.

// heard notes that a frame of the peer has arrived: a responder may send, and an initiator need not say any more that it is ready.
func (q *qp) heard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unheard = false
	if !q.gated {
		return
	}
	q.gated = false
	if q.sq.next < q.sq.tail {
		q.wakeServer()
	}
}

func (q *qp) oldestRecv() *recvEntry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rq.head == q.rq.tail {
		return nil
	}
	return q.rq.at(q.rq.head)
}

func (q *qp) recvDone(e *recvEntry, n uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wc := q.recvWC(e, verbs.StatusOK, n)
	*e = recvEntry{}
	q.rq.head++
	q.recvs.Complete(wc)
}

func (q *qp) oldestRead() *sendEntry {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sq.oldestRead()
}

// readPosition is the position of the oldest Read in the send queue.
func (q *qp) readPosition() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sq.reads[q.sq.readHead%uint64(len(q.sq.reads))]
}

// readDone completes the oldest Read and starts what waited for its end.
func (q *qp) readDone(e *sendEntry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.done = true
	q.sq.readHead++
	q.retire()
	if q.sq.next < q.sq.tail {
		q.wakeServer()
	}
}

// acceptRead queues a Read of the peer, unless it has more outstanding than agreed.
func (q *qp) acceptRead(r *inboundRead) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inbound.full() {
		return false
	}
	*q.inbound.at(q.inbound.tail) = *r
	q.inbound.tail++
	q.wakeServer()
	return true
}
