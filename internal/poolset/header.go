package poolset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Places in block 0, in bytes; see docs/format.md, section 1.
const (
	HeaderLen     = 0x09c // the header, its CRC included
	HeaderCopyOff = 0x200
	StateOff      = 0x400 // slot 0; slot 1 follows
	StateLen      = 512

	headerCRC = 0x098
)

// Signature is that of pools that hold a pmemfs volume.
var Signature = [8]byte{'P', 'M', 'E', 'M', 'F', 'S'}

// Attr are the attributes that the user of a pool gives it, those of librpmem(7).
type Attr struct {
	Signature                         [8]byte
	Major, Compat, Incompat, ROCompat uint32
	PoolUUID, CopyID                  UUID
	Next, Prev                        UUID // replicas; pmemfs leaves them zero
	UserFlags                         [16]byte
}

// Header is the pool header.
type Header struct {
	Attr
	Created  int64  // seconds since 1970
	PoolSize uint64 // bytes, this header included
}

// CorruptError is a structure whose bytes are wrong.
type CorruptError struct {
	What            string // "pool header", "state slot 0"
	Off             uint64 // pool offset of the field that shows it
	Expected, Found string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt %s: at offset %#x expected %s, found %s", e.What, e.Off, e.Expected, e.Found)
}

// CurrentHeader returns the header in block 0. A change is written to the copy first, so if the header itself is torn
// the copy holds what it was to become; torn says that it was taken. If neither is valid the error is that of the header.
func CurrentHeader(block []byte) (h Header, torn bool, err error) {
	if err = h.Decode(block); err == nil {
		return h, false, nil
	}
	if len(block) < StateOff || h.Decode(block[HeaderCopyOff:]) != nil {
		return Header{}, false, err
	}
	return h, true, nil
}

// Flaws says which places of block 0 are damaged although another one makes up for them: header or its copy, or one of two
// state slots. A crash in the middle of a change leaves that as well, so it is no reason to refuse a pool, but one to tell. A
// slot that was never written is all zero.
func Flaws(block []byte, pool UUID) error {
	var errs []error
	note := func(what string, base uint64, err error) {
		if e := new(CorruptError); errors.As(err, &e) {
			errs = append(errs, &CorruptError{what, base + e.Off, e.Expected, e.Found})
		}
	}
	note("pool header", 0, new(Header).Decode(block))
	note("copy of the pool header", HeaderCopyOff, new(Header).Decode(block[HeaderCopyOff:]))
	for i := range 2 {
		at := StateOff + i*StateLen
		if slot := block[at : at+StateLen]; !bytes.Equal(slot, make([]byte, StateLen)) {
			note(fmt.Sprintf("state slot %d", i), uint64(at), new(State).Decode(slot, pool))
		}
	}
	return errors.Join(errs...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the header to the first HeaderLen bytes of b.
func (h *Header) Encode(b []byte) {
	le := binary.LittleEndian
	b = b[:HeaderLen]
	clear(b)
	copy(b[0x00:], h.Signature[:])
	le.PutUint32(b[0x08:], h.Major)
	le.PutUint32(b[0x0c:], h.Compat)
	le.PutUint32(b[0x10:], h.Incompat)
	le.PutUint32(b[0x14:], h.ROCompat)
	copy(b[0x18:], h.PoolUUID[:])
	copy(b[0x28:], h.CopyID[:])
	copy(b[0x58:], h.Prev[:])
	copy(b[0x68:], h.Next[:])
	le.PutUint64(b[0x78:], uint64(h.Created))
	copy(b[0x80:], h.UserFlags[:])
	le.PutUint64(b[0x90:], h.PoolSize)
	le.PutUint32(b[headerCRC:], crc32.Checksum(b[:headerCRC], castagnoli))
}

// Decode reads the header from the start of b. It fails with a *CorruptError, and then leaves h alone.
func (h *Header) Decode(b []byte) error {
	le := binary.LittleEndian
	if len(b) < HeaderLen {
		return &CorruptError{"pool header", 0, fmt.Sprintf("%d bytes", HeaderLen), fmt.Sprintf("%d", len(b))}
	}
	if want, found := crc32.Checksum(b[:headerCRC], castagnoli), le.Uint32(b[headerCRC:]); want != found {
		return &CorruptError{"pool header", headerCRC, fmt.Sprintf("CRC %#010x", want), fmt.Sprintf("%#010x", found)}
	}
	*h = Header{
		Attr: Attr{
			Signature: [8]byte(b[0x00:]),
			Major:     le.Uint32(b[0x08:]),
			Compat:    le.Uint32(b[0x0c:]),
			Incompat:  le.Uint32(b[0x10:]),
			ROCompat:  le.Uint32(b[0x14:]),
			PoolUUID:  UUID(b[0x18:]),
			CopyID:    UUID(b[0x28:]),
			Prev:      UUID(b[0x58:]),
			Next:      UUID(b[0x68:]),
			UserFlags: [16]byte(b[0x80:]),
		},
		Created:  int64(le.Uint64(b[0x78:])),
		PoolSize: le.Uint64(b[0x90:]),
	}
	return nil
}
