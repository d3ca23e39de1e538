package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A message is one Send: a header of 16 bytes, then a body. All integers are little-endian.
//
//	0  magic "SNDF" u32
//	4  version u8
//	5  kind u8
//	6  length of the body u16
//	8  CRC-32C of header and body, with this field zero, u32
//	12 zero u32
//
// README.md has the bodies and the order of the messages.
const (
	magic      = 'S' | 'N'<<8 | 'D'<<16 | 'F'<<24
	version    = 1
	headerSize = 16
	maxMessage = 512 // header included
	maxText    = 400 // bytes of the text of a REFUSE, or of a name
	sumSize    = sha256.Size
)

type kind uint8

const (
	kindOffer kind = iota + 1
	kindAccept
	kindStart
	kindFilled
	kindFreed
	kindFinish
	kindDone
	kindRefuse
	kindAlive
)

var kindNames = [...]string{"kind 0", "OFFER", "ACCEPT", "START", "FILLED", "FREED", "FINISH", "DONE", "REFUSE", "ALIVE"}

func (k kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// reason is why a side gives up for good.
type reason uint32

const (
	reasonProtocol reason = iota + 1 // the other side does what it must not
	reasonName                       // the name cannot be taken
	reasonExists                     // a file of that name is there
	reasonBusy                       // the same file is being received, or too many are
	reasonNoSpace                    // the file system is too small
	reasonIO                         // the file system fails
	reasonSum                        // the file that arrived is not the one that was sent
	reasonSource                     // the source changed or cannot be read
)

// message is every kind of message; each uses some of the fields.
type message struct {
	kind kind

	size uint64        // OFFER: bytes of the file
	mode uint32        // OFFER: permission bits
	name string        // OFFER
	off  uint64        // ACCEPT: how much is there; START: where the data begin
	sum  [sumSize]byte // ACCEPT: of what is there; FINISH, DONE: of the whole file
	addr uint64        // ACCEPT: of the ring
	rkey uint32        // ACCEPT: of the ring
	slot uint32        // ACCEPT: bytes of a slot
	n    uint32        // ACCEPT: slots of the ring; FILLED: bytes in the slot
	seq  uint64        // FILLED: number of the slot, counted from 0; FREED: how many were taken out of the ring
	why  reason        // REFUSE
	text string        // REFUSE
}

var (
	errMessage = errors.New("not a message of sendfile, or a damaged one")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// encode writes m to b, which has maxMessage bytes, and returns its length.
func (m *message) encode(b []byte) int {
	le := binary.LittleEndian
	b = append(b[:0], make([]byte, headerSize)...)
	switch m.kind {
	case kindOffer:
		b = le.AppendUint64(b, m.size)
		b = le.AppendUint32(b, m.mode)
		b = append(b, m.name...)
	case kindAccept:
		b = le.AppendUint64(b, m.off)
		b = append(b, m.sum[:]...)
		b = le.AppendUint64(b, m.addr)
		b = le.AppendUint32(b, m.rkey)
		b = le.AppendUint32(b, m.slot)
		b = le.AppendUint32(b, m.n)
	case kindStart:
		b = le.AppendUint64(b, m.off)
	case kindFilled:
		b = le.AppendUint64(b, m.seq)
		b = le.AppendUint32(b, m.n)
	case kindFreed:
		b = le.AppendUint64(b, m.seq)
	case kindFinish, kindDone:
		b = append(b, m.sum[:]...)
	case kindRefuse:
		b = le.AppendUint32(b, uint32(m.why))
		b = append(b, m.text[:min(len(m.text), maxText)]...)
	}
	le.PutUint32(b, magic)
	b[4], b[5] = version, byte(m.kind)
	le.PutUint16(b[6:], uint16(len(b)-headerSize))
	le.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return len(b)
}

// decode reads a message that a peer has sent; b is not kept. The checksum is computed over a copy, since the peer could
// still store to b.
func (m *message) decode(b []byte) error {
	var own [maxMessage]byte
	if len(b) < headerSize || len(b) > maxMessage {
		return errMessage
	}
	b = own[:copy(own[:], b)]
	le := binary.LittleEndian
	sum := le.Uint32(b[8:])
	le.PutUint32(b[8:], 0)
	if le.Uint32(b) != magic || int(le.Uint16(b[6:])) != len(b)-headerSize || crc32.Checksum(b, castagnoli) != sum {
		return errMessage
	}
	if b[4] != version {
		return fmt.Errorf("the peer speaks version %d of the protocol, this is version %d: run the same release on both sides", b[4], version)
	}
	*m = message{kind: kind(b[5])}
	return m.decodeBody(b[headerSize:])
}

func (m *message) decodeBody(b []byte) error {
	le := binary.LittleEndian
	fixed, text := bodySize(m.kind)
	if fixed < 0 || len(b) < fixed || len(b) > fixed+text {
		return fmt.Errorf("%v of %d bytes: %w", m.kind, len(b), errMessage)
	}
	switch m.kind {
	case kindOffer:
		m.size, m.mode, m.name = le.Uint64(b), le.Uint32(b[8:]), string(b[12:])
	case kindAccept:
		m.off = le.Uint64(b)
		copy(m.sum[:], b[8:])
		b = b[8+sumSize:]
		m.addr, m.rkey, m.slot, m.n = le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])
	case kindStart:
		m.off = le.Uint64(b)
	case kindFilled:
		m.seq, m.n = le.Uint64(b), le.Uint32(b[8:])
	case kindFreed:
		m.seq = le.Uint64(b)
	case kindFinish, kindDone:
		copy(m.sum[:], b)
	case kindRefuse:
		m.why, m.text = reason(le.Uint32(b)), string(b[4:])
	}
	return nil
}

// bodySize is the fixed part of a body and the most bytes of text behind it; -1 for a kind that does not exist.
func bodySize(k kind) (fixed, text int) {
	switch k {
	case kindOffer:
		return 12, maxText
	case kindAccept:
		return 8 + sumSize + 20, 0
	case kindStart, kindFreed:
		return 8, 0
	case kindFilled:
		return 12, 0
	case kindFinish, kindDone:
		return sumSize, 0
	case kindRefuse:
		return 4, maxText
	case kindAlive:
		return 0, 0
	}
	return -1, 0
}

// refusal is why this side gives up for good, which the peer is told. Trying again does not help.
type refusal struct {
	why  reason
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(why reason, format string, a ...any) error {
	return &refusal{why, fmt.Sprintf(format, a...)}
}

// peerError is a REFUSE of the peer. Its text could hold anything, so it is quoted unless it is plain.
type peerError refusal

func (e *peerError) Error() string {
	text := e.text
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsGraphic(r) }) {
		text = strconv.QuoteToGraphic(text)
	}
	return "the other side says: " + text
}
