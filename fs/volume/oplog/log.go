package oplog

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Errors that callers decide by.
var (
	// ErrFull: the ring has no room for the record until a checkpoint releases some.
	ErrFull = errors.New("log: ring is full until a checkpoint")
	// ErrTooLarge: the body of a record is longer than layout.MaxBody or than the ring can ever hold.
	ErrTooLarge = errors.New("log: record too large")
	// ErrTerm: the term of a record is lower than that of the one before.
	ErrTerm = errors.New("log: term went back")
)

// Log is the writing end of the ring. Positions are byte offsets in the ring, multiples of 64.
type Log struct {
	ring []byte
	off  uint64 // pool offset of the ring
	uuid [16]byte

	pos  uint64 // where the next record goes
	used uint64 // bytes before pos that are not released
	lsn  uint64 // of the last record
	seal uint64 // of the last record, 0 if there was none
	term uint64 // of the last record
}

// New makes a log over the mapped bytes of the ring, a multiple of 4096, which begins at pool offset ringOff. It begins
// empty at position 0, with nothing written before.
func New(ring []byte, ringOff uint64, uuid [16]byte) *Log {
	return &Log{ring: ring, off: ringOff, uuid: uuid}
}

// Reset continues after the record lsn, which has this seal and term and ends before pos. All of the ring is free then; if
// records before pos are still needed, Release must follow with the position of the first of them.
func (l *Log) Reset(pos, lsn, seal, term uint64) {
	l.pos, l.lsn, l.seal, l.term, l.used = pos, lsn, seal, term, 0
}

// Pos is where the next record goes.
func (l *Log) Pos() uint64 { return l.pos }

// LSN is the number of the last record.
func (l *Log) LSN() uint64 { return l.lsn }

// LastSeal is the seal of the last record, 0 if there was none.
func (l *Log) LastSeal() uint64 { return l.seal }

// Free is how many bytes, headers and padding included, can still be appended.
func (l *Log) Free() uint64 { return l.size() - layout.RecordAlign - l.used }

func (l *Log) size() uint64 { return uint64(len(l.ring)) }

// Release says that the records still needed begin at pos: what stands before it is free.
func (l *Log) Release(pos uint64) { l.used = (l.pos + l.size() - pos) % l.size() }

// Space is how many bytes of the ring a record with such a body takes.
func Space(body uint64) uint64 {
	return layout.RecordHeader + (body+layout.RecordAlign-1)&^(layout.RecordAlign-1)
}

// Append writes a record of n operations, all but its seal, and appends to ranges what must be persistent before the seal
// may be stored: header bytes 8..63 and the body, two ranges if the body wraps. An error means that nothing was written.
func (l *Log) Append(body []byte, n uint32, term, now uint64, ranges []pmem.Range) (
	lsn uint64, seal pmem.Seal, out []pmem.Range, err error) {
	space := Space(uint64(len(body)))
	switch {
	case len(body) > layout.MaxBody || space > l.size()-layout.RecordAlign:
		return 0, pmem.Seal{}, ranges, fmt.Errorf("%w: body of %d bytes", ErrTooLarge, len(body))
	case space > l.Free():
		return 0, pmem.Seal{}, ranges, fmt.Errorf("%w: record of %d bytes, %d are free", ErrFull, space, l.Free())
	case term < l.term:
		return 0, pmem.Seal{}, ranges, fmt.Errorf("%w: from %d to %d", ErrTerm, l.term, term)
	}
	rec := layout.Record{LSN: l.lsn + 1, Term: term, Len: uint32(len(body)), N: n, PrevSeal: l.seal, Time: now}
	head := l.ring[l.pos : l.pos+layout.RecordHeader]
	rec.Encode(head)
	first := copy(l.ring[l.pos+layout.RecordHeader:], body)
	copy(l.ring, body[first:])

	seal = pmem.Seal{Off: l.off + l.pos, Val: layout.RecordSeal(l.uuid, rec.LSN, head, body, nil)}
	skip := uint64(8)
	if mutant.On(mutant.SealInRange) {
		skip = 0
	}
	ranges = append(ranges, pmem.Range{Off: seal.Off + skip, Len: layout.RecordHeader - skip + uint64(first)})
	if first < len(body) {
		ranges = append(ranges, pmem.Range{Off: l.off, Len: uint64(len(body) - first)})
	}
	l.pos = (l.pos + space) % l.size()
	l.used += space
	l.lsn, l.seal, l.term = rec.LSN, seal.Val, term
	return rec.LSN, seal, ranges, nil
}
