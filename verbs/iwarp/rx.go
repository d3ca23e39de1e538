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

// rx is the receiving half. It belongs to the goroutine that has the turn, and stops and goes on at any byte: fill reads from
// the socket what parse said it needs, and alone of the two waits.
type rx struct {
	q      *qp
	crc    bool
	buf    []byte
	r, w   int      // the bytes of buf that were read from the socket and not consumed
	want   int      // parse goes on when buf has so many bytes, or when some of dst have come
	failed *failure // why the connection ends

	at      part
	ulpdu   int                // of the current frame
	raw     [untaggedSize]byte // its header
	rawLen  int
	head    header
	payload int        // its length
	req     []byte     // its Read Request header, if it is one
	dst     []byte     // what is left to be filled by its payload
	into    *mr        // region of dst
	recv    *recvEntry // of a Send
	read    *sendEntry // of a Read response

	msn      [queues]uint32
	sendDone uint64 // bytes of the Send in progress
}

// part is the part of a frame that comes next.
type part uint8

const (
	atHeader part = iota
	atPayload
	atTrailer
)

func (x *rx) init(q *qp, crc bool) {
	x.q, x.crc = q, crc
	size := rxBuffer
	if crc {
		size = rxBufferCRC
	}
	x.buf = make([]byte, size)
	x.msn = [queues]uint32{1, 1, 1}
}

// fill reads once from the socket: payload straight into its region, and what comes behind it into the buffer.
func (x *rx) fill() error {
	if x.r == x.w {
		x.r, x.w = 0, 0
	} else if x.r+x.want > len(x.buf) {
		x.w = copy(x.buf, x.buf[x.r:x.w])
		x.r = 0
	}
	got, err := x.q.stream.read(x.dst, x.into, x.buf[x.w:])
	k := min(got, len(x.dst))
	x.dst = x.dst[k:]
	x.w += got - k
	return err
}

// parse takes all that was read. A failure is built on the heap, once in the life of a queue pair.
func (x *rx) parse() *failure {
	for {
		var more bool
		var f *failure
		switch x.at {
		case atHeader:
			more, f = x.header()
		case atPayload:
			more, f = x.body()
		case atTrailer:
			more = x.trailer()
		}
		if f != nil || !more {
			return f
		}
	}
}

// have says whether n bytes are in the buffer.
func (x *rx) have(n int) bool {
	x.want = n
	return x.w-x.r >= n
}

// idle says whether all that was read is done with.
func (x *rx) idle() bool { return x.at == atHeader && x.r == x.w }

// header takes the header of a frame; with CRC it waits for the whole frame and checks it. It returns false if more
// bytes are needed.
func (x *rx) header() (bool, *failure) {
	x.rawLen, x.req = 0, nil
	if !x.have(lenSize + 2) {
		return false, nil
	}
	n := int(binary.BigEndian.Uint16(x.buf[x.r:]))
	size := headerSize(x.buf[x.r+lenSize])
	if n < size {
		return false, refuse(errLength)
	}
	need := lenSize + size
	if x.crc {
		need = lenSize + n + padOf(n) + crcSize
	}
	if !x.have(need) {
		return false, nil
	}
	if x.crc && !intact(x.buf[x.r:x.r+need]) {
		return false, refuse(errCRC)
	}
	x.ulpdu, x.payload = n, n-size
	x.rawLen = copy(x.raw[:size], x.buf[x.r+lenSize:])
	x.r += lenSize + size
	var bad *TerminateError
	if x.head, bad = parseHeader(x.raw[:size]); bad != nil {
		return false, refuse(bad)
	}
	x.q.heard()
	x.at = atPayload
	return true, x.admit()
}

// intact checks the CRC of a whole frame.
func intact(frame []byte) bool {
	end := len(frame) - crcSize
	return crc32.Checksum(frame[:end], castagnoli) == binary.LittleEndian.Uint32(frame[end:])
}

// body takes the payload of a frame. It returns false if more bytes are needed.
func (x *rx) body() (bool, *failure) {
	var f *failure
	switch x.head.op {
	case opReadReq, opTerminate:
		if !x.have(x.payload) {
			return false, nil
		}
		f = x.control(x.buf[x.r : x.r+x.payload])
		x.r += x.payload
	default:
		if err := x.place(); err != nil {
			return false, x.broken(err)
		}
		if len(x.dst) > 0 {
			return false, nil
		}
		x.into = nil
		x.placed()
	}
	x.at = atTrailer
	return true, f
}

// place moves to dst what the buffer has of it.
func (x *rx) place() error {
	k := min(len(x.dst), x.w-x.r)
	if k == 0 {
		return nil
	}
	if !x.into.acquire() {
		return errGone
	}
	defer x.into.release()
	if err := pmem.Copy(x.dst[:k], x.buf[x.r:x.r+k]); err != nil {
		return err
	}
	x.r += k
	x.dst = x.dst[k:]
	return nil
}

// trailer takes padding and CRC. It returns false if more bytes are needed.
func (x *rx) trailer() bool {
	n := padOf(x.ulpdu) + crcSize
	if !x.have(n) {
		return false
	}
	x.r += n
	x.at = atHeader
	return true
}

// guilty describes the frame that a Terminate complains about.
func (x *rx) guilty() terminated {
	t := terminated{ulpdu: x.ulpdu, req: x.req}
	if x.rawLen > 0 {
		t.head = x.raw[:x.rawLen]
	}
	return t
}

// refuse is the failure of a peer that broke the protocol.
func refuse(e *TerminateError) *failure {
	return &failure{status: e.status(), err: e, term: e}
}

// broken is the failure that err of fill or place means: one of the connection, or of the memory that payload goes to.
func (x *rx) broken(err error) *failure {
	if !memoryFailed(err) {
		return x.ended(err)
	}
	f := &failure{status: verbs.StatusProtect, err: fmt.Errorf("iwarp: place received bytes: %w", err), term: errPlaceFault}
	switch {
	case x.recv != nil:
		f.victim = victimRecv
	case x.read != nil:
		f.victim, f.index = victimSend, x.q.readPosition()
	case errors.Is(err, errGone):
		return refuse(errSTag)
	}
	return f
}

// memoryFailed tells a failure of a region from one of the connection.
func memoryFailed(err error) bool {
	var fault *pmem.FaultError
	return errors.As(err, &fault) || errors.Is(err, unix.EFAULT) || errors.Is(err, errGone)
}

// ended is the failure of a connection that could not be read any more.
func (x *rx) ended(err error) *failure {
	if err == io.EOF {
		if x.idle() {
			return &failure{status: verbs.StatusPeer, err: fmt.Errorf("iwarp: the peer %v closed the connection", x.q.stream.peer)}
		}
		err = io.ErrUnexpectedEOF
	}
	return &failure{status: verbs.StatusTransport, err: fmt.Errorf("iwarp: receive from %v: %w", x.q.stream.peer, err)}
}
