package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

// TerminateError is the reason of a Terminate message, sent or received (RFC 5040 section 4.8, RFC 5041 section 7,
// RFC 5044 section 8).
type TerminateError struct {
	Layer uint8 // 0 RDMAP, 1 DDP, 2 LLP (MPA)
	Type  uint8
	Code  uint8
	Peer  bool // the peer sent it

	text string
}

func (e *TerminateError) Error() string {
	who := "the peer broke the protocol or touched what it may not"
	if e.Peer {
		who = "the peer ended the connection"
	}
	text := e.text
	if text == "" {
		text = "code not known"
	}
	return fmt.Sprintf("iwarp: %s: %s (layer %d, type %d, code %#x)", who, text, e.Layer, e.Type, e.Code)
}

// status is the completion status that a Terminate with this reason gives to the side that caused it.
func (e *TerminateError) status() verbs.Status {
	if e.Type == 1 && (e.Layer == layerRDMAP || e.Layer == layerDDP && e.Code != errDDPTaggedVersion.Code) {
		return verbs.StatusProtect
	}
	if e.same(errTooLong) {
		return verbs.StatusLength
	}
	return verbs.StatusPeer
}

func (e *TerminateError) same(o *TerminateError) bool {
	return e.Layer == o.Layer && e.Type == o.Type && e.Code == o.Code
}

const (
	layerRDMAP = 0
	layerDDP   = 1
	layerLLP   = 2
)

var (
	errSourceFault  = &TerminateError{Layer: layerRDMAP, Type: 0, Code: 0, text: "the memory of the region failed"}
	errReadSTag     = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 0, text: "no such region to read"}
	errReadBounds   = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 1, text: "read outside the region"}
	errAccess       = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 2, text: "the region does not grant this access"}
	errReadStream   = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 3, text: "the region to read is not for this connection"}
	errReadWrap     = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 4, text: "the read wraps around"}
	errInvalidate   = &TerminateError{Layer: layerRDMAP, Type: 1, Code: 9, text: "the region cannot be invalidated"}
	errRDMAPVersion = &TerminateError{Layer: layerRDMAP, Type: 2, Code: 5, text: "RDMAP version"}
	errOpcode       = &TerminateError{Layer: layerRDMAP, Type: 2, Code: 6, text: "unexpected operation"}
	errStream       = &TerminateError{Layer: layerRDMAP, Type: 2, Code: 7, text: "message of an impossible shape, or more Reads than agreed"}

	errPlaceFault         = &TerminateError{Layer: layerDDP, Type: 0, Code: 0, text: "the memory of the region failed"}
	errSTag               = &TerminateError{Layer: layerDDP, Type: 1, Code: 0, text: "no such region"}
	errBounds             = &TerminateError{Layer: layerDDP, Type: 1, Code: 1, text: "outside the region"}
	errNotOfStream        = &TerminateError{Layer: layerDDP, Type: 1, Code: 2, text: "the region is not for this connection"}
	errWrap               = &TerminateError{Layer: layerDDP, Type: 1, Code: 3, text: "the tagged offset wraps around"}
	errDDPTaggedVersion   = &TerminateError{Layer: layerDDP, Type: 1, Code: 4, text: "DDP version of a tagged frame"}
	errQueueNumber        = &TerminateError{Layer: layerDDP, Type: 2, Code: 1, text: "queue number"}
	errNoReceive          = &TerminateError{Layer: layerDDP, Type: 2, Code: 2, text: "a Send arrived and no receive was posted"}
	errMSN                = &TerminateError{Layer: layerDDP, Type: 2, Code: 3, text: "message sequence number"}
	errMO                 = &TerminateError{Layer: layerDDP, Type: 2, Code: 4, text: "message offset"}
	errTooLong            = &TerminateError{Layer: layerDDP, Type: 2, Code: 5, text: "the message is longer than its receive"}
	errDDPUntaggedVersion = &TerminateError{Layer: layerDDP, Type: 2, Code: 6, text: "DDP version of an untagged frame"}

	errCRC    = &TerminateError{Layer: layerLLP, Type: 0, Code: 2, text: "CRC of a frame"}
	errLength = &TerminateError{Layer: layerLLP, Type: 0, Code: 3, text: "frame of an impossible length"}
	errIRD    = &TerminateError{Layer: layerLLP, Type: 0, Code: 6, text: "the peer wants to send more Reads at a time than agreed"}
)

// known are the reasons that this package has a text for.
var known = []*TerminateError{
	errSourceFault, errReadSTag, errReadBounds, errAccess, errReadStream, errReadWrap, errInvalidate, errRDMAPVersion, errOpcode,
	errStream, errPlaceFault, errSTag, errBounds, errNotOfStream, errWrap, errDDPTaggedVersion, errQueueNumber, errNoReceive,
	errMSN, errMO, errTooLong, errDDPUntaggedVersion, errCRC, errLength, errIRD,
	// Those that only others send.
	{Layer: layerRDMAP, Type: 0, Code: 0xFF, text: "an error of the peer itself, or the end of its process"},
	{Layer: layerRDMAP, Type: 1, Code: 0xFF, text: "a region, for a reason that the peer does not name"},
	{Layer: layerRDMAP, Type: 2, Code: 8, text: "an error of the whole device of the peer"},
	{Layer: layerRDMAP, Type: 2, Code: 0xFF, text: "an operation, for a reason that the peer does not name"},
	{Layer: layerLLP, Type: 0, Code: 1, text: "the TCP connection was lost"},
	{Layer: layerLLP, Type: 0, Code: 4, text: "MPA request or reply"},
	{Layer: layerLLP, Type: 0, Code: 5, text: "an error of the peer's transport"},
	{Layer: layerLLP, Type: 0, Code: 7, text: "no kind of ready-to-receive frame suits both sides"},
}

// Bits in the third byte of the Terminate control field: what of the terminated frame follows.
const (
	termLength = 0x80 // M: DDP segment length, u16
	termDDP    = 0x40 // D: DDP header
	termRDMAP  = 0x20 // R: Read Request header

	termControl = 4 // bytes of the control field
	termMax     = termControl + 2 + untaggedSize + readReqSize
)

// terminated is the frame that a Terminate complains about: its ULPDU length and as much of its header as was read.
type terminated struct {
	ulpdu int
	head  []byte // DDP header; nil: unknown
	req   []byte // Read Request header; nil: none
}

// appendTerminate appends the payload of a Terminate.
func appendTerminate(b []byte, e *TerminateError, t terminated) []byte {
	var bits byte
	if t.head != nil {
		bits = termLength | termDDP
		if t.req != nil {
			bits |= termRDMAP
		}
	}
	b = append(b, e.Layer<<4|e.Type, e.Code, bits, 0)
	if t.head == nil {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, uint16(t.ulpdu))
	b = append(b, t.head...)
	return append(b, t.req...)
}

// parseTerminate reads the control field of a Terminate. Linux siw on a little-endian machine puts the layer into the low
// half of the first byte and the bits for what follows into the low bits of the third. Where neither those bits nor the
// code tell the two orders apart, the error names both meanings.
func parseTerminate(b []byte) *TerminateError {
	if len(b) < termControl {
		return &TerminateError{Peer: true, text: "Terminate without a reason"}
	}
	straight := named(b[0]>>4, b[0]&0xF, b[1])
	swapped := named(b[0]&0xF, b[0]>>4, b[1])
	switch {
	case b[2]&(termLength|termDDP|termRDMAP) != 0:
		return straight
	case b[2]&7 != 0, straight.text == "" && swapped.text != "":
		return swapped
	case swapped.text != "" && !swapped.same(straight):
		straight.text = fmt.Sprintf("%s; or, if the peer is Linux siw, %s", straight.text, swapped.text)
	}
	return straight
}

// named makes the error of a received Terminate, with the text if the reason is known.
func named(layer, typ, code uint8) *TerminateError {
	e := &TerminateError{Layer: layer, Type: typ, Code: code, Peer: true}
	for _, k := range known {
		if k.same(e) {
			e.text = k.text
		}
	}
	return e
}
