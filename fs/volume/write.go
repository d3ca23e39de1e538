package volume

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// aheadMax is how many blocks are allocated beyond an append at most: 2 MiB.
const aheadMax = 512

// Write stores bytes into a file, which grows if need be. killPriv clears set-user-id and set-group-id. Where blocks
// are mapped and written, it stores in place; elsewhere into fresh blocks. Nothing of it is durable until FlushFile and
// a seal.
//
// When space runs out on the way it returns the number of bytes written so far, without an error; ErrShort only if that
// is none. Errors: EISDIR, EINVAL (no file), EFBIG, EPERM (see FlagImmutable), ESTALE, ErrShort, *pmem.FaultError.
func (v *Volume) Write(ino Ino, off uint64, src []byte, killPriv bool) (n int, err error) {
	err = v.change(func() error {
		var err error
		n, err = v.write(ino, off, src, killPriv)
		return err
	})
	if n > 0 && !errors.Is(err, ErrStopped) {
		err = nil
	}
	return n, err
}

// fileToWrite is a regular file that is fit to be changed.
func (v *Volume) fileToWrite(ino Ino) (*file, error) {
	f, err := v.file(ino)
	if err != nil {
		return nil, err
	}
	if err := notRegular(f.ind.Mode); err != nil {
		return nil, err
	}
	return f, v.finishTrim(ino)
}

func (v *Volume) write(ino Ino, off uint64, src []byte, killPriv bool) (n int, err error) {
	f, err := v.fileToWrite(ino)
	if err != nil || len(src) == 0 {
		return 0, err
	}
	if off >= MaxSize {
		return 0, syscall.EFBIG
	}
	if err := mayWrite(&f.ind, off); err != nil {
		return 0, err
	}
	src = src[:min(uint64(len(src)), MaxSize-off)]
	if mode := withoutPriv(f.ind.Mode); killPriv && mode != f.ind.Mode {
		if err := v.admit(cost{1, inodeBytes}, false); err != nil {
			return 0, err
		}
		v.update(ino, func(ind *layout.Inode) { ind.Mode = mode })
	}
	if off > f.ind.Size {
		if err := v.cleanTail(f); err != nil {
			return 0, err
		}
	}
	for n < len(src) {
		k, err := v.writeRun(f, off+uint64(n), src[n:])
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// writeRun writes as much of src as lies in blocks that are alike.
func (v *Volume) writeRun(f *file, off uint64, src []byte) (int, error) {
	if err := v.roomToWrite(f); err != nil {
		return 0, err
	}
	lblk := off / layout.BlockSize
	m := v.mapBlock(f, f.ino, lblk)
	m.n = min(m.n, (off+uint64(len(src))-1)/layout.BlockSize+1-lblk)
	fresh := m.state == hole
	if fresh {
		var err error
		if m.pblk, m.n, err = v.allocate(f, lblk, m.n); err != nil {
			return 0, err
		}
	}
	src = src[:min(uint64(len(src)), m.n*layout.BlockSize-off%layout.BlockSize)]
	r, err := v.store(m, off%layout.BlockSize, src)
	if err != nil {
		if fresh {
			v.freeUnlogged(m.pblk, m.n)
		}
		return 0, fmt.Errorf("write of inode %d at offset %d: %w", f.ino, off, err)
	}
	if m.state != written {
		f.addPending(pending{lblk: lblk, pblk: m.pblk, n: m.n, fresh: fresh, src: m.src})
	}
	if fresh {
		f.ind.Blocks += m.n
	}
	f.addDirty(r)
	v.wrote(f, off+uint64(len(src)))
	return len(src), nil
}

// wrote brings size and times of f up to date after bytes up to end were stored.
func (v *Volume) wrote(f *file, end uint64) {
	now := v.now()
	f.ind.Size = max(f.ind.Size, end)
	f.ind.Mtime, f.ind.Ctime = now, now
	f.content = true
	v.changed(f)
	if mutant.On(mutant.ContentAtWrite) {
		dirty := f.dirty
		f.dirty = nil
		v.flush(f)
		f.dirty, f.pending = dirty, true
	}
}

// store copies src to byte at of the blocks of m and returns what must become durable: the bytes themselves where the
// blocks were written before, else all of the blocks, with zeros around src.
func (v *Volume) store(m mapping, at uint64, src []byte) (pmem.Range, error) {
	r := pmem.Range{Off: m.pblk * layout.BlockSize, Len: m.n * layout.BlockSize}
	dst := v.bytes[r.Off : r.Off+r.Len]
	end := at + uint64(len(src))
	if m.state != written {
		if err := pmem.Zero(dst[:at]); err != nil {
			return r, err
		}
		if err := pmem.Zero(dst[end:]); err != nil {
			return r, err
		}
	}
	if err := pmem.Copy(dst[at:end], src); err != nil {
		return r, err
	}
	if m.state == written {
		r = pmem.Range{Off: r.Off + at, Len: uint64(len(src))}
	}
	return r, nil
}

// oneMore is what one more pending extent of one more file costs.
var oneMore = cost{1 + extentEdits, inodeBytes + extentBytes}

// roomToWrite sees to it that one more extent can become pending in f, and be flushed later whatever happens. It flushes
// what is pending when that is much.
func (v *Volume) roomToWrite(f *file) error {
	if len(f.exts) >= v.limits.pending || len(f.dirty) >= v.limits.dirty {
		v.flush(f)
	}
	if v.aside.bytes+oneMore.bytes > v.limits.aside || !v.nodesFor(oneMore.edits, false) {
		v.relieve()
	}
	if !v.nodesFor(oneMore.edits, false) || !v.logFor(0, v.aside.bytes+oneMore.bytes, false) {
		return ErrShort
	}
	return nil
}

// allocate takes up to n blocks for a hole at lblk: those that were set aside for an append, else near the extent
// before it.
func (v *Volume) allocate(f *file, lblk, n uint64) (blk, got uint64, err error) {
	if a := &f.ahead; a.n > 0 && a.lblk == lblk {
		got, blk = min(n, a.n), a.blk
		a.lblk, a.blk, a.n = a.lblk+got, a.blk+got, a.n-got
		v.ahead -= got
		return blk, got, nil
	}
	v.releaseAhead(f)
	goal := v.goal(f, lblk)
	blk, got = v.allocData(goal, n+f.lookahead(lblk, goal))
	if got == 0 {
		return 0, 0, ErrShort
	}
	if got > n {
		v.setAhead(f, ahead{lblk: lblk + n, blk: blk + n, n: got - n})
		got = n
	}
	if !v.nodesFor(oneMore.edits, false) {
		v.releaseAhead(f)
	}
	if !v.nodesFor(oneMore.edits, false) {
		v.space.FreeData(blk, got)
		return 0, 0, ErrShort
	}
	return blk, got, nil
}

// allocData takes up to n blocks, also those that other files have set aside if there are no others.
func (v *Volume) allocData(goal, n uint64) (blk, got uint64) {
	blk, got, ok := v.space.AllocData(goal, n)
	if !ok {
		v.releaseAll()
		blk, got, _ = v.space.AllocData(goal, n)
	}
	return blk, got
}

// goal is the block behind the one that lblk follows in the file, 0 for no wish.
func (v *Volume) goal(f *file, lblk uint64) uint64 {
	if lblk == 0 {
		return 0
	}
	if m := v.mapBlock(f, f.ino, lblk-1); m.state != hole {
		return m.pblk + 1
	}
	return 0
}

// lookahead is how many blocks to allocate beyond an append, which follows the block before goal: as many as the file
// has, so that small files waste none.
func (f *file) lookahead(lblk, goal uint64) uint64 {
	if goal == 0 || lblk*layout.BlockSize < f.ind.Size {
		return 0
	}
	return min(f.ind.Blocks, aheadMax)
}

// cleanTail sees to it that the bytes behind the end of the file, in its last block, are zeros, before the file grows
// over them. They are not if the file was cut there, or if a write behind the end was lost in a crash. A durable state
// may still show them as content, so the block is replaced, never zeroed in place, unless no group ever named it.
func (v *Volume) cleanTail(f *file) error {
	if at := f.ind.Size % layout.BlockSize; at > 0 {
		return v.clearPart(f, f.ind.Size/layout.BlockSize, at, layout.BlockSize)
	}
	return nil
}

// clearPart makes bytes lo up to hi of block lblk read as zeros. A block that some group may have named is replaced.
func (v *Volume) clearPart(f *file, lblk, lo, hi uint64) error {
	m := v.mapBlock(f, f.ino, lblk)
	if m.state != written {
		return nil
	}
	old := v.bytes[m.pblk*layout.BlockSize:][:layout.BlockSize]
	if err := pmem.CopyOut(v.block[:], old); err != nil {
		return fmt.Errorf("block %d of inode %d: %w", lblk, f.ino, err)
	}
	if allZero(v.block[lo:hi]) {
		return nil
	}
	if err := v.roomToWrite(f); err != nil {
		return err
	}
	if m = v.mapBlock(f, f.ino, lblk); m.pending {
		return v.clearInPlace(f, m, lo, hi)
	}
	clear(v.block[lo:hi])
	return v.replaceBlock(f, m, lblk)
}

// replaceBlock gives block lblk, so far that of m, a fresh block with what v.block holds.
func (v *Volume) replaceBlock(f *file, m mapping, lblk uint64) error {
	blk, got := v.allocData(m.pblk+1, 1)
	if got == 0 {
		return ErrShort
	}
	r, err := v.store(mapping{state: hole, pblk: blk, n: 1}, 0, v.block[:])
	if err == nil && !v.nodesFor(oneMore.edits, false) {
		err = ErrShort
	}
	if err != nil {
		v.freeUnlogged(blk, 1)
		return err
	}
	f.addPending(pending{lblk: lblk, pblk: blk, n: 1, fresh: true})
	f.addDirty(r)
	f.content = true
	v.changed(f)
	return nil
}

// clearInPlace clears bytes of a block that no group ever named.
func (v *Volume) clearInPlace(f *file, m mapping, lo, hi uint64) error {
	r := pmem.Range{Off: m.pblk*layout.BlockSize + lo, Len: hi - lo}
	if err := pmem.Zero(v.bytes[r.Off : r.Off+r.Len]); err != nil {
		return err
	}
	f.addDirty(r)
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
