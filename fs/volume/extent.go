package volume

import (
	"math"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// hole, unwritten and written are what a block of a file can be.
type mapState uint8

const (
	hole      mapState = iota // no blocks; reads as zeros
	unwritten                 // blocks set aside by fallocate; reads as zeros
	written
)

// mapping is n blocks of a file, from one that was asked for on, that are alike.
type mapping struct {
	state   mapState
	pblk, n uint64
	pending bool   // written, and no group has it yet
	src     uint64 // unwritten: where the extent in the tree starts
}

func extentKey(ino Ino, lblk uint64) layout.Key { return layout.MakeKey(ino, layout.TypeExtent, lblk) }

// maxBlock is the first block that no file can have.
const maxBlock = MaxSize / layout.BlockSize

// mapBlock finds what block b of a file is, as everyone sees it. f is nil if memory has nothing of it.
func (v *Volume) mapBlock(f *file, ino Ino, b uint64) mapping {
	next := uint64(maxBlock)
	if f != nil {
		i := f.search(b)
		if i > 0 {
			if p := f.exts[i-1]; b-p.lblk < p.n {
				d := b - p.lblk
				return mapping{state: written, pblk: p.pblk + d, n: p.n - d, pending: true}
			}
		}
		if i < len(f.exts) {
			next = f.exts[i].lblk
		}
	}
	start, e, ok := v.extentAt(ino, b)
	if !ok {
		if s, _, ok := v.extentFrom(ino, b); ok {
			next = min(next, s)
		}
		return mapping{state: hole, n: max(next, b+1) - b}
	}
	d := b - start
	m := mapping{state: written, pblk: e.Pblk + d, n: min(uint64(e.N)-d, next-b)}
	if e.Flags&layout.Unwritten != 0 {
		m.state, m.src = unwritten, start
	}
	return m
}

// extentAt is the extent of the tree that holds block b.
func (v *Volume) extentAt(ino Ino, b uint64) (start uint64, e layout.Extent, ok bool) {
	k, val, ok := v.tree.Floor(extentKey(ino, b))
	if !ok || k.Hi != ino || k.Type() != layout.TypeExtent {
		return 0, e, false
	}
	e, err := layout.DecodeExtent(val)
	return k.Sub(), e, err == nil && b-k.Sub() < uint64(e.N)
}

// extentFrom is the extent of the tree that holds block b, or else the first one behind it.
func (v *Volume) extentFrom(ino Ino, b uint64) (start uint64, e layout.Extent, ok bool) {
	if start, e, ok = v.extentAt(ino, b); ok {
		return start, e, true
	}
	return v.extentBehind(ino, b)
}

// extentBehind is the first extent of the tree that starts at block b or behind it.
func (v *Volume) extentBehind(ino Ino, b uint64) (start uint64, e layout.Extent, ok bool) {
	v.tree.Ascend(extentKey(ino, b), layout.MakeKey(ino, layout.TypeXattr, 0), func(k layout.Key, val []byte) bool {
		var err error
		e, err = layout.DecodeExtent(val)
		start, ok = k.Sub(), err == nil
		return false
	})
	return start, e, ok
}

func (v *Volume) putExtent(ino Ino, lblk uint64, e layout.Extent) {
	var b [layout.ExtentSize]byte
	e.Encode(b[:])
	v.put(extentKey(ino, lblk), b[:])
}

// mapExtent makes the tree map n blocks from lblk on to those from pblk on. What they replace is cut out; an extent
// before or behind that continues them is joined.
func (v *Volume) mapExtent(ino Ino, lblk, pblk, n uint64, flags uint32) {
	v.cut(ino, lblk, lblk+n, pblk)
	birth := v.tree.Epoch()
	if start, e, ok := v.extentBefore(ino, lblk); ok && e.Pblk+uint64(e.N) == pblk && canJoin(e, n, flags) {
		lblk, pblk, n, birth = start, e.Pblk, uint64(e.N)+n, e.Birth
	}
	if start, e, ok := v.extentAt(ino, lblk+n); ok && start == lblk+n && e.Pblk == pblk+n && canJoin(e, n, flags) {
		v.remove(extentKey(ino, start))
		n += uint64(e.N)
	}
	v.putExtent(ino, lblk, layout.Extent{Pblk: pblk, N: uint32(n), Flags: flags, Birth: birth})
}

// canJoin tells whether n blocks with these flags can become part of an extent beside them.
func canJoin(e layout.Extent, n uint64, flags uint32) bool {
	return e.Flags == flags && uint64(e.N)+n <= math.MaxUint32
}

// extentBefore is the extent of the tree that ends at block b.
func (v *Volume) extentBefore(ino Ino, b uint64) (start uint64, e layout.Extent, ok bool) {
	if b == 0 {
		return 0, e, false
	}
	start, e, ok = v.extentAt(ino, b-1)
	return start, e, ok && start+uint64(e.N) == b
}

// cut takes the blocks from lo up to hi out of the tree's mapping. What lay there is freed with the group, but not
// where it is what lo will be mapped to: an unwritten extent that becomes a written one.
func (v *Volume) cut(ino Ino, lo, hi, pblk uint64) (blocks uint64) {
	for at := lo; at < hi; {
		start, e, ok := v.extentFrom(ino, at)
		if !ok || start >= hi {
			break
		}
		end := start + uint64(e.N)
		l, r := max(at, start), min(hi, end)
		left, right := e, e
		left.N = uint32(l - start)
		right.Pblk, right.N = e.Pblk+(r-start), uint32(end-r)
		if left.N > 0 {
			v.putExtent(ino, start, left)
		} else {
			v.remove(extentKey(ino, start))
		}
		if right.N > 0 {
			v.putExtent(ino, r, right)
		}
		if old := e.Pblk + (l - start); old != pblk+(l-lo) {
			v.free(old, r-l)
		}
		blocks += r - l
		at = r
	}
	return blocks
}

// eachRun calls fn for the runs of blocks that a value refers to.
func eachRun(k layout.Key, val []byte, fn func(blk, n uint64)) {
	switch k.Type() {
	case layout.TypeExtent:
		if e, err := layout.DecodeExtent(val); err == nil {
			fn(e.Pblk, uint64(e.N))
		}
	case layout.TypeXattr:
		_ = layout.EachXattr(val, func(x layout.Xattr) bool {
			if r, ok := x.Run(); ok {
				fn(r.Pblk, uint64(r.N))
			}
			return true
		})
	}
}
