package replicate

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file posts the drains of a lane.
//
// A drain goes out in units. A unit is up to unitWrites WRITEs of up to unitBytes, and one Send that names the same
// ranges; the Send of the last unit carries the seal and asks for an answer. The target handles Sends in order, and each finds
// its ranges placed, since the WRITEs stand before it on the same connection. An ordinary drain is one unit: one batch, one answer.
//
// The WRITEs of large copies go ahead: all of a range in one stream of chunks, and behind them Sends that only name it.

// start takes a drain; what credits and the send queue allow is posted at once, the rest by reap. The ranges stay
// untouched until the drain's outcome.
func (l *lane) start(seq uint64, ranges []pmem.Range, seal pmem.Seal, w writes) error {
	if err := checkRanges(ranges, seal, l.size); err != nil {
		return err
	}
	if l.n == MaxInFlight {
		return errDrains
	}
	l.jobs[(l.head+l.n)%MaxInFlight] = job{seq: seq, ranges: ranges, seal: seal, writes: w}
	l.n++
	return l.pump()
}

// checkRanges demands that ranges and seal lie within [FirstOffset, size), and that the seal is an aligned word.
func checkRanges(ranges []pmem.Range, seal pmem.Seal, size uint64) error {
	for _, r := range ranges {
		if !wire.Inside(r.Off, r.Len, size) {
			return rangeError(r.Off, r.Len, size)
		}
	}
	if seal != (pmem.Seal{}) && (!wire.Inside(seal.Off, 8, size) || seal.Off%8 != 0) {
		return rangeError(seal.Off, 8, size)
	}
	return nil
}

func rangeError(off, n, size uint64) error {
	return fmt.Errorf("%d bytes at offset %d do not lie within [%d, %d) or are not an aligned word", n, off, wire.FirstOffset, size)
}

// pump posts units of the oldest unposted drains while there is room for them.
func (l *lane) pump() error {
	for l.full < l.n && l.full < l.window {
		j := &l.jobs[(l.head+l.full)%MaxInFlight]
		if j.writes == ahead {
			if done, err := l.writeAhead(j); err != nil || !done {
				return err
			}
		}
		if l.sent-l.taken == l.credits || l.askN == maxAnswers || l.unitN >= maxUnits-1 {
			return nil
		}
		posted, err := l.postUnit(j)
		if err != nil || !posted {
			return err
		}
	}
	return nil
}

// postUnit builds and posts the next unit of j. It reports false if the send queue has no room for it.
func (l *lane) postUnit(j *job) (bool, error) {
	room := l.free - 2 // for WRITEs, beside the Send and a READ
	if room < min(unitWrites, len(j.ranges)-j.next) {
		return false, nil
	}
	next, done := j.next, j.done
	writes, bytes := l.gather(j, min(room, unitWrites))
	last := j.next == len(j.ranges)
	// The Send that uses the last credit asks for an answer, and so does every answerEvery-th of a long drain.
	l.silent++
	ask := last || l.sent+1-l.taken == l.credits || l.silent == answerEvery
	l.msg.Seq, l.msg.Session, l.msg.Answer, l.msg.Seal = j.seq, l.session, ask, pmem.Seal{}
	if last {
		l.msg.Seal = j.seal
	}
	off := l.sent % l.credits * wire.MaxFlush
	n := l.msg.Encode(l.sends.Bytes()[off:])
	l.wrs[writes] = verbs.SendWR{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: l.sends, Off: off, Len: uint64(n)}}
	if err := l.qp.PostSend(l.wrs[:writes+1]); err != nil {
		j.next, j.done = next, done
		return false, err
	}
	if j.writes == inUnits {
		l.fab.sent.write(writes, bytes)
	}
	l.fab.sent.send(ask)
	l.pushUnit(writes + 1)
	l.sent++
	if ask {
		l.silent = 0
		l.asked[(l.askHead+l.askN)%maxAnswers] = last
		l.askN++
	}
	if last {
		l.full++
	}
	return true, nil
}

// gather takes ranges of j for one unit of at most room WRITEs: these go to l.wrs, unless the bytes are placed, and the ranges to l.msg.
func (l *lane) gather(j *job, room int) (writes int, bytes uint64) {
	flat := l.flat[:0]
	for j.next < len(j.ranges) && writes < room {
		r := j.ranges[j.next]
		piece := pmem.Range{Off: r.Off + j.done, Len: r.Len - j.done}
		if j.writes == inUnits {
			piece.Len = l.within(piece.Off, min(piece.Len, unitBytes-bytes))
		}
		if merge := len(flat) > 0 && near(flat[len(flat)-1], piece); merge {
			flat[len(flat)-1].Len = piece.Off + piece.Len - flat[len(flat)-1].Off
		} else if len(flat) < len(l.flat) {
			flat = append(flat, piece)
		} else {
			break
		}
		if j.writes == inUnits && piece.Len > 0 {
			l.wrs[writes] = l.writeWR(piece)
			writes++
		}
		bytes += piece.Len
		if j.done += piece.Len; j.done == r.Len {
			j.next, j.done = j.next+1, 0
		}
		if j.writes == inUnits && bytes == unitBytes {
			break
		}
	}
	l.msg.Ranges = flat
	return writes, bytes
}

// near reports whether b begins at the end of a or a little after it.
func near(a, b pmem.Range) bool {
	end := a.Off + a.Len
	return b.Off >= end && b.Off-end < mergeGap
}

// within cuts n bytes at pool offset off such that they lie in one chunk here and at the target.
func (l *lane) within(off, n uint64) uint64 {
	return min(n, l.fab.local.Rest(off), l.remote.Rest(off))
}

// writeWR is the WRITE of r, which lies within one chunk.
func (l *lane) writeWR(r pmem.Range) verbs.SendWR {
	local, addr, rkey := l.Locate(r.Off, r.Len)
	return verbs.SendWR{ID: idWrite, Op: verbs.OpWrite, Local: local, RemoteAddr: addr, RKey: rkey}
}

// Locate finds bytes at pool offset off on both sides: n of them, or as many as lie in one chunk on both.
func (l *lane) Locate(off, n uint64) (local verbs.SGE, addr uint64, rkey uint32) {
	addr, rkey = l.remote.At(off)
	return l.fab.local.Local(off, l.within(off, n)), addr, rkey
}

func (l *lane) pushUnit(slots int) {
	l.free -= slots
	l.units[(l.unitHead+l.unitN)%maxUnits] = slots
	l.unitN++
}

// writeAhead posts the WRITEs of j. It reports false while they are not all posted.
func (l *lane) writeAhead(j *job) (bool, error) {
	for ; j.next < len(j.ranges); j.next++ {
		if done, err := l.write(j.ranges[j.next]); err != nil || !done {
			return false, err
		}
	}
	j.writes, j.next = placed, 0
	return true, nil
}

// write posts the WRITEs of r without a Send. It reports false while they are not all posted: reap, and call it again with the same range.
func (l *lane) write(r pmem.Range) (bool, error) {
	if l.copier.Posted() {
		l.copier.Add(r.Off, r.Len)
	}
	writes, bytes, err := l.copier.Post()
	l.fab.sent.write(writes, bytes)
	return l.copier.Posted(), err
}

// read posts a READ of up to n bytes at off into the bounce buffer, and returns how many. One may be outstanding; all others
// leave its place in the send queue free.
func (l *lane) read(off, n uint64) (uint64, error) {
	n = min(n, bounceSize, l.remote.Rest(off))
	addr, rkey := l.remote.At(off)
	l.wrs[0] = verbs.SendWR{ID: idRead, Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: l.bounce, Len: n}, RemoteAddr: addr, RKey: rkey}
	if err := l.qp.PostSend(l.wrs[:1]); err != nil {
		return 0, err
	}
	l.pushUnit(1)
	return n, nil
}
