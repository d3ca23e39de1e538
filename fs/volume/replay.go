package volume

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// recover rebuilds the state in memory from the chosen super slot and the log.
//
// Everything that some recoverable state refers to is marked before the first node is allocated: 1 nodes and blocks of
// the tree; 2 nodes of the other slot's tree; 3 blocks that any record maps. Then 4 the records are applied to the
// tree, in the next epoch. What they freed, and nodes of the other tree only, stay allocated until the flip after the
// next.
func (v *Volume) recover(read func(off uint64, b []byte) error, s *slots) (Recovered, error) {
	if err := v.markTree(); err != nil {
		return Recovered{}, err
	}
	if s.both {
		s.damage = v.markOther(&s.other)
	}
	p := replay{v: v}
	pos, rec, err := scanLog(read, &s.best, p.mark)
	if err == nil {
		if !mutant.On(mutant.OnePassReplay) {
			p.take()
		}
		_, _, err = scanLog(read, &s.best, p.apply)
	}
	if err != nil {
		return Recovered{}, err
	}
	p.hold()
	if mutant.On(mutant.FreesForgotten) {
		v.dropped.blocks = nil
	}
	v.log.Reset(pos, rec.LSN, rec.LSNSeal, rec.Term)
	v.log.Release(s.best.LogPos)
	v.sealed = rec.LSN
	if err := v.findOrphans(); err != nil {
		return Recovered{}, err
	}
	rec.Orphans, rec.Slot = len(v.orphans), s.damage
	return rec, nil
}

// markTree checks every node of the tree and marks it and the blocks that it maps.
func (v *Volume) markTree() error {
	return v.tree.Walk(true, func(off uint64, _ int, _ uint64) error {
		if !v.space.MarkNode(off) {
			return fmt.Errorf("%w: node at offset %d: the tree reaches it twice, or data stand in its chunk", ErrCorrupt, off)
		}
		return nil
	}, func(k layout.Key, val []byte) error {
		return v.checkedRuns(k, val, func(blk, n uint64) error {
			if !v.space.MarkData(blk, n) {
				return fmt.Errorf("%w: %s: blocks %d to %d are in use by something else too", ErrCorrupt, keyName(k), blk, blk+n-1)
			}
			return nil
		})
	})
}

// markOther marks the nodes that only the other slot's tree has. They are dropped by the epoch of the best slot. An error
// says that this tree is damaged; nothing needs it then.
func (v *Volume) markOther(s *layout.Super) error {
	t := tree.New(v.treeConfig(), s.Root, s.RootBirth, int(s.Height), s.Epoch+1)
	return t.Walk(false, func(off uint64, _ int, _ uint64) error {
		if v.space.MarkNode(off) {
			v.dropped.nodes = append(v.dropped.nodes, off)
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
				bad = fmt.Errorf("%w: extended attribute %q: its blocks do not fit its length of %d", ErrCorrupt, x.Name, x.Vlen)
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
	return fmt.Errorf("%w: found a key of type %d", ErrCorrupt, k.Type())
}

func keyName(k layout.Key) string {
	names := [...]string{layout.TypeInode: "inode", layout.TypeDirent: "name", layout.TypeExtent: "extent", layout.TypeXattr: "xattr", layout.TypeSymlink: "symlink", layout.TypeOrphan: "orphan"}
	if t := int(k.Type()); t > 0 && t < len(names) {
		return fmt.Sprintf("inode %d, %s %#x", k.Hi, names[t], k.Sub())
	}
	return fmt.Sprintf("key %#x:%#x", k.Hi, k.Lo)
}

// replay is the two passes over the log.
type replay struct {
	v    *Volume
	runs []pmem.Range // in blocks: what a record maps or a replaced value mapped
	keys []layout.Key // of values with blocks that a record changes
}

// mark is pass 1: it collects the blocks that a record maps.
func (p *replay) mark(rec layout.Record, body []byte) error {
	err := layout.EachOp(body, func(op layout.Op) error {
		switch op.Kind {
		case layout.OpPut:
			return p.v.checkedRuns(op.Key, op.Val, func(blk, n uint64) error {
				p.runs = append(p.runs, pmem.Range{Off: blk, Len: n})
				return nil
			})
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

// take marks those blocks as used. Some of them may be used already, by the tree, so a run that is not free as a whole
// is tried block by block.
func (p *replay) take() {
	p.runs = mergeRanges(p.runs)
	for _, r := range p.runs {
		if p.v.space.MarkData(r.Off, r.Len) {
			continue
		}
		for blk := r.Off; blk < r.Off+r.Len; blk++ {
			p.v.space.MarkData(blk, 1)
		}
	}
}

// apply is pass 2: the operations of a record, through the ordinary puts of the tree.
func (p *replay) apply(rec layout.Record, body []byte) error {
	err := layout.EachOp(body, func(op layout.Op) error {
		if t := op.Key.Type(); t == layout.TypeExtent || t == layout.TypeXattr {
			p.keys = append(p.keys, op.Key)
			old, _ := p.v.tree.Get(op.Key)
			eachRun(op.Key, old, p.run)
		}
		return p.v.applyOp(op)
	})
	if err != nil {
		return fmt.Errorf("record %d: %w", rec.LSN, err)
	}
	return nil
}

func (p *replay) run(blk, n uint64) { p.runs = append(p.runs, pmem.Range{Off: blk, Len: n}) }

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
	if err != nil {
		return fmt.Errorf("%s: %w", keyName(op.Key), err)
	}
	return nil
}

// hold keeps the blocks that some record or replaced value mapped, and the final tree does not. Of a value with blocks
// that no record touched, no record touched the blocks either, so the values of the touched keys tell what lives.
func (p *replay) hold() {
	v := p.v
	var live []pmem.Range
	slices.SortFunc(p.keys, layout.Key.Compare)
	for _, k := range slices.Compact(p.keys) {
		val, _ := v.tree.Get(k)
		eachRun(k, val, func(blk, n uint64) { live = append(live, pmem.Range{Off: blk, Len: n}) })
	}
	v.dropped.blocks = subtract(mergeRanges(p.runs), mergeRanges(live))
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
		if ind, err = v.stored(k.Sub()); err != nil {
			err = fmt.Errorf("%w: %s: there is no such inode: %w", ErrCorrupt, keyName(k), err)
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
