package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// stepCost is what removing so many keys takes, one of them an extent that is cut in two, with a change of the inode
// and of its entry among the orphans.
func stepCost(keys int) cost {
	return cost{keys + 5, keys*opDelete + 3*(opPut+layout.ExtentSize) + 2*inodeBytes}
}

// stepSize is how many keys one step may remove: fewer when nodes are scarce, since the reserve must do for a deletion.
func (v *Volume) stepSize() int {
	n := stepKeys
	for n > 1 && !v.nodesFor(stepCost(n).edits, true) {
		n /= 2
	}
	return n
}

// resize sets the size of a file, and the other attributes of s with it, in one record together with all content that
// is pending. What is behind a smaller size is unmapped; if that is much, in more records, and the first one says that
// it is to be done.
func (v *Volume) resize(ino Ino, s SetAttr) error {
	if err := v.finishTrim(ino); err != nil {
		return err
	}
	f, err := v.file(ino)
	if err != nil {
		return err
	}
	shrinks := s.Size <= f.ind.Size
	if !shrinks {
		if err := v.cleanTail(f); err != nil {
			return err
		}
	}
	keys := 0
	if shrinks {
		keys = v.stepSize()
	}
	if err := v.admit(stepCost(keys).plus(cost{0, f.aside.bytes}), shrinks); err != nil {
		return err
	}
	v.releaseAhead(f)
	v.flush(f)
	now := v.now()
	v.update(ino, func(ind *layout.Inode) {
		s.apply(ind, now)
		ind.Size = s.Size
	})
	f.lsn = v.log.LSN() + 1
	if !shrinks {
		return nil
	}
	v.trim(ino, blocksOf(s.Size), keys)
	return nil
}

// blocksOf is how many blocks n bytes take.
func blocksOf(n uint64) uint64 { return (n + layout.BlockSize - 1) / layout.BlockSize }

// trim unmaps all from block from on. The first step is admitted already; the following ones may lack room, then Reclaim
// or the next change of the content goes on.
func (v *Volume) trim(ino Ino, from uint64, keys int) {
	if !v.unmap(ino, from, keys) {
		return
	}
	v.trims[ino] = from
	if ind, err := v.stored(ino); err == nil && ind.Nlink > 0 {
		v.orphan(ino, from)
	}
	for done := false; !done; {
		var err error
		if done, err = v.trimStep(ino); err != nil {
			v.orphans = append(v.orphans, ino)
			return
		}
	}
}

// finishTrim completes what a truncate began, before the content of the file changes: blocks behind its end must not come
// to light again.
func (v *Volume) finishTrim(ino Ino) error {
	for {
		if _, trimming := v.trims[ino]; !trimming {
			return nil
		}
		if _, err := v.trimStep(ino); err != nil {
			return err
		}
	}
}

// trimStep does one record's share of a truncate that was begun.
func (v *Volume) trimStep(ino Ino) (done bool, err error) {
	keys := v.stepSize()
	if err := v.admit(stepCost(keys), true); err != nil {
		return false, err
	}
	if v.unmap(ino, v.trims[ino], keys) {
		return false, nil
	}
	ind, err := v.stored(ino)
	if err == nil && ind.Nlink > 0 {
		v.remove(orphanKey(ino))
	}
	delete(v.trims, ino)
	return true, err
}

// unmap removes up to keys extents of ino that hold blocks from block from on, and tells whether there may be more.
func (v *Volume) unmap(ino Ino, from uint64, keys int) (more bool) {
	var blocks uint64
	i := 0
	for ; i < keys; i++ {
		start, e, ok := v.extentFrom(ino, from)
		if !ok {
			break
		}
		blocks += v.cut(ino, max(start, from), start+uint64(e.N), 0)
	}
	if blocks > 0 {
		v.update(ino, func(ind *layout.Inode) { ind.Blocks -= blocks })
	}
	return i == keys
}

// Fallocate maps all of [off, off+n) that is not mapped to unwritten blocks, and extends the file to the end of it:
// fallocate(2) with mode 0. When it fails, some of the blocks may have been mapped; the file reads the same. Errors:
// EINVAL (n is 0, or no file), EISDIR, EFBIG, ESTALE, ErrShort.
func (v *Volume) Fallocate(ino Ino, off, n uint64) error {
	return v.change(func() error {
		f, err := v.fileToWrite(ino)
		switch {
		case err != nil:
			return err
		case n == 0:
			return syscall.EINVAL
		case off > MaxSize || n > MaxSize-off:
			return syscall.EFBIG
		}
		return v.fallocate(f, off, off+n)
	})
}

func (v *Volume) fallocate(f *file, off, end uint64) error {
	if end > f.ind.Size {
		if err := v.cleanTail(f); err != nil {
			return err
		}
	}
	v.releaseAhead(f)
	if v.holes(f, off/layout.BlockSize, blocksOf(end)) > v.space.DataAvailable() {
		return ErrShort
	}
	for lblk := off / layout.BlockSize; lblk < blocksOf(end); {
		n, err := v.fillHole(f, lblk, blocksOf(end)-lblk)
		if err != nil {
			return err
		}
		lblk += n
	}
	if err := v.admit(cost{1, inodeBytes + f.aside.bytes}, false); err != nil {
		return err
	}
	v.flush(f)
	now := v.now()
	v.update(f.ino, func(ind *layout.Inode) {
		ind.Ctime = now
		if end > ind.Size {
			ind.Size, ind.Mtime = end, now
		}
	})
	return nil
}

// holes counts the blocks from lo up to hi that are not mapped.
func (v *Volume) holes(f *file, lo, hi uint64) (blocks uint64) {
	for lo < hi {
		m := v.mapBlock(f, f.ino, lo)
		n := min(m.n, hi-lo)
		if m.state == hole {
			blocks += n
		}
		lo += n
	}
	return blocks
}

// fillHole maps blocks at lblk to unwritten ones if there is a hole, at once in the group: unwritten blocks show
// nothing. It returns how many of the up to n blocks are done with.
func (v *Volume) fillHole(f *file, lblk, n uint64) (uint64, error) {
	m := v.mapBlock(f, f.ino, lblk)
	n = min(n, m.n)
	if m.state != hole {
		return n, nil
	}
	if err := v.admit(cost{extentEdits + 1, extentBytes + inodeBytes}, false); err != nil {
		return 0, err
	}
	blk, got := v.allocData(v.goal(f, lblk), min(n, 1<<30))
	if got == 0 {
		return 0, ErrShort
	}
	if !v.nodesFor(extentEdits+1, false) {
		v.space.FreeData(blk, got)
		return 0, ErrShort
	}
	v.mapExtent(f.ino, lblk, blk, got, layout.Unwritten)
	v.update(f.ino, func(ind *layout.Inode) { ind.Blocks += got })
	return got, nil
}
