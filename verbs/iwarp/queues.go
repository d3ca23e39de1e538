package iwarp

import "github.com/pmemfs/pmemfs/verbs"

// sendQueue is the ring of posted work requests. Positions count from 0 and never wrap; head <= next <= tail <= head+len(ring).
type sendQueue struct {
	ring []sendEntry
	head uint64 // oldest that is not complete
	next uint64 // first that is not started
	tail uint64 // end

	reads              []uint64 // ring of the positions of started Reads, at most ORD of them
	readHead, readTail uint64
}

type sendEntry struct {
	wr   verbs.SendWR
	mr   *mr    // of wr.Local
	got  uint64 // bytes of a Read that were placed
	done bool
	told bool // completed with the cause of the error state
}

func (s *sendQueue) at(i uint64) *sendEntry { return &s.ring[i%uint64(len(s.ring))] }

// readsOut is the number of Reads that wait for their response.
func (s *sendQueue) readsOut() int { return int(s.readTail - s.readHead) }

// oldestRead is the Read that the next response belongs to, or nil.
func (s *sendQueue) oldestRead() *sendEntry {
	if s.readHead == s.readTail {
		return nil
	}
	return s.at(s.reads[s.readHead%uint64(len(s.reads))])
}

// start takes the next work request that may be started now. Reads above the limit wait, and what is fenced waits for the Reads before it; all behind
// them wait with them.
func (s *sendQueue) start(ord int) (*sendEntry, uint64) {
	if s.next == s.tail {
		return nil, 0
	}
	i := s.next
	e := s.at(i)
	if e.wr.Fence && s.readsOut() > 0 {
		return nil, 0
	}
	if e.wr.Op == verbs.OpRead {
		if s.readsOut() >= ord {
			return nil, 0
		}
		s.reads[s.readTail%uint64(len(s.reads))] = i
		s.readTail++
	}
	s.next++
	return e, i
}

// recvQueue is the ring of posted receives.
type recvQueue struct {
	ring       []recvEntry
	head, tail uint64
}

type recvEntry struct {
	wr   verbs.RecvWR
	mr   *mr
	told bool
}

func (r *recvQueue) at(i uint64) *recvEntry { return &r.ring[i%uint64(len(r.ring))] }

// inboundReads is the ring of Read Requests of the peer that were accepted and not answered yet, at most IRD.
type inboundReads struct {
	ring       []inboundRead
	head, tail uint64
}

type inboundRead struct {
	req readReq
	mr  *mr // source; nil for a Read of no bytes
	off uint64
}

func (r *inboundReads) at(i uint64) *inboundRead { return &r.ring[i%uint64(len(r.ring))] }

func (r *inboundReads) full() bool { return r.tail-r.head == uint64(len(r.ring)) }

func (q *qp) sendWC(e *sendEntry, s verbs.Status, n uint32) verbs.WC {
	return verbs.WC{ID: e.wr.ID, Op: e.wr.Op, Status: s, Len: n, QP: q}
}

func (q *qp) recvWC(e *recvEntry, s verbs.Status, n uint32) verbs.WC {
	return verbs.WC{ID: e.wr.ID, Op: verbs.OpRecv, Status: s, Len: n, QP: q}
}

// retire completes the work requests at the head that are done. The lock is held.
func (q *qp) retire() {
	s := &q.sq
	for s.head < s.next {
		e := s.at(s.head)
		if !e.done {
			return
		}
		if e.wr.Signaled {
			var n uint32
			if e.wr.Op == verbs.OpRead {
				n = uint32(e.got)
			}
			q.sends.Complete(q.sendWC(e, verbs.StatusOK, n))
		} else {
			q.sends.Skip()
		}
		*e = sendEntry{}
		s.head++
	}
}
