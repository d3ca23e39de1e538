//go:build linux && cgo

package ibverbs

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

// #cgo noescape shim_post_send
// #cgo nocallback shim_post_send
// #cgo noescape shim_post_recv
// #cgo nocallback shim_post_recv
// #include "shim.h"
import "C"

var errNotConnected = errors.New("ibverbs: the queue pair is not connected")

// PostSend posts a batch with one crossing. A queue pair that has failed takes it, and flushes it.
func (q *qp) PostSend(wrs []verbs.SendWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state {
	case stateClosed:
		return verbs.ErrClosed
	case stateIdle, stateConnecting:
		return errNotConnected
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return err
		}
	}
	if !q.sq.account.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	direct := q.state == stateConnected
	for i := range wrs {
		w := &wrs[i]
		reported := w.Signaled || q.dev.siw && w.Op == verbs.OpRead // see complete
		*q.sq.at(q.sq.tail) = request{id: w.ID, len: uint32(w.Local.Len), op: w.Op, signaled: w.Signaled, reported: reported}
		if direct {
			q.fill(i, q.sq.tail, w, reported)
		}
		q.sq.tail++
	}
	if !direct {
		q.settle()
		return nil
	}
	if len(wrs) > 0 {
		var posted C.int
		q.posted(&q.sq, len(wrs), C.shim_post_send(q.addr, C.int(len(wrs)), &posted), int(posted))
	}
	return nil
}

// posted looks at what the device said to a batch. If it took only a part of it, the rest is flushed like all that follows.
func (q *qp) posted(k *queue, n int, errno C.int, taken int) {
	k.device = k.tail
	if errno == 0 {
		return
	}
	q.fail(verbs.StatusTransport, failed("ibverbs: post", errno))
	k.device = k.tail - uint32(n-taken)
	q.settle()
}

// checkSend reports a request that is wrong in itself.
func (q *qp) checkSend(w *verbs.SendWR) error {
	if w.Local.Len > verbs.MaxMessage {
		return fmt.Errorf("ibverbs: %v of %d bytes: a work request moves %d at most", w.Op, w.Local.Len, verbs.MaxMessage)
	}
	if w.Inline && (w.Op != verbs.OpWrite && w.Op != verbs.OpSend || w.Local.Len > uint64(q.dev.caps.MaxInline)) {
		return fmt.Errorf("ibverbs: %v of %d bytes inline: only a WRITE or SEND of %d bytes at most can be", w.Op, w.Local.Len, q.dev.caps.MaxInline)
	}
	switch w.Op {
	case verbs.OpWrite, verbs.OpSend:
		return q.checkLocal(&w.Local, 0)
	case verbs.OpRead:
		return q.checkLocal(&w.Local, verbs.LocalWrite)
	case verbs.OpFlush:
		if !q.dev.caps.Flush {
			return fmt.Errorf("ibverbs: native FLUSH: RDMA device %s: %w", q.dev.name, verbs.ErrUnsupported)
		}
		if w.Local.MR != nil || w.Local.Off != 0 || w.Flush > verbs.FlushVisible {
			return errors.New("ibverbs: a FLUSH has a length, but no local region, and one of two types")
		}
		return nil
	case verbs.OpAtomicWrite:
		if !q.dev.caps.AtomicWrite {
			return fmt.Errorf("ibverbs: native ATOMIC_WRITE: RDMA device %s: %w", q.dev.name, verbs.ErrUnsupported)
		}
		if w.RemoteAddr%8 != 0 {
			return fmt.Errorf("ibverbs: ATOMIC_WRITE to address %#x, which is not a multiple of 8", w.RemoteAddr)
		}
		return nil
	}
	return fmt.Errorf("ibverbs: operation %v cannot be sent", w.Op)
}

func (q *qp) checkLocal(s *verbs.SGE, need verbs.Access) error {
	if s.MR == nil && s.Len == 0 {
		return nil
	}
	m, ok := s.MR.(*mr)
	if !ok {
		return fmt.Errorf("ibverbs: %d bytes of no region of this device", s.Len)
	}
	return m.check(q.pd, s, need)
}

// fill puts a request into place i of the batch.
func (q *qp) fill(i int, seq uint32, w *verbs.SendWR, reported bool) {
	c := &q.rings.send[i]
	*c = C.struct_shim_send{
		id: C.uint64_t(workID(q.handle, false, seq)), op: C.uint8_t(w.Op), len: C.uint64_t(w.Local.Len),
		raddr: C.uint64_t(w.RemoteAddr), rkey: C.uint32_t(w.RKey),
	}
	if reported {
		c.flags |= C.SHIM_SIGNALED
	}
	if w.Fence {
		c.flags |= C.SHIM_FENCE
	}
	switch w.Op {
	case verbs.OpFlush:
		c.visible = C.uint8_t(w.Flush)
		return
	case verbs.OpAtomicWrite:
		c.value = C.uint64_t(littleEndian(w.Value))
		return
	}
	m, ok := w.Local.MR.(*mr)
	switch {
	case !ok || w.Local.Len == 0: // an empty one needs no memory
	case w.Inline:
		at := q.rings.inline[i*q.inlineSize():][:w.Local.Len]
		copy(at, m.mem[w.Local.Off:])
		c.flags |= C.SHIM_INLINE
		c.laddr = C.uint64_t(address(at))
	default:
		c.laddr, c.lkey = C.uint64_t(m.addr+w.Local.Off), C.uint32_t(m.lkey)
	}
}

func (q *qp) inlineSize() int { return int(q.c.max_inline) }

// PostRecv posts receives. Before the connection, and while it stands, they go to the device.
func (q *qp) PostRecv(wrs []verbs.RecvWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == stateClosed {
		return verbs.ErrClosed
	}
	for i := range wrs {
		s := &wrs[i].Local
		if s.Len > verbs.MaxMessage {
			return fmt.Errorf("ibverbs: a receive of %d bytes: a work request moves %d at most", s.Len, verbs.MaxMessage)
		}
		if err := q.checkLocal(s, verbs.LocalWrite); err != nil {
			return err
		}
	}
	if !q.rq.account.Take(len(wrs)) {
		return verbs.ErrQueueFull
	}
	for i := range wrs {
		r := q.rq.at(q.rq.tail)
		*r = request{id: wrs[i].ID, len: uint32(wrs[i].Local.Len), op: verbs.OpRecv, signaled: true, reported: true}
		if m, ok := wrs[i].Local.MR.(*mr); ok && r.len > 0 {
			r.addr, r.lkey = m.addr+wrs[i].Local.Off, m.lkey
		}
		if q.state != stateFailed {
			q.fillRecv(i, q.rq.tail, r)
		}
		q.rq.tail++
	}
	if q.state == stateFailed {
		q.settle()
		return nil
	}
	if len(wrs) > 0 {
		q.postRecv(len(wrs))
	}
	return nil
}

func (q *qp) fillRecv(i int, seq uint32, r *request) {
	q.rings.recv[i] = C.struct_shim_recv{
		id: C.uint64_t(workID(q.handle, true, seq)), len: C.uint32_t(r.len), laddr: C.uint64_t(r.addr), lkey: C.uint32_t(r.lkey),
	}
}

// postRecv posts the last n receives, which are filled in.
func (q *qp) postRecv(n int) {
	var posted C.int
	q.posted(&q.rq, n, C.shim_post_recv(q.addr, C.int(n), &posted), int(posted))
}
