package layout

import "encoding/binary"

const (
	// RecordHeader is the size of a record without its body, RecordAlign what its place is a multiple of.
	RecordHeader = 64
	RecordAlign  = 64
	// MaxBody is the longest body of a record in bytes.
	MaxBody = 1 << 20
)

// Record is the header of a log record. Len is the length of the body in bytes, N its operations, Time nanoseconds
// since 1970.
type Record struct {
	Seal, LSN, Term uint64
	Len, N          uint32
	PrevSeal, Time  uint64
}

// Encode writes bytes 8..63 of the header b. The seal, bytes 0..7, stays as it is: it may only be stored when the rest
// of the record, and all that it refers to, is persistent.
func (r *Record) Encode(b []byte) {
	b = b[:RecordHeader]
	le := binary.LittleEndian
	le.PutUint64(b[8:], r.LSN)
	le.PutUint64(b[16:], r.Term)
	le.PutUint32(b[24:], r.Len)
	le.PutUint32(b[28:], r.N)
	le.PutUint64(b[32:], r.PrevSeal)
	le.PutUint64(b[40:], r.Time)
	clear(b[48:])
}

// DecodeRecord reads a header. Whether it is a valid one is told by RecordSeal over it and its body.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) < RecordHeader {
		return Record{}, corrupt("record: found %d bytes of the header, expected %d", len(b), RecordHeader)
	}
	le := binary.LittleEndian
	r := Record{
		Seal: le.Uint64(b), LSN: le.Uint64(b[8:]), Term: le.Uint64(b[16:]), Len: le.Uint32(b[24:]), N: le.Uint32(b[28:]),
		PrevSeal: le.Uint64(b[32:]), Time: le.Uint64(b[40:]),
	}
	if r.Len > MaxBody {
		return Record{}, corrupt("record %d: length of the body: found %d, expected at most %d", r.LSN, r.Len, MaxBody)
	}
	return r, nil
}

// MaySeal tells whether b may begin with a sealed record that has a number above lsn: quickly, since most of what a ring holds is none. RecordSeal has
// the answer.
func MaySeal(b []byte, lsn uint64) bool {
	number := binary.LittleEndian.Uint64(b[8:])
	return number > lsn && binary.LittleEndian.Uint32(b) == uint32(number)
}

// RecordSeal is the seal word of the record lsn with the encoded header b and a body that stands in two parts, the second
// of which may be empty.
func RecordSeal(uuid [16]byte, lsn uint64, b, body1, body2 []byte) uint64 {
	return uint64(CRC(uuid, b[8:RecordHeader], body1, body2))<<32 | lsn&0xffffffff
}
