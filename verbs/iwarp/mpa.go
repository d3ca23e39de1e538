package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pmemfs/pmemfs/verbs"
)

// An MPA request or reply (RFC 5044 section 7.1) is a 16-byte key, a byte of flags, the revision, and the length (u16,
// big-endian) of the private data that follows.
const (
	mpaKeySize    = 16
	mpaSize       = 20
	mpaMaxPrivate = 512

	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"
)

const (
	mpaMarkers  = 0x80
	mpaCRC      = 0x40
	mpaReject   = 0x20
	mpaEnhanced = 0x10 // revision 2: the private data begin with the IRD and ORD words of RFC 6581 section 4
)

// Bits in the words of the enhanced set-up. The ready-to-receive (RTR) frame is what lets the responder send first.
const (
	irdPeerToPeer = 0x8000 // A
	irdSendRTR    = 0x4000 // B
	ordWriteRTR   = 0x8000 // C
	ordReadRTR    = 0x4000 // D
	depthMask     = 0x3FFF // also the value for "not limited"
)

// mpaFrame is a request or reply.
type mpaFrame struct {
	flags    byte
	revision byte
	ird, ord uint16 // with their bits; only if flags has mpaEnhanced
	private  []byte
}

func (f *mpaFrame) enhanced() bool { return f.revision >= 2 && f.flags&mpaEnhanced != 0 }

func (f *mpaFrame) appendTo(b []byte, key string) []byte {
	n := len(f.private)
	if f.enhanced() {
		n += 4
	}
	b = append(b, key...)
	b = append(b, f.flags, f.revision)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if f.enhanced() {
		b = binary.BigEndian.AppendUint16(b, f.ird)
		b = binary.BigEndian.AppendUint16(b, f.ord)
	}
	return append(b, f.private...)
}

var errNotMPA = errors.New("iwarp: the peer does not speak MPA: is this the address of an iWARP listener?")

// readMPA reads exactly one frame with the given key.
func readMPA(r io.Reader, key string) (*mpaFrame, error) {
	var b [mpaSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, fmt.Errorf("iwarp: read MPA frame: %w", err)
	}
	if string(b[:mpaKeySize]) != key {
		return nil, errNotMPA
	}
	f := &mpaFrame{flags: b[16], revision: b[17]}
	n := int(binary.BigEndian.Uint16(b[18:]))
	if n > mpaMaxPrivate {
		return nil, fmt.Errorf("iwarp: the peer sends %d bytes of private data, more than the %d of RFC 5044", n, mpaMaxPrivate)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("iwarp: read MPA private data: %w", err)
	}
	if f.enhanced() {
		if n < 4 {
			return nil, errors.New("iwarp: the peer announces the enhanced set-up and does not send it")
		}
		f.ird = binary.BigEndian.Uint16(data)
		f.ord = binary.BigEndian.Uint16(data[2:])
		data = data[4:]
	}
	f.private = data
	return f, nil
}

// terms are what the two sides agreed on. Without the enhanced set-up neither says how many Reads it takes, so one at a time
// is sent, and as many as the ring can hold are taken.
type terms struct {
	crc      bool
	ird, ord int
	// An initiator says that it is ready, until the first frame of the responder has come. A responder sends nothing before the first frame of the
	// initiator, unless that has asked it to.
	initiator, gated bool
}

// request is the frame that an initiator with these options sends. It does not ask for the peer-to-peer set-up: a siw responder
// that has agreed to it and loses the connection before the ready-to-receive frame runs into a BUG of the kernel (iwcm.c,
// cm_close_handler) and takes no more connections. That frame is sent all the same: a Write of no bytes is always allowed.
func (o *Options) request(private []byte) *mpaFrame {
	f := &mpaFrame{revision: 2, flags: mpaEnhanced, private: private}
	if o.Revision1 {
		f.revision, f.flags = 1, 0
	}
	if o.CRC {
		f.flags |= mpaCRC
	}
	f.ird, f.ord = uint16(o.IRD), uint16(o.ORD)
	return f
}

// answer is the reply of a responder with these options, and what it means. A request that it cannot accept is an error.
func (o *Options) answer(req *mpaFrame, private []byte) (*mpaFrame, terms, error) {
	if err := req.check(); err != nil {
		return nil, terms{}, err
	}
	f := &mpaFrame{revision: req.revision, flags: req.flags & (mpaCRC | mpaEnhanced), private: private}
	if o.CRC {
		f.flags |= mpaCRC
	}
	t := terms{crc: f.flags&mpaCRC != 0, ird: maxReadDepth, ord: 1, gated: true}
	if !f.enhanced() {
		f.flags &^= mpaEnhanced
		return f, t, nil
	}
	t.ird = lower(o.IRD, req.ord)
	if t.ord = lower(o.ORD, req.ird); t.ord == 0 {
		return nil, terms{}, noReads("initiator")
	}
	f.ird, f.ord = uint16(t.ird), uint16(t.ord)
	if req.ird&irdPeerToPeer != 0 {
		switch { // siw's order: Write before Read, never a Send
		case req.ord&ordWriteRTR != 0:
			f.ird |= irdPeerToPeer
			f.ord |= ordWriteRTR
		case req.ord&ordReadRTR != 0:
			f.ird |= irdPeerToPeer
			f.ord |= ordReadRTR
			t.ird = max(t.ird, 1) // the frame itself is a Read
		}
	}
	return f, t, nil
}

// settle is what the reply means to the initiator that sent req.
func (o *Options) settle(req, rep *mpaFrame) (terms, error) {
	if rep.flags&mpaReject != 0 {
		return terms{}, &verbs.RejectedError{Private: rep.private}
	}
	if err := rep.check(); err != nil {
		return terms{}, err
	}
	if req.flags&mpaCRC != 0 && rep.flags&mpaCRC == 0 {
		return terms{}, errors.New("iwarp: the peer ignores the request for CRC: turn CRC off or use another peer")
	}
	t := terms{crc: rep.flags&mpaCRC != 0, ird: maxReadDepth, ord: 1, initiator: true}
	if req.enhanced() != rep.enhanced() {
		return terms{}, errors.New("iwarp: the peer answers with another MPA revision than it was asked for")
	}
	if !rep.enhanced() {
		return t, nil
	}
	if d := int(rep.ord & depthMask); d != depthMask && d > o.IRD {
		return terms{}, errIRD
	}
	if rep.ird&irdPeerToPeer != 0 {
		return terms{}, errors.New("iwarp: the peer answers to a peer-to-peer set-up that it was not asked for")
	}
	if t.ird, t.ord = o.IRD, lower(o.ORD, rep.ird); t.ord == 0 {
		return terms{}, noReads("responder")
	}
	return t, nil
}

// noReads refuses a peer that lets this side have no Read outstanding. RFC 6581 allows that, but verbs has no connection without Reads: each would
// wait for ever for one before it to end.
func noReads(role string) error {
	return fmt.Errorf("iwarp: the %s offers an IRD of 0, which lets its peer send no RDMA READ: it must take at least one at a time", role)
}

// check refuses what this package does not speak.
func (f *mpaFrame) check() error {
	if f.flags&mpaMarkers != 0 {
		return errors.New("iwarp: the peer asks for MPA markers, which are not supported")
	}
	if f.revision < 1 || f.revision > 2 {
		return fmt.Errorf("iwarp: MPA revision %d is not supported", f.revision)
	}
	return nil
}

// lower limits our depth to the one in the peer's word.
func lower(ours int, word uint16) int {
	if d := int(word & depthMask); d != depthMask && d < ours {
		return d
	}
	return ours
}
