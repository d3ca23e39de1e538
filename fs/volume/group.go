package volume

import (
	"cmp"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// group is what the next record will say: the edits applied to the tree since the last one, in order, and what must be
// persistent with it.
type group struct {
	body   []byte
	n      uint32       // operations in body
	ranges []pmem.Range // data that the record refers to or makes durable
	frees  []pmem.Range // in blocks: mapped by an earlier state, not any more
	ino    bool         // the next inode number changed
	inodes int64        // change of the number of inodes
}

func (g *group) empty() bool {
	return len(g.body) == 0 && len(g.ranges) == 0 && !g.ino && g.inodes == 0
}

// put, remove and patch change the tree and add the same change to the group. They are called only after admit, so what
// can still fail is a damaged tree, and then the volume stops.

func (v *Volume) put(k layout.Key, val []byte) {
	if v.edited(v.tree.Put(k, val)) {
		v.group.body = layout.AppendPut(v.group.body, k, val)
	}
}

func (v *Volume) remove(k layout.Key) {
	_, err := v.tree.Delete(k)
	if v.edited(err) {
		v.group.body = layout.AppendDelete(v.group.body, k)
	}
}

func (v *Volume) patch(k layout.Key, off int, b []byte) {
	if v.edited(v.tree.Patch(k, off, b)) {
		v.group.body = layout.AppendPatch(v.group.body, k, uint16(off), b)
	}
}

func (v *Volume) edited(err error) bool {
	if err != nil {
		v.stop(err)
		return false
	}
	v.group.n++
	return true
}

// free gives up blocks that a logged state maps: they are used again when the open group is sealed everywhere.
func (v *Volume) free(blk, n uint64) {
	v.group.frees = append(v.group.frees, pmem.Range{Off: blk, Len: n})
}

// takeIno is a number that no inode ever had.
func (v *Volume) takeIno() Ino {
	ino := v.nextIno
	v.nextIno++
	v.group.ino = true
	return ino
}

func (v *Volume) countInodes(change int64) {
	v.inodes += uint64(change)
	v.group.inodes += change
}

// CloseGroup writes the open group into the log as one record, without its seal, and queues its job. It returns false if
// there was nothing to write.
func (v *Volume) CloseGroup() (bool, error) {
	var closed bool
	err := v.change(func() error {
		closed = v.closeGroup()
		return nil
	})
	return closed, err
}

func (v *Volume) closeGroup() bool {
	g := &v.group
	if g.empty() {
		return false
	}
	if g.ino {
		g.body = layout.AppendNextIno(g.body, v.nextIno)
		g.n++
	}
	if g.inodes != 0 {
		g.body = layout.AppendInodes(g.body, g.inodes)
		g.n++
	}
	now := v.now()
	lsn, seal, ranges, err := v.log.Append(g.body, g.n, v.opts.Term, uint64(now.Sec)*1e9+uint64(now.Nsec), g.ranges)
	if err != nil {
		v.stop(err)
		return false
	}
	j := v.newJob()
	j.LSN, j.Seal = lsn, seal
	j.Ranges, g.ranges = mergeRanges(ranges), j.Ranges[:0]
	j.frees, g.frees = g.frees, j.frees[:0]
	if mutant.On(mutant.EarlyReuse) {
		v.release(j)
	}
	v.queue = append(v.queue, j)
	g.body, g.n, g.ino, g.inodes = g.body[:0], 0, false, 0
	v.space.watch.Closed(lsn)
	return true
}

func (v *Volume) newJob() *Job {
	var j *Job
	if last := len(v.idle) - 1; last >= 0 {
		j = v.idle[last]
		v.idle = v.idle[:last]
	} else {
		j = new(Job)
	}
	v.seq++
	j.Seq, j.Super = v.seq, false
	return j
}

// NextJob hands out the next closed group or super, nil if there is none.
func (v *Volume) NextJob() *Job {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) == 0 {
		return nil
	}
	j := v.queue[0]
	v.queue = append(v.queue[:0], v.queue[1:]...)
	v.flying = append(v.flying, j)
	return j
}

// Sealed takes note that j, and so all jobs before it, are durable on the local and on every attached copy. What they
// freed may be used again. The job is not the caller's any more.
func (v *Volume) Sealed(j *Job) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if j.Super {
		v.superSealed(j)
	} else {
		v.sealed = max(v.sealed, j.LSN)
		v.release(j)
	}
	if i := slices.Index(v.flying, j); i >= 0 {
		v.flying = slices.Delete(v.flying, i, i+1)
	}
	v.idle = append(v.idle, j)
	v.sweep()
}

// release lets the blocks that j freed be used again.
func (v *Volume) release(j *Job) {
	for _, r := range j.frees {
		v.space.FreeData(r.Off, r.Len)
	}
	j.frees = j.frees[:0]
}

// toSeal is the group that must be sealed so that all changes made so far are durable, 0 if all are.
func (v *Volume) toSeal() uint64 {
	switch last := v.log.LSN(); {
	case !v.group.empty():
		return last + 1
	case last > v.sealed && !mutant.On(mutant.FsyncSeesNothing):
		return last
	}
	return 0
}

// mergeRanges sorts rs and joins those that overlap or touch. Seal words stay outside: the bytes on both sides of one
// never belong to one job.
func mergeRanges(rs []pmem.Range) []pmem.Range {
	slices.SortFunc(rs, func(a, b pmem.Range) int { return cmp.Compare(a.Off, b.Off) })
	out := rs[:0]
	for _, r := range rs {
		last := len(out) - 1
		if last < 0 || out[last].Off+out[last].Len < r.Off {
			out = append(out, r)
			continue
		}
		out[last].Len = max(out[last].Len, r.Off+r.Len-out[last].Off)
	}
	return out
}

// WantCheckpoint tells that the log or the nodes of the open epoch fill up: a quarter of the log, or of the reserve.
func (v *Volume) WantCheckpoint() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return !v.flip && (v.super.LogLen-v.log.Free() >= v.super.LogLen/4 || uint64(v.tree.Born()) >= max(v.limits.reserve/4, 1))
}

// CloseEpoch closes the group, ends the epoch of the tree, writes the super of that state into the older slot, without
// its seal, and queues its job. It returns false, and does nothing, while the previous super is not sealed: the older
// slot is then the only one to recover from.
func (v *Volume) CloseEpoch() (bool, error) { return v.endEpoch(false) }

// SettleEpoch is CloseEpoch with a job that also brings free space to all copies: if nothing is changed meanwhile, they
// are equal when it is sealed.
func (v *Volume) SettleEpoch() (bool, error) { return v.endEpoch(true) }

func (v *Volume) endEpoch(settle bool) (bool, error) {
	var closed bool
	err := v.change(func() error {
		if v.flip {
			return nil
		}
		closed = true
		return v.closeEpoch(settle)
	})
	return closed && err == nil, err
}

func (v *Volume) closeEpoch(settle bool) error {
	// In the next epoch every node must be copied again before it is changed. Where the nodes left would not do for
	// what is pending then, it goes into this epoch, in which they do.
	if !v.nodesFor(0, true) {
		v.flushFiles()
	}
	if v.closeGroup(); v.stopped != nil {
		return v.stopped
	}
	j := v.newJob()
	j.Super, j.LSN = true, v.log.LSN()
	epoch := v.tree.Epoch()
	j.Ranges = v.tree.Freeze(j.Ranges[:0])
	if mutant.On(mutant.RootBeforeNodes) {
		j.Ranges = j.Ranges[:0]
	}
	if settle {
		j.Ranges = v.space.stale.take(j.Ranges, v.generalArea())
	}
	v.dropped.nodes = append(v.dropped.nodes, v.tree.TakeReplaced()...)

	s := &v.super
	s.Epoch, s.Term = epoch, v.opts.Term
	root, birth, height := v.tree.Root()
	s.Root, s.RootBirth, s.Height = root, birth, uint32(height)
	s.LSN, s.LSNSeal, s.LogPos = j.LSN, v.log.LastSeal(), v.log.Pos()
	s.NextIno, s.Inodes = v.nextIno, v.inodes
	v.growSuper()
	j.Ranges = v.takeSnapshot(j.Ranges)
	off := layout.SuperOff(s.Epoch)
	slot := v.bytes[off : off+layout.BlockSize]
	s.Encode(slot)
	j.Seal = pmem.Seal{Off: off, Val: s.Seal(slot)}
	j.Ranges = mergeRanges(append(j.Ranges, pmem.Range{Off: off + 8, Len: layout.SuperEnd - 8}))
	v.flip = true
	v.queue = append(v.queue, j)
	if mutant.On(mutant.LogEarly) {
		v.log.Release(s.LogPos)
	}
	return nil
}

// superSealed moves the lists on. The super of epoch e overwrote that of e-2, so nothing refers any more to what epoch
// e-1 dropped; what e dropped is still reachable from the super of e-1.
func (v *Volume) superSealed(j *Job) {
	v.flip = false
	v.grown()
	v.log.Release(v.super.LogPos)
	v.space.freeDropped(&v.waiting)
	if mutant.On(mutant.NodesEarly) {
		v.space.freeDropped(&v.dropped)
	}
	v.waiting, v.dropped = v.dropped, v.waiting
}
