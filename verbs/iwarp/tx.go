package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// maxPayload is the payload of a full frame: a multiple of the page size below the limit of the length field. Shorter
	// frames were slower in every measurement, with CRC and without.
	maxPayload = 60 << 10
	// copyMax is the longest payload that is copied behind its header instead of taking an iovec.
	copyMax = 512

	batchFrames = 16 // frames with an iovec of their own that go into one writev
	overhead    = lenSize + untaggedSize + 3 + crcSize
	arenaSize   = 64 << 10 // with CRC it must hold a full frame

	noOwner = math.MaxUint64
)

// tx is the sending half: it collects frames and writes them with one writev. Headers, trailers and copied payload lie in an
// arena; other payload is sent from where it is.
type tx struct {
	mu sync.Mutex // protects everything below, and the right to write to the stream

	q      *qp
	crc    bool
	broken bool // a write failed: the stream is not at a frame boundary any more
	ended  bool // a Terminate was sent
	buf    []byte
	mark   int // start of the part of buf that has no iovec yet
	iov    []unix.Iovec
	owner  []uint64 // of each iovec: position in the send queue
	held   []*mr    // sources of the collected frames, released when they were written
	msn    [queues]uint32
}

func (t *tx) init(q *qp, crc bool) {
	t.q, t.crc = q, crc
	t.buf = make([]byte, 0, arenaSize)
	t.iov = make([]unix.Iovec, 0, 2*batchFrames+1)
	t.owner = make([]uint64, 0, 2*batchFrames+1)
	t.held = make([]*mr, 0, arenaSize/overhead+1)
}

func (t *tx) nextMSN(queue int) uint32 {
	t.msn[queue]++
	return t.msn[queue]
}

// message collects n bytes at off of region m as one message, in as many frames as it takes. It returns false if the
// queue pair failed.
func (t *tx) message(h *header, m *mr, off, n uint64, owner uint64) bool {
	for {
		k := min(n, maxPayload)
		h.last = k == n
		if !t.frame(h, m, off, k, owner) {
			return false
		}
		if h.last {
			return true
		}
		n -= k
		off += k
		h.to += k
		h.mo += uint32(k)
	}
}

// readRequest collects a Read Request. It returns false if the queue pair failed.
func (t *tx) readRequest(r *readReq) bool {
	if !t.room(readReqSize) {
		return false
	}
	h := header{last: true, op: opReadReq, queue: queueRead, msn: t.nextMSN(queueRead)}
	start := len(t.buf)
	t.buf = h.appendTo(t.buf, readReqSize)
	t.buf = r.appendTo(t.buf)
	t.trailer(start, len(t.buf)-start)
	return true
}

// terminate sends a Terminate, unless the stream broke off inside a frame.
func (t *tx) terminate(e *TerminateError, guilty terminated) bool {
	if t.broken || t.ended || !t.flush() || !t.room(termMax) {
		return false
	}
	t.ended = true
	var b [termMax]byte
	payload := appendTerminate(b[:0], e, guilty)
	h := header{last: true, op: opTerminate, queue: queueTerminate, msn: 1}
	start := len(t.buf)
	t.buf = h.appendTo(t.buf, len(payload))
	t.buf = append(t.buf, payload...)
	t.trailer(start, len(t.buf)-start)
	return t.flush()
}

// frame collects one frame. It returns false if the queue pair failed.
func (t *tx) frame(h *header, m *mr, off, n uint64, owner uint64) bool {
	inline := t.crc || n <= copyMax
	space := 0
	if inline {
		space = int(n)
	}
	if !t.room(space) || !t.hold(m, owner) {
		return false
	}
	start := len(t.buf)
	t.buf = h.appendTo(t.buf, int(n))
	covered := len(t.buf) - start + int(n)
	switch {
	case n == 0:
	case inline:
		end := len(t.buf) + int(n)
		if err := pmem.CopyOut(t.buf[len(t.buf):end], m.mem[off:off+n]); err != nil {
			t.buf = t.buf[:start]
			t.refuse(fmt.Errorf("iwarp: read the source: %w", err), owner)
			return false
		}
		t.buf = t.buf[:end]
	default:
		t.closeRun(owner)
		t.iov = append(t.iov, vec(m.mem[off:off+n]))
		t.owner = append(t.owner, owner)
	}
	t.trailer(start, covered)
	return true
}

// trailer appends padding and CRC to the frame whose length field is at start. covered is the length of the frame so far;
// with CRC all of it is in buf.
func (t *tx) trailer(start, covered int) {
	for range padOf(covered - lenSize) {
		t.buf = append(t.buf, 0)
	}
	var sum uint32
	if t.crc {
		sum = crc32.Checksum(t.buf[start:], castagnoli)
	}
	t.buf = binary.LittleEndian.AppendUint32(t.buf, sum)
}

// room makes room for a frame with n bytes of copied payload, by writing what was collected if it must.
func (t *tx) room(n int) bool {
	if t.broken {
		return false
	}
	if len(t.buf)+overhead+n <= cap(t.buf) && len(t.iov)+3 <= cap(t.iov) {
		return true
	}
	return t.flush()
}

// hold makes m a source of the batch.
func (t *tx) hold(m *mr, owner uint64) bool {
	if m == nil || len(t.held) > 0 && t.held[len(t.held)-1] == m {
		return true
	}
	if !m.acquire() {
		t.refuse(errGone, owner)
		return false
	}
	t.held = append(t.held, m)
	return true
}

// refuse ends the queue pair because the source of a message cannot be read. What was collected is whole frames, so that
// the Terminate can follow.
func (t *tx) refuse(err error, owner uint64) {
	f := failure{status: verbs.StatusProtect, err: err, term: errSourceFault}
	if owner != noOwner {
		f.victim, f.index = victimSend, owner
	}
	t.q.fail(f)
}

// closeRun makes an iovec of the part of buf that has none.
func (t *tx) closeRun(owner uint64) {
	if t.mark == len(t.buf) {
		return
	}
	t.iov = append(t.iov, vec(t.buf[t.mark:]))
	t.owner = append(t.owner, owner)
	t.mark = len(t.buf)
}

// flush writes what was collected. It returns false if the queue pair failed.
func (t *tx) flush() bool {
	if t.broken {
		t.drop()
		return false
	}
	t.closeRun(noOwner)
	err := t.write()
	t.drop()
	return err == nil
}

// drop empties the collection.
func (t *tx) drop() {
	for i, m := range t.held {
		m.release()
		t.held[i] = nil
	}
	clear(t.iov)
	t.held, t.iov, t.owner, t.buf, t.mark = t.held[:0], t.iov[:0], t.owner[:0], t.buf[:0], 0
}

func (t *tx) write() error {
	if len(t.iov) == 0 {
		return nil
	}
	s := t.q.stream
	done, rest, err := s.write(t.iov, false)
	if err == nil && len(rest) == 0 {
		return nil
	}
	for err == nil && len(rest) > 0 {
		t.q.arm()
		var n int
		n, rest, err = s.write(rest, true)
		done += n
	}
	t.q.disarm()
	if err != nil {
		t.broken = true
		t.blame(err, done)
	}
	return err
}

// blame finds the cause of a failed write. done is the number of iovecs that went out.
func (t *tx) blame(err error, done int) {
	switch {
	case errors.Is(err, unix.EFAULT):
		f := failure{status: verbs.StatusProtect, err: fmt.Errorf("iwarp: read the source: %w", err)}
		if t.owner[done] != noOwner {
			f.victim, f.index = victimSend, t.owner[done]
		}
		t.q.fail(f)
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.q.fail(failure{status: verbs.StatusTransport,
			err: fmt.Errorf("iwarp: the peer %v took nothing for %v: %w", t.q.stream.peer, t.q.pd.dev.opt.WriteTimeout, verbs.ErrTimeout)})
	default:
		t.q.lose(fmt.Errorf("iwarp: send to %v: %w", t.q.stream.peer, err))
	}
}

// arm sets the deadline of the next wait for room in the socket.
func (q *qp) arm() {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.pd.dev.opt.WriteTimeout
	if q.state != stateConnected {
		d = min(d, farewell)
	}
	_ = q.stream.file.SetWriteDeadline(time.Now().Add(d)) // fails only if closed, and then the write does too
}

// disarm lifts it, unless the queue pair has begun to end.
func (q *qp) disarm() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == stateConnected {
		_ = q.stream.file.SetWriteDeadline(time.Time{})
	}
}
