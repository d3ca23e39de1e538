package replicate

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file posts the drains of a lane, in units; see method. The WRITEs of large copies go ahead: all of a range in one stream of chunks, and
// behind them units that only name it.

// start takes a drain; what the method and the send queue allow is posted at once, the rest by reap. The ranges stay
// untouched until the drain's outcome.
func (l *lane) start(seq uint64, ranges []pmem.Range, seal pmem.Seal, w writes) error {
	if err := checkRanges(ranges, seal, l.size); err != nil {
		return err
	}
	if l.n == MaxInFlight {
		return errDrains
	}
	if l.bounced() {
		w = inUnits
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
		slot := (l.head + l.full) % MaxInFlight
		if done, err := l.writeAhead(&l.jobs[slot]); err != nil || !done {
			return err
		}
		if !l.how.room() || l.unitN > maxUnits-reserved {
			return nil
		}
		posted, err := l.postUnit(slot)
		if err != nil || !posted {
			return err
		}
	}
	return nil
}

// named is what a unit names to its method.
type named struct {
	slot   int          // of the drain in the ring of jobs
	ranges []pmem.Range // merged where they nearly touch; valid until the next unit
	bytes  uint64
	last   bool   // unit of the drain
	stage  uint64 // offset of the bytes in the staging area
}

// postUnit builds and posts the next unit of the drain in this place of the ring. It reports false if the send queue has no room for it.
func (l *lane) postUnit(slot int) (bool, error) {
	j := &l.jobs[slot]
	if l.free < l.how.most()+reserved || !l.fits() {
		return false, nil
	}
	u := &l.naming
	*u = named{slot: slot}
	if l.staging != nil {
		u.stage = l.staging.at()
	}
	writes, err := l.gather(j, u)
	if err != nil {
		return false, err
	}
	if j.writes == inUnits {
		l.fab.sent.write(writes, u.bytes)
	}
	n := l.how.finish(j, u, writes)
	if err := l.qp.PostSend(l.wrs[:n]); err != nil {
		return false, err
	}
	l.pushUnit(unit{n, u.last, l.marks()})
	if mutant.On(mutant.BounceReused) {
		l.release(l.marks())
	}
	if u.last {
		j.whole = true
		l.full++
	}
	return true, nil
}

// gather takes ranges of j for one unit: the WRITEs go to l.wrs, unless the bytes are placed, and the ranges to u.
func (l *lane) gather(j *job, u *named) (writes int, err error) {
	flat := l.flat[:0]
	for j.next < len(j.ranges) && writes < unitWrites {
		r := j.ranges[j.next]
		most := uint64(verbs.MaxMessage)
		if j.writes == inUnits {
			most = unitBytes - u.bytes
		}
		piece := pmem.Range{Off: r.Off + j.done, Len: l.within(r.Off+j.done, min(r.Len-j.done, most))}
		if merge := len(flat) > 0 && l.near(flat[len(flat)-1], piece); merge {
			flat[len(flat)-1].Len = piece.Off + piece.Len - flat[len(flat)-1].Off
		} else if len(flat) < len(l.flat) {
			flat = append(flat, piece)
		} else {
			break
		}
		if j.writes == inUnits && piece.Len > 0 {
			if l.wrs[writes], err = l.writeWR(piece); err != nil {
				return 0, err
			}
			writes++
		}
		u.bytes += piece.Len
		if j.done += piece.Len; j.done == r.Len {
			j.next, j.done = j.next+1, 0
		}
		if j.writes == inUnits && u.bytes == unitBytes {
			break
		}
	}
	u.ranges, u.last = flat, j.next == len(j.ranges)
	return writes, nil
}

// near reports whether b begins at the end of a or a little after it, and one work request could name both.
func (l *lane) near(a, b pmem.Range) bool {
	end := a.Off + a.Len
	if l.staging != nil { // where one range stands behind the other
		return b.Off == end
	}
	if b.Off < end || b.Off-end >= mergeGap {
		return false
	}
	n := b.Off + b.Len - a.Off
	return n <= verbs.MaxMessage && l.within(a.Off, n) == n
}

// within cuts n bytes at pool offset off such that they lie in one chunk here and at the target, where there are chunks.
func (l *lane) within(off, n uint64) uint64 {
	if l.source == nil {
		n = min(n, l.fab.local.Rest(off))
	}
	if l.staging == nil {
		n = min(n, l.remote.Rest(off))
	}
	return n
}

// writeWR is the WRITE of r, which lies within one chunk.
func (l *lane) writeWR(r pmem.Range) (verbs.SendWR, error) {
	local, err := l.from(r)
	addr, rkey := l.to(r)
	return verbs.SendWR{Op: verbs.OpWrite, Local: local, RemoteAddr: addr, RKey: rkey}, err
}

// Locate finds bytes at pool offset off on both sides: n of them, or as many as lie in one chunk on both. For the copier, which works without
// bounce buffers.
func (l *lane) Locate(off, n uint64) (local verbs.SGE, addr uint64, rkey uint32) {
	addr, rkey = l.remote.At(off)
	return l.fab.local.Local(off, l.within(off, n)), addr, rkey
}

func (l *lane) pushUnit(u unit) {
	l.free -= u.slots
	l.units[(l.unitHead+l.unitN)%maxUnits] = u
	l.unitN++
}

// writeAhead posts the WRITEs of j that go ahead, if it has such. It reports false while they are not all posted.
func (l *lane) writeAhead(j *job) (bool, error) {
	if j.writes != ahead {
		return true, nil
	}
	for ; j.next < len(j.ranges); j.next++ {
		if done, err := l.write(j.ranges[j.next]); err != nil || !done {
			return false, err
		}
	}
	j.writes, j.next = placed, 0
	return true, nil
}

// write posts the WRITEs of r outside of any unit. It reports false while they are not all posted: reap, and call it again with the same range.
func (l *lane) write(r pmem.Range) (bool, error) {
	if l.copier.Posted() {
		l.copier.Add(r.Off, r.Len)
	}
	writes, bytes, err := l.copier.Post()
	l.fab.sent.write(writes, bytes)
	return l.copier.Posted(), err
}

// read starts to bring up to n bytes at off into the bounce buffer, and returns how many. One may be outstanding; all others
// leave its place in the send queue free.
func (l *lane) read(off, n uint64) (uint64, error) {
	return l.how.bring(off, min(n, bounceSize))
}

// bring is that of all methods where the pool is in reach.
func (l *lane) bring(off, n uint64) (uint64, error) {
	n = min(n, l.remote.Rest(off))
	addr, rkey := l.remote.At(off)
	return n, l.postRead(n, addr, rkey)
}

func (l *lane) postRead(n, addr uint64, rkey uint32) error {
	l.wrs[0] = verbs.SendWR{ID: idRead, Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: l.bounce, Len: n}, RemoteAddr: addr, RKey: rkey}
	if err := l.qp.PostSend(l.wrs[:1]); err != nil {
		return err
	}
	l.pushUnit(unit{slots: 1})
	return nil
}
