package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// recover rebuilds the state in memory from the chosen super slot and the log.
//
// Everything that some recoverable state refers to is marked before the first node is allocated: 1 nodes and blocks of
// the tree; 2 nodes of the other slot's tree; 3 blocks that any record maps. Then 4 the records are applied to the
// tree, in the next epoch. What they freed stays allocated until the flip after the next; nodes of the other tree only, until
// the next, which overwrites that slot. A snapshot of the allocator, if the super has one, takes the place of 1 and 2, and both
// ways must lead to the same: one mount may go one way, and the mount that replays its records the other.
func (v *Volume) recover(read func(off uint64, b []byte) error, s *slots) (Recovered, error) {
	restored := v.restore(&s.best)
	if restored {
		v.tree.ProveNodes()
	} else {
		if err := v.markTree(); err != nil {
			return Recovered{}, err
		}
		if s.both {
			s.damage = v.markOther(&s.other)
		}
	}
	if !s.both {
		v.space.freeDropped(&v.waiting)
	}
	pos, rec, err := v.replayLog(read, s)
	if err != nil {
		return Recovered{}, err
	}
	rec.Snapshot = restored
	v.log.Reset(pos, rec.LSN, rec.LSNSeal, rec.Term)
	v.log.Release(s.best.LogPos)
	v.sealed = rec.LSN
	if err := errors.Join(v.findOrphans(), v.tree.Err()); err != nil {
		return Recovered{}, err
	}
	rec.Orphans, rec.Slot = len(v.orphans), s.damage
	return rec, nil
}

// replayLog is steps 3 and 4.
func (v *Volume) replayLog(read func(off uint64, b []byte) error, s *slots) (pos uint64, rec Recovered, err error) {
	p := replay{v: v}
	if pos, rec, err = scanLog(read, &s.best, p.mark); err != nil {
		return 0, rec, err
	}
	if err := logIsWhole(viewer(v.bytes), &s.best, pos, rec.LSN); err != nil {
		return 0, rec, err
	}
	if err := p.take(); err != nil {
		return 0, rec, err
	}
	if _, _, err := scanLog(read, &s.best, p.apply); err != nil {
		return 0, rec, err
	}
	if err := p.hold(); err != nil {
		return 0, rec, err
	}
	if mutant.On(mutant.FreesForgotten) {
		v.dropped.blocks = nil
	}
	return pos, rec, nil
}

// markTree checks every node of the tree and marks it and the blocks that it maps.
func (v *Volume) markTree() error {
	return v.tree.Walk(true, func(off uint64, _ int, _ uint64) error {
		if !v.space.MarkNode(off) {
			return fmt.Errorf("%w: node at offset %d: found it reached twice, or outside of a node chunk, expected a node of its own", ErrCorrupt, off)
		}
		return nil
	}, func(k layout.Key, val []byte) error {
		return v.checkedRuns(k, val, func(blk, n uint64) error {
			if !v.space.MarkData(blk, n) {
				return fmt.Errorf("%w: %s: found blocks %d to %d in use by something else too, expected blocks of its own", ErrCorrupt, keyName(k), blk, blk+n-1)
			}
			return nil
		})
	})
}

// markOther marks the nodes that only the other slot's tree has. The epoch of the best slot dropped them. An error
// says that this tree is damaged; nothing needs it then.
func (v *Volume) markOther(s *layout.Super) error {
	t := tree.New(v.treeConfig(), s.Root, s.RootBirth, int(s.Height), s.Epoch+1)
	return t.Walk(false, func(off uint64, _ int, _ uint64) error {
		if v.space.MarkNode(off) {
			v.waiting.nodes = append(v.waiting.nodes, off)
		}
		return nil
	}, nil)
}

// checkedRuns calls fn for the runs of blocks that a value refers to, after it checked the value and that they lie in
// the general area.
func (v *Volume) checkedRuns(k layout.Key, val []byte, fn func(blk, n uint64) error) error {
	if err := checkValue(k, val); err != nil {
		return fmt.Errorf("%s: %w", keyName(k), err)
	}
	var err error
	end := v.super.PoolSize / layout.BlockSize
	eachRun(k, val, func(blk, n uint64) {
		if err == nil && (blk < v.super.FirstBlock || blk >= end || n > end-blk) {
			err = fmt.Errorf("%w: %s: found blocks from %d, %d of them, expected blocks %d to %d", ErrCorrupt, keyName(k), blk, n, v.super.FirstBlock, end-1)
		}
		if err == nil {
			err = fn(blk, n)
		}
	})
	return err
}

// checkValue decodes a value as far as its key alone tells what it must be.
func checkValue(k layout.Key, val []byte) error {
	switch k.Type() {
	case layout.TypeInode:
		_, err := layout.DecodeInode(val)
		return err
	case layout.TypeDirent:
		return layout.EachDirent(val, func(int, uint64, uint8, []byte) bool { return true })
	case layout.TypeExtent:
		_, err := layout.DecodeExtent(val)
		return err
	case layout.TypeXattr:
		var bad error
		err := layout.EachXattr(val, func(x layout.Xattr) bool {
			if _, ok := x.Run(); x.Form == layout.XattrBlocks && !ok {
				bad = fmt.Errorf("%w: extended attribute %q of %d bytes: found blocks of another length than expected", ErrCorrupt, x.Name, x.Vlen)
			}
			return bad == nil
		})
		if err == nil {
			err = bad
		}
		return err
	case layout.TypeSymlink:
		if len(val) == 0 || len(val) > symlinkPiece {
			return fmt.Errorf("%w: piece of a symlink: found %d bytes, expected 1 to %d", ErrCorrupt, len(val), symlinkPiece)
		}
		return nil
	case layout.TypeOrphan:
		if len(val) != 8 {
			return fmt.Errorf("%w: orphan: found %d bytes, expected 8", ErrCorrupt, len(val))
		}
		return nil
	}
	return fmt.Errorf("%w: found a key of type %d, expected %d to %d", ErrCorrupt, k.Type(), layout.TypeInode, layout.TypeOrphan)
}

func keyName(k layout.Key) string { return layout.KeyText(k) }

// replay is the two passes over the log.
type replay struct {
	v    *Volume
	keys []layout.Key // of values with blocks that a record changes
	base []pmem.Range // in blocks: what these values map in the tree before the first record
	runs []pmem.Range // in blocks: what a record maps, and base
}

// mark is pass 1: it collects the blocks that a record maps, and the keys of the values with blocks that it changes.
func (p *replay) mark(rec layout.Record, body []byte) error {
	err := layout.EachOp(body, func(op layout.Op) error {
		if t := op.Key.Type(); t == layout.TypeExtent || t == layout.TypeXattr {
			p.keys = append(p.keys, op.Key)
		}
		switch op.Kind {
		case layout.OpPut:
			return p.v.checkedRuns(op.Key, op.Val, p.run)
		case layout.OpPatch:
			if op.Key.Type() != layout.TypeInode {
				return fmt.Errorf("%w: found a patch of %s, expected one of an inode", ErrCorrupt, keyName(op.Key))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record %d: %w", rec.LSN, err)
	}
	return nil
}

func (p *replay) run(blk, n uint64) error {
	p.runs = append(p.runs, pmem.Range{Off: blk, Len: n})
	return nil
}

// take marks those blocks as used. Some of them may be used already, by a value of the tree that a record replaces or
// removes, but by nothing else. The nodes of the other slot's tree give way: who wrote the record had found that tree damaged.
func (p *replay) take() error {
	slices.SortFunc(p.keys, layout.Key.Compare)
	p.keys = slices.Compact(p.keys)
	p.base = mergeRanges(p.mapped())
	p.runs = mergeRanges(p.runs)
	if mutant.On(mutant.OnePassReplay) {
		return nil
	}
	for _, r := range subtract(p.runs, p.base) {
		if !p.v.space.MarkData(r.Off, r.Len) && !(p.v.giveWay(r) && p.v.space.MarkData(r.Off, r.Len)) {
			return fmt.Errorf("%w: log: found blocks %d to %d mapped by a record and in use by something else too, expected free ones",
				ErrCorrupt, r.Off, r.Off+r.Len-1)
		}
	}
	return nil
}

// giveWay frees the nodes of the other slot's tree alone that lie in a run of blocks, and tells whether there were any.
func (v *Volume) giveWay(r pmem.Range) bool {
	left := v.waiting.nodes[:0]
	for _, off := range v.waiting.nodes {
		if blk := off / layout.BlockSize; blk < r.Off || blk >= r.Off+r.Len {
			left = append(left, off)
			continue
		}
		v.space.releaseNode(off)
	}
	gone := len(left) < len(v.waiting.nodes)
	v.waiting.nodes = left
	return gone
}

// mapped is what the values of the touched keys map now.
func (p *replay) mapped() (runs []pmem.Range) {
	for _, k := range p.keys {
		val, _ := p.v.tree.Get(k)
		eachRun(k, val, func(blk, n uint64) { runs = append(runs, pmem.Range{Off: blk, Len: n}) })
	}
	return runs
}

// apply is pass 2: the operations of a record, through the ordinary puts of the tree.
func (p *replay) apply(rec layout.Record, body []byte) error {
	if err := layout.EachOp(body, p.v.applyOp); err != nil {
		return fmt.Errorf("record %d: %w", rec.LSN, err)
	}
	return nil
}

func (v *Volume) applyOp(op layout.Op) (err error) {
	switch op.Kind {
	case layout.OpPut:
		err = v.tree.Put(op.Key, op.Val)
	case layout.OpDelete:
		_, err = v.tree.Delete(op.Key)
	case layout.OpPatch:
		err = v.tree.Patch(op.Key, int(op.Off), op.Val)
	case layout.OpNextIno:
		v.nextIno = uint64(op.Num)
	case layout.OpInodes:
		v.inodes += uint64(op.Num)
	}
	if errors.Is(err, tree.ErrNotFound) || errors.Is(err, tree.ErrTooLarge) {
		err = fmt.Errorf("%w: found a change that does not fit, expected one of a value that is there: %w", ErrCorrupt, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", keyName(op.Key), err)
	}
	return nil
}

// hold keeps the blocks that some record or replaced value mapped, and the final tree does not. Of a value with blocks
// that no record touched, no record touched the blocks either, so the values of the touched keys tell what lives.
func (p *replay) hold() error {
	live := p.mapped()
	var sum uint64
	for _, r := range live {
		sum += r.Len
	}
	live = mergeRanges(live)
	for _, r := range live {
		sum -= r.Len
	}
	if sum > 0 {
		return fmt.Errorf("%w: log: found %d blocks mapped twice after the last record, expected none", ErrCorrupt, sum)
	}
	p.v.dropped.blocks = subtract(mergeRanges(append(p.runs, p.base...)), live)
	return nil
}

// subtract is what a has and b has not; both are sorted and disjoint.
func subtract(a, b []pmem.Range) (out []pmem.Range) {
	for _, r := range a {
		for len(b) > 0 && b[0].Off+b[0].Len <= r.Off {
			b = b[1:]
		}
		at, end := r.Off, r.Off+r.Len
		for _, x := range b {
			if x.Off >= end {
				break
			}
			if x.Off > at {
				out = append(out, pmem.Range{Off: at, Len: x.Off - at})
			}
			at = max(at, x.Off+x.Len)
		}
		if at < end {
			out = append(out, pmem.Range{Off: at, Len: end - at})
		}
	}
	return out
}

// findOrphans queues what an earlier mount did not finish. Nobody holds an inode yet.
func (v *Volume) findOrphans() error {
	if mutant.On(mutant.OrphanForgotten) {
		return nil
	}
	var err error
	v.tree.Ascend(layout.MakeKey(0, layout.TypeOrphan, 0), layout.MakeKey(1, 0, 0), func(k layout.Key, val []byte) bool {
		var ind layout.Inode
		if ind, err = v.stored(k.Sub()); err == syscall.ESTALE && v.opts.ForCheck {
			err = nil
			return true
		} else if err != nil {
			err = fmt.Errorf("%w: %s: there is no such inode: found none, expected one: %w", ErrCorrupt, keyName(k), err)
			return false
		}
		if ind.Nlink > 0 {
			v.trims[k.Sub()] = binary.LittleEndian.Uint64(val)
		}
		v.orphans = append(v.orphans, k.Sub())
		return true
	})
	return err
}
