package volume

import (
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
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
	if mutant.On(mutant.ShortLate) {
		f.ind.Size = s.Size
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
	if !v.unmap(ino, from, maxBlock, keys) {
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
	if v.unmap(ino, v.trims[ino], maxBlock, keys) {
		return false, nil
	}
	ind, err := v.stored(ino)
	if err == nil && ind.Nlink > 0 {
		v.remove(orphanKey(ino))
	}
	delete(v.trims, ino)
	return true, err
}

// unmap removes up to keys extents of ino, or the parts of them, that hold blocks from lo up to hi, and tells whether there
// may be more.
func (v *Volume) unmap(ino Ino, lo, hi uint64, keys int) (more bool) {
	var blocks uint64
	i := 0
	for ; i < keys; i++ {
		start, e, ok := v.extentFrom(ino, lo)
		if !ok || start >= hi {
			break
		}
		blocks += v.cut(ino, max(start, lo), min(start+uint64(e.N), hi), 0)
	}
	if blocks > 0 {
		v.update(ino, func(ind *layout.Inode) { ind.Blocks -= blocks })
	}
	return i == keys
}
