package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// rxBuffer holds a typical batch of small messages. It also bounds what a bulk transfer has to copy: at each frame,
	// what came behind its predecessor.
	rxBuffer = 16 << 10
	// rxBufferCRC holds more than one frame of any size, since with CRC nothing is placed before all of it is there.
	rxBufferCRC = 128 << 10
)

// rx is the receiving half, used by the receiver goroutine only.
type rx struct {
	q    *qp
	crc  bool
	buf  []byte
	r, w int // the bytes of buf that were read from the socket and not consumed

	ulpdu    int                // of the current frame
	head     [untaggedSize]byte // its header
	headLen  int
	req      []byte // its Read Request header, if it is one
	msn      [queues]uint32
	sendDone uint64 // bytes of the Send in progress
}

func (x *rx) init(q *qp, crc bool) {
	x.q, x.crc = q, crc
	size := rxBuffer
	if crc {
		size = rxBufferCRC
	}
	x.buf = make([]byte, size)
	x.msn = [queues]uint32{1, 1, 1}
}

// run takes frames until the connection ends, and says why it did.
func (x *rx) run() failure {
	for {
		if f := x.frame(); f != nil {
			return *f
		}
	}
}

// frame takes one frame. A failure is built on the heap, once in the life of a queue pair.
func (x *rx) frame() *failure {
	x.headLen, x.req = 0, nil
	if err := x.need(lenSize + 2); err != nil {
		return x.ended(err, x.r == x.w)
	}
	n := int(binary.BigEndian.Uint16(x.buf[x.r:]))
	size := headerSize(x.buf[x.r+lenSize])
	if n < size {
		return refuse(errRuntime)
	}
	tail := padOf(n) + crcSize
	if x.crc {
		if f := x.verify(n, tail); f != nil {
			return f
		}
	} else if err := x.need(lenSize + size); err != nil {
		return x.ended(err, false)
	}
	x.ulpdu = n
	x.headLen = copy(x.head[:size], x.buf[x.r+lenSize:])
	x.r += lenSize + size
	h, bad := parseHeader(x.head[:size])
	if bad != nil {
		return refuse(bad)
	}
	x.openGate()
	if f := x.dispatch(&h, uint64(n-size)); f != nil {
		return f
	}
	if err := x.need(tail); err != nil {
		return x.ended(err, false)
	}
	x.r += tail
	return nil
}

// verify waits for the whole frame and checks its CRC.
func (x *rx) verify(n, tail int) *failure {
	if err := x.need(lenSize + n + tail); err != nil {
		return x.ended(err, false)
	}
	covered := lenSize + n + tail - crcSize
	sum := binary.LittleEndian.Uint32(x.buf[x.r+covered:])
	if crc32.Checksum(x.buf[x.r:x.r+covered], castagnoli) != sum {
		return refuse(errCRC)
	}
	return nil
}

func (x *rx) dispatch(h *header, n uint64) *failure {
	if !h.tagged && h.msn != x.msn[h.queue] {
		return refuse(errMSN)
	}
	switch h.op {
	case opWrite:
		return x.write(h, n)
	case opReadResp:
		return x.readResponse(h, n)
	case opSend, opSendSE:
		return x.send(h, n)
	case opReadReq:
		return x.readRequest(h, n)
	case opTerminate:
		return x.terminate(n)
	}
	return refuse(errInvalidate) // Send with Invalidate
}

// write places a frame of an RDMA Write. One without payload touches nothing, so its address need not be valid.
func (x *rx) write(h *header, n uint64) *failure {
	if n == 0 {
		return nil
	}
	m := x.q.pd.dev.lookup(h.stag)
	off, bad := m.reach(x.q.pd, verbs.RemoteWrite, h.to, n, writeErrors)
	if bad != nil {
		return refuse(bad)
	}
	err := x.place(m, off, n)
	if errors.Is(err, errGone) {
		return refuse(errSTag)
	}
	return x.misplaced(err, failure{})
}

// readResponse places a frame of the response to the oldest Read.
func (x *rx) readResponse(h *header, n uint64) *failure {
	x.q.mu.Lock()
	e := x.q.sq.oldestRead()
	x.q.mu.Unlock()
	if e == nil {
		return refuse(errOpcode)
	}
	want := e.wr.Local.Len - e.got
	if n > want || h.last != (n == want) {
		return refuse(errBounds)
	}
	if n > 0 {
		if stag, to := e.sink(); h.stag != stag || h.to != to+e.got {
			return refuse(errSTag)
		}
		if err := x.place(e.mr, e.wr.Local.Off+e.got, n); err != nil {
			return x.misplaced(err, failure{victim: victimSend, index: x.q.readPosition()})
		}
		e.got += n
	}
	if h.last {
		x.q.readDone(e)
	}
	return nil
}

// send places a frame of a Send into the oldest receive.
func (x *rx) send(h *header, n uint64) *failure {
	e := x.q.oldestRecv()
	switch {
	case e == nil:
		return refuse(errNoReceive)
	case uint64(h.mo) != x.sendDone:
		return refuse(errMO)
	case n > e.wr.Local.Len-x.sendDone:
		return &failure{status: verbs.StatusLength, err: errTooLong, victim: victimRecv, term: errTooLong}
	}
	if n > 0 {
		if err := x.place(e.mr, e.wr.Local.Off+x.sendDone, n); err != nil {
			return x.misplaced(err, failure{victim: victimRecv})
		}
		x.sendDone += n
	}
	if h.last {
		x.q.recvDone(e, uint32(x.sendDone))
		x.sendDone = 0
		x.msn[queueSend]++
	}
	return nil
}

// readRequest checks a Read of the peer and leaves it to the server.
func (x *rx) readRequest(h *header, n uint64) *failure {
	if n != readReqSize || h.mo != 0 || !h.last {
		return refuse(errStream)
	}
	if err := x.need(readReqSize); err != nil {
		return x.ended(err, false)
	}
	x.req = x.buf[x.r : x.r+readReqSize]
	r := inboundRead{req: parseReadReq(x.req)}
	if r.req.size > 0 {
		r.mr = x.q.pd.dev.lookup(r.req.srcSTag)
		off, bad := r.mr.reach(x.q.pd, verbs.RemoteRead, r.req.srcTO, uint64(r.req.size), readErrors)
		if bad != nil {
			return refuse(bad)
		}
		r.off = off
	}
	if !x.q.acceptRead(&r) {
		return refuse(errStream)
	}
	x.r += readReqSize
	x.msn[queueRead]++
	return nil
}

// terminate reads the peer's reason.
func (x *rx) terminate(n uint64) *failure {
	if n > termMax {
		return refuse(errRuntime)
	}
	if err := x.need(int(n)); err != nil {
		return x.ended(err, false)
	}
	e := parseTerminate(x.buf[x.r : x.r+int(n)])
	return &failure{status: e.status(), err: e}
}

// place moves the next n bytes of the stream to off of region m: from the buffer what is there, the rest by reading from
// the socket into the region, and what comes behind it into the buffer.
func (x *rx) place(m *mr, off, n uint64) error {
	dst := m.mem[off : off+n]
	if k := min(len(dst), x.w-x.r); k > 0 {
		if !m.acquire() {
			return errGone
		}
		err := pmem.Copy(dst[:k], x.buf[x.r:x.r+k])
		m.release()
		if err != nil {
			return err
		}
		x.r += k
		dst = dst[k:]
	}
	for len(dst) > 0 {
		got, err := x.q.stream.read(dst, m, x.buf)
		if err != nil {
			return err
		}
		k := min(got, len(dst))
		dst = dst[k:]
		x.r, x.w = 0, got-k
	}
	return nil
}

// need makes n bytes available in the buffer.
func (x *rx) need(n int) error {
	for x.w-x.r < n {
		if x.r == x.w {
			x.r, x.w = 0, 0
		} else if x.r+n > len(x.buf) {
			x.w = copy(x.buf, x.buf[x.r:x.w])
			x.r = 0
		}
		got, err := x.q.stream.read(nil, nil, x.buf[x.w:])
		if err != nil {
			return err
		}
		x.w += got
	}
	return nil
}

// guilty describes the frame that a Terminate complains about.
func (x *rx) guilty() terminated {
	t := terminated{ulpdu: x.ulpdu, req: x.req}
	if x.headLen > 0 {
		t.head = x.head[:x.headLen]
	}
	return t
}

// refuse is the failure of a peer that broke the protocol.
func refuse(e *TerminateError) *failure {
	return &failure{status: e.status(), err: e, term: e}
}

// ended is the failure of a connection that could not be read any more.
func (x *rx) ended(err error, between bool) *failure {
	if err == io.EOF {
		if between {
			return &failure{status: verbs.StatusPeer, err: fmt.Errorf("iwarp: the peer %v closed the connection", x.q.stream.conn.RemoteAddr())}
		}
		err = io.ErrUnexpectedEOF
	}
	return &failure{status: verbs.StatusTransport, err: fmt.Errorf("iwarp: receive from %v: %w", x.q.stream.conn.RemoteAddr(), err)}
}

// misplaced is the failure of a placement: of the memory, or of the connection while its bytes were read. at names the victim.
func (x *rx) misplaced(err error, at failure) *failure {
	if err == nil {
		return nil // before anything escapes to the heap
	}
	if !memoryFailed(err) {
		return x.ended(err, false)
	}
	return &failure{status: verbs.StatusProtect, err: fmt.Errorf("iwarp: place received bytes: %w", err),
		victim: at.victim, index: at.index, term: errPlaceFault}
}

// memoryFailed tells a failure of a region from one of the connection.
func memoryFailed(err error) bool {
	var fault *pmem.FaultError
	return errors.As(err, &fault) || errors.Is(err, unix.EFAULT) || errors.Is(err, errGone)
}
