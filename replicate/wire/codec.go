package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// UUID is a pool UUID or a copy id. All zero means any, or none.
type UUID = poolset.UUID

// ErrCorrupt is wrapped by every decoding error but a *VersionError: the bytes are not a message of this format.
// The stream or lane that they came from is of no further use.
var ErrCorrupt = errors.New("wire: not a valid message: check that both sides run pmemfs and that nothing alters the stream")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// zeros stands for a checksum field; a local array would escape to the heap.
var zeros [4]byte

// sum is the CRC-32C of b with the four bytes at off taken as zero.
func sum(b []byte, off int) uint32 {
	c := crc32.Update(0, castagnoli, b[:off])
	c = crc32.Update(c, castagnoli, zeros[:])
	return crc32.Update(c, castagnoli, b[off+4:])
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// MaxString is the longest string of a body in bytes. Encoders cut a longer one.
const MaxString = 4096

func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), MaxString)]
	b = le.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// cursor takes fields off the front of a body. After a field that is not there it returns zeros, and end reports it.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if c.short || n > len(c.b) {
		c.short = true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return le.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return le.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return le.Uint64(p)
	}
	return 0
}

func (c *cursor) uuid() (u UUID) {
	copy(u[:], c.take(len(u)))
	return u
}

func (c *cursor) history() (h [8]uint64) {
	for i := range h {
		h[i] = c.u64()
	}
	return h
}

func (c *cursor) str() string {
	n := int(c.u16())
	if n > MaxString {
		c.short = true
		return ""
	}
	return string(c.take(n))
}

// end checks that the body held every field and nothing after them.
func (c *cursor) end(what string) error {
	if c.short {
		return corrupt("%s: body is too short", what)
	}
	if len(c.b) != 0 {
		return corrupt("%s: %d bytes after the last field", what, len(c.b))
	}
	return nil
}

func appendHistory(b []byte, h *[8]uint64) []byte {
	for _, g := range h {
		b = le.AppendUint64(b, g)
	}
	return b
}
