package oplog

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Scan reads the records that follow the record lsn, which has this seal and term, from position pos on, and calls fn for
// each; body is valid only during the call. Read fills b from a pool offset. The first record that is not valid ends the
// log, without an error. The results are the position after the last valid record, its number, seal and term, which
// Log.Reset continues from, and how many records there were. Err comes from read, from fn, or from a ring or position that
// cannot be; then the results are those of the last record that fn took.
func Scan(read func(off uint64, b []byte) error, ringOff, ringLen, pos, lsn, seal, term uint64, uuid [16]byte,
	fn func(rec layout.Record, body []byte) error) (endPos, endLSN, endSeal, endTerm uint64, n int, err error) {
	s := scanner{read: read, off: ringOff, len: ringLen, pos: pos, lsn: lsn, seal: seal, term: term, uuid: uuid}
	if ringLen < layout.BlockSize || ringLen%layout.RecordAlign != 0 || ringLen > ^ringOff ||
		pos >= ringLen || pos%layout.RecordAlign != 0 {
		err = fmt.Errorf("%w: log: position %d in a ring of %d bytes at offset %d", layout.ErrCorrupt, pos, ringLen, ringOff)
		return pos, lsn, seal, term, 0, err
	}
	for left := ringLen; ; n++ {
		rec, body, ok, err := s.next(left)
		if err == nil && ok {
			err = fn(rec, body)
		}
		if err != nil || !ok {
			return s.pos, s.lsn, s.seal, s.term, n, err
		}
		space := Space(uint64(rec.Len))
		left -= space
		s.pos = (s.pos + space) % ringLen
		s.lsn, s.seal, s.term = rec.LSN, rec.Seal, rec.Term
	}
}

// scanner stands after the last valid record.
type scanner struct {
	read            func(off uint64, b []byte) error
	off, len        uint64
	pos             uint64
	lsn, seal, term uint64
	uuid            [16]byte
	head            [layout.RecordHeader]byte
	body            []byte
}

// next reads the record at pos. Ok is false if it is not the valid successor, or longer than the left bytes of the ring
// that the scan has not been through.
func (s *scanner) next(left uint64) (rec layout.Record, body []byte, ok bool, err error) {
	if left < layout.RecordHeader {
		return rec, nil, false, nil
	}
	if err := s.read(s.off+s.pos, s.head[:]); err != nil {
		return rec, nil, false, fmt.Errorf("log: header of record %d at offset %d: %w", s.lsn+1, s.off+s.pos, err)
	}
	rec, err = layout.DecodeRecord(s.head[:])
	if err != nil || rec.LSN != s.lsn+1 || rec.PrevSeal != s.seal || rec.Term < s.term || Space(uint64(rec.Len)) > left {
		return rec, nil, false, nil
	}
	if body, err = s.readBody(int(rec.Len)); err != nil {
		return rec, nil, false, fmt.Errorf("log: body of record %d at offset %d: %w", rec.LSN, s.off+s.pos, err)
	}
	return rec, body, rec.Seal == layout.RecordSeal(s.uuid, rec.LSN, s.head[:], body, nil), nil
}

// readBody reads n bytes after the header, from the start of the ring on where they wrap.
func (s *scanner) readBody(n int) ([]byte, error) {
	if n > len(s.body) {
		s.body = make([]byte, n)
	}
	body := s.body[:n]
	start := s.pos + layout.RecordHeader
	first := min(uint64(n), s.len-start)
	if first > 0 {
		if err := s.read(s.off+start, body[:first]); err != nil {
			return nil, err
		}
	}
	if first < uint64(n) {
		return body, s.read(s.off, body[first:])
	}
	return body, nil
}

// Later looks for a sealed record with a number above lsn in the part of the ring from pos on that the longest record can take,
// where Scan ended after the record lsn. Records are sealed one after the other on every copy, and what stood in a copy before is
// overwritten by a full copy, so if there is one, the record at pos was sealed too, and has been damaged since: a crash
// leaves nothing sealed behind the end of the log.
func Later(view View, ringOff, ringLen, pos, lsn uint64, uuid [16]byte) (rec layout.Record, off uint64, ok bool, err error) {
	n := min(ringLen, layout.RecordHeader+Space(layout.MaxBody))
	first := min(n, ringLen-pos)
	behind, err := view(ringOff+pos, first)
	if err != nil {
		return rec, 0, false, fmt.Errorf("log: behind record %d: %w", lsn, err)
	}
	start, err := view(ringOff, n-first)
	if err != nil {
		return rec, 0, false, fmt.Errorf("log: behind record %d: %w", lsn, err)
	}
	for _, part := range [2]struct {
		pos uint64
		b   []byte
	}{{pos, behind}, {0, start}} {
		for at := 0; at < len(part.b); at += layout.RecordAlign {
			head, pos := part.b[at:at+layout.RecordHeader], part.pos+uint64(at)
			if !layout.MaySeal(head, lsn) {
				continue
			}
			if rec, ok, err = view.sealed(head, ringOff, ringLen, pos, uuid); ok || err != nil {
				return rec, ringOff + pos, ok, err
			}
		}
	}
	return rec, 0, false, nil
}

// View shows n bytes of a pool from an offset on, to be read only.
type View func(off, n uint64) ([]byte, error)

// sealed decodes the record at pos, which has this header, and tells whether it is sealed.
func (view View) sealed(head []byte, ringOff, ringLen, pos uint64, uuid [16]byte) (rec layout.Record, ok bool, err error) {
	rec, err = layout.DecodeRecord(head)
	if err != nil || Space(uint64(rec.Len)) > ringLen {
		return rec, false, nil
	}
	start, n := pos+layout.RecordHeader, uint64(rec.Len)
	first := min(n, ringLen-start)
	var body, rest []byte
	if first > 0 {
		body, err = view(ringOff+start, first)
	}
	if first < n && err == nil {
		rest, err = view(ringOff, n-first)
	}
	if err != nil {
		return rec, false, fmt.Errorf("log: body of record %d at offset %d: %w", rec.LSN, ringOff+pos, err)
	}
	return rec, rec.Seal == layout.RecordSeal(uuid, rec.LSN, head, body, rest), nil
}
