package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// An FPDU (RFC 5044 section 4) is the ULPDU length (u16), the ULPDU, zero padding to a multiple of 4, and the CRC.
// A ULPDU is a DDP control byte, an RDMAP control byte, the rest of a tagged or untagged header, and the payload
// (RFC 5041 section 4, RFC 5040 section 4). Integers are big-endian, except the CRC.
const (
	lenSize      = 2
	taggedSize   = 14 // header in the ULPDU: control 2, STag 4, TO 8
	untaggedSize = 18 // control 2, invalidated STag 4, queue number 4, message sequence number 4, message offset 4
	crcSize      = 4
	maxULPDU     = 1<<16 - 1

	readReqSize = 28 // payload of a Read Request: sink STag, sink TO, size, source STag, source TO
)

const (
	ddpTagged  = 0x80
	ddpLast    = 0x40
	ddpVersion = 0x01
	ddpVerMask = 0x03

	rdmapVersion = 0x40
	rdmapVerMask = 0xC0
	rdmapOpMask  = 0x0F
)

const (
	opWrite        = 0
	opReadReq      = 1
	opReadResp     = 2
	opSend         = 3
	opSendInv      = 4
	opSendSE       = 5
	opSendSEInv    = 6
	opTerminate    = 7
	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2
	queues         = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// padOf is the number of zero bytes behind a ULPDU of n bytes.
func padOf(n int) int { return -(lenSize + n) & 3 }

// header is the DDP and RDMAP header of one frame.
type header struct {
	tagged bool
	last   bool
	op     uint8
	stag   uint32 // tagged: of the region; untagged: to be invalidated
	to     uint64 // tagged offset
	queue  uint32
	msn    uint32 // message sequence number in its queue, from 1
	mo     uint32 // offset of the payload in its message
}

func (h *header) size() int {
	if h.tagged {
		return taggedSize
	}
	return untaggedSize
}

// appendTo appends the length field and the header of a frame with payload bytes of payload.
func (h *header) appendTo(b []byte, payload int) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(h.size()+payload))
	ctl := byte(ddpVersion)
	if h.tagged {
		ctl |= ddpTagged
	}
	if h.last {
		ctl |= ddpLast
	}
	b = append(b, ctl, rdmapVersion|h.op)
	b = binary.BigEndian.AppendUint32(b, h.stag)
	if h.tagged {
		return binary.BigEndian.AppendUint64(b, h.to)
	}
	b = binary.BigEndian.AppendUint32(b, h.queue)
	b = binary.BigEndian.AppendUint32(b, h.msn)
	return binary.BigEndian.AppendUint32(b, h.mo)
}

// headerSize is the size of the header that starts with the DDP control byte ctl.
func headerSize(ctl byte) int {
	if ctl&ddpTagged != 0 {
		return taggedSize
	}
	return untaggedSize
}

// parseHeader reads a header from b, which holds headerSize(b[0]) bytes, and checks versions, operation and queue.
// The second result is what a Terminate has to say, or nil.
func parseHeader(b []byte) (header, *TerminateError) {
	h := header{
		tagged: b[0]&ddpTagged != 0,
		last:   b[0]&ddpLast != 0,
		op:     b[1] & rdmapOpMask,
		stag:   binary.BigEndian.Uint32(b[2:]),
	}
	if h.tagged {
		h.to = binary.BigEndian.Uint64(b[6:])
	} else {
		h.queue = binary.BigEndian.Uint32(b[6:])
		h.msn = binary.BigEndian.Uint32(b[10:])
		h.mo = binary.BigEndian.Uint32(b[14:])
	}
	switch {
	case b[0]&ddpVerMask != ddpVersion && h.tagged:
		return h, errDDPTaggedVersion
	case b[0]&ddpVerMask != ddpVersion:
		return h, errDDPUntaggedVersion
	case b[1]&rdmapVerMask != rdmapVersion:
		return h, errRDMAPVersion
	case !h.tagged && h.queue >= queues:
		return h, errQueueNumber
	case !h.fits():
		return h, errOpcode
	}
	return h, nil
}

// fits says whether the operation belongs into this kind of frame and this queue.
func (h *header) fits() bool {
	switch h.op {
	case opWrite, opReadResp:
		return h.tagged
	case opSend, opSendInv, opSendSE, opSendSEInv:
		return !h.tagged && h.queue == queueSend
	case opReadReq:
		return !h.tagged && h.queue == queueRead
	case opTerminate:
		return !h.tagged && h.queue == queueTerminate
	}
	return false
}

// readReq is the payload of a Read Request (RFC 5040 section 4.4).
type readReq struct {
	sinkSTag uint32
	sinkTO   uint64
	size     uint32
	srcSTag  uint32
	srcTO    uint64
}

func (r *readReq) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.sinkSTag)
	b = binary.BigEndian.AppendUint64(b, r.sinkTO)
	b = binary.BigEndian.AppendUint32(b, r.size)
	b = binary.BigEndian.AppendUint32(b, r.srcSTag)
	return binary.BigEndian.AppendUint64(b, r.srcTO)
}

// parseReadReq reads the readReqSize bytes of b.
func parseReadReq(b []byte) readReq {
	return readReq{
		sinkSTag: binary.BigEndian.Uint32(b),
		sinkTO:   binary.BigEndian.Uint64(b[4:]),
		size:     binary.BigEndian.Uint32(b[12:]),
		srcSTag:  binary.BigEndian.Uint32(b[16:]),
		srcTO:    binary.BigEndian.Uint64(b[20:]),
	}
}
