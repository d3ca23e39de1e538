package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

// The four kinds of fallocate(2). When one fails, a part of the range may be done with; a second try does the rest. Errors
// of all: EINVAL (n is 0, or no file), EISDIR, EFBIG, EPERM (see FlagImmutable), ESTALE, ErrShort, *pmem.FaultError.

// Fallocate maps all of [off, off+n) that is not mapped to unwritten blocks, and extends the file to the end of it: mode 0.
func (v *Volume) Fallocate(ino Ino, off, n uint64) error {
	return v.onRange(ino, off, n, FlagImmutable, func(f *file, end uint64) error { return v.fallocate(f, off, end, false) })
}

// Preallocate is Fallocate that leaves the size alone: FALLOC_FL_KEEP_SIZE. Blocks may lie behind the end of the file; a
// truncation frees them.
func (v *Volume) Preallocate(ino Ino, off, n uint64) error {
	return v.onRange(ino, off, n, FlagImmutable, func(f *file, end uint64) error { return v.fallocate(f, off, end, true) })
}

// PunchHole makes [off, off+n) read as zeros and frees the blocks that lie in it whole: FALLOC_FL_PUNCH_HOLE.
func (v *Volume) PunchHole(ino Ino, off, n uint64) error {
	return v.onRange(ino, off, n, FlagImmutable|FlagAppend, func(f *file, end uint64) error { return v.zero(f, off, end) })
}

// ZeroRange makes [off, off+n) read as zeros and keeps it mapped, to fresh unwritten blocks where it was written:
// FALLOC_FL_ZERO_RANGE. The file is extended unless keepSize.
func (v *Volume) ZeroRange(ino Ino, off, n uint64, keepSize bool) error {
	return v.onRange(ino, off, n, FlagImmutable|FlagAppend, func(f *file, end uint64) error {
		if err := v.zero(f, off, end); err != nil {
			return err
		}
		return v.fallocate(f, off, end, keepSize)
	})
}

// onRange checks a range of a file that has none of these flags, and runs fn on it.
func (v *Volume) onRange(ino Ino, off, n uint64, flags uint32, fn func(f *file, end uint64) error) error {
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
		if err := unprotected(&f.ind, flags); err != nil {
			return err
		}
		return fn(f, off+n)
	})
}

// zero makes the bytes from off up to end read as zeros. A block that is cleared in part is copied, and blocks inside are
// unmapped, never cleared in place: a durable state may still show what they hold.
func (v *Volume) zero(f *file, off, end uint64) error {
	lo, hi := blocksOf(off), end/layout.BlockSize
	head, tail := off%layout.BlockSize, end%layout.BlockSize
	var err error
	if lo > hi {
		err = v.clearPart(f, hi, head, tail)
	} else {
		if head > 0 && mutant.On(mutant.ZeroTorn) {
			_ = v.clearPart(f, lo-1, head, (head+layout.BlockSize)/2)
		}
		if head > 0 {
			err = v.clearPart(f, lo-1, head, layout.BlockSize)
		}
		if err == nil && tail > 0 {
			err = v.clearPart(f, hi, 0, tail)
		}
	}
	if err != nil {
		return err
	}
	v.releaseAhead(f)
	v.flush(f)
	for more := lo < hi; more; {
		keys := v.stepSize()
		if err := v.admit(stepCost(keys), true); err != nil {
			return err
		}
		more = v.unmap(f.ino, lo, hi, keys)
	}
	if err := v.admit(cost{1, inodeBytes}, true); err != nil {
		return err
	}
	now := v.now()
	v.update(f.ino, func(ind *layout.Inode) { ind.Mtime, ind.Ctime = now, now })
	f.lsn = v.log.LSN() + 1
	return nil
}

func (v *Volume) fallocate(f *file, off, end uint64, keepSize bool) error {
	grows := end > f.ind.Size && !keepSize
	if grows {
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
		if grows {
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
