package layout

import "encoding/binary"

// ExtentSize is the size of the value of an EXTENT key.
const ExtentSize = 24

// Unwritten is the flag of an extent that reads as zeros although its blocks hold anything.
const Unwritten = 1

// Extent maps N blocks of a file, from the logical block in the key on, to blocks of the pool from Pblk on.
type Extent struct {
	Pblk  uint64
	N     uint32
	Flags uint32
	Birth uint64
}

// Encode writes the ExtentSize bytes of e.
func (e *Extent) Encode(b []byte) {
	b = b[:ExtentSize]
	binary.LittleEndian.PutUint64(b, e.Pblk)
	binary.LittleEndian.PutUint32(b[8:], e.N)
	binary.LittleEndian.PutUint32(b[12:], e.Flags)
	binary.LittleEndian.PutUint64(b[16:], e.Birth)
}

// DecodeExtent reads an extent. That its blocks lie within the pool is for the caller to check.
func DecodeExtent(b []byte) (Extent, error) {
	if len(b) != ExtentSize {
		return Extent{}, corrupt("extent: found %d bytes, expected %d", len(b), ExtentSize)
	}
	e := Extent{
		Pblk:  binary.LittleEndian.Uint64(b),
		N:     binary.LittleEndian.Uint32(b[8:]),
		Flags: binary.LittleEndian.Uint32(b[12:]),
		Birth: binary.LittleEndian.Uint64(b[16:]),
	}
	if e.N == 0 || e.Flags&^Unwritten != 0 {
		return Extent{}, corrupt("extent: found %d blocks with flags %#x, expected at least 1 block and flags 0 or 1", e.N, e.Flags)
	}
	return e, nil
}
