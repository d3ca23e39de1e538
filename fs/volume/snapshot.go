package volume

import (
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/snapshot"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// takeSnapshot stores a snapshot of the allocator for the super that is about to be encoded, and appends its range. It is
// what Open would find by a walk of the trees of both super slots.
//
// It stands in blocks that are free and stay so, those that are allocated last. When something is stored there after all, the
// sum does not match any more, and the next Open walks. Nor is there a snapshot where there is no room for it, or where free
// space is cut into so many pieces that it would be long.
func (v *Volume) takeSnapshot(ranges []pmem.Range) []pmem.Range {
	s := &v.super
	if mutant.On(mutant.OldSnapshot) && s.SnapLen > 0 {
		return ranges
	}
	s.SnapOff, s.SnapLen, s.SnapSum = 0, 0, 0
	v.memoryOnly(v.space.unmark)
	b := snapshot.Append(v.snapshot[:0], s.Epoch, snapshot.Space{Nodes: v.space.EachNode, Data: v.space.EachData, Dropped: v.eachDropped})
	v.memoryOnly(v.space.mark)
	v.snapshot = b
	blk, ok := v.space.LastFreeRun(blocksOf(uint64(len(b))))
	if !ok || uint64(len(b)) > max(s.LogLen/16, layout.BlockSize) {
		return ranges
	}
	s.SnapOff, s.SnapLen, s.SnapSum = blk*layout.BlockSize, uint64(len(b)), layout.Sum64(s.HashKey, b)
	copy(v.bytes[s.SnapOff:], b)
	return append(ranges, pmem.Range{Off: s.SnapOff, Len: s.SnapLen})
}

// memoryOnly calls fn for all that is allocated and that neither the tree nor the one of the last super reaches: pending
// content, blocks set aside, and what waits for a seal. The open group is closed.
func (v *Volume) memoryOnly(fn func(*dropped)) {
	d := &v.scratch
	for _, f := range v.files {
		for _, p := range f.exts {
			if p.fresh {
				d.blocks = append(d.blocks, pmem.Range{Off: p.pblk, Len: p.n})
			}
		}
		if f.ahead.n > 0 {
			d.blocks = append(d.blocks, pmem.Range{Off: f.ahead.blk, Len: f.ahead.n})
		}
	}
	for _, jobs := range [][]*Job{v.queue, v.flying} {
		for _, j := range jobs {
			d.blocks = append(d.blocks, j.frees...)
		}
	}
	d.blocks = append(d.blocks, v.dropped.blocks...)
	fn(d)
	d.reset()
	fn(&v.waiting)
}

// eachDropped calls fn for the nodes that only the tree of the last super reaches.
func (v *Volume) eachDropped(fn func(first, n uint64)) {
	size := uint64(v.super.NodeSize)
	slices.Sort(v.dropped.nodes)
	for _, off := range v.dropped.nodes {
		fn(off/size, 1)
	}
}

// restore marks what the snapshot of the super lists, and takes note of the nodes that it names as dropped. It returns false,
// and has done nothing, if there is none, if its bytes are not those that the super was sealed with, or if the tree is to be walked all the
// same.
func (v *Volume) restore(s *layout.Super) bool {
	if s.SnapLen == 0 {
		return false
	}
	b := v.bytes[s.SnapOff : s.SnapOff+s.SnapLen]
	if layout.Sum64(s.HashKey, b) != s.SnapSum || snapshot.Decode(b, s.Epoch, v.markNodes, v.space.MarkData, v.dropNodes) != nil ||
		v.space.nodes*uint64(s.NodeSize) <= v.opts.WalkUpTo {
		watch := v.space.watch
		v.space = newSpace(s)
		v.space.watch = watch
		v.waiting.reset()
		return false
	}
	return true
}

// markNodes marks n nodes side by side.
func (v *Volume) markNodes(first, n uint64) bool {
	size := uint64(v.super.NodeSize)
	if end := v.super.PoolSize / size; first > end || n > end-first {
		return false
	}
	for i := first; i < first+n; i++ {
		if !v.space.MarkNode(i * size) {
			return false
		}
	}
	return true
}

// dropNodes notes that n nodes side by side, which are marked, belong to the other slot's tree alone.
func (v *Volume) dropNodes(first, n uint64) bool {
	size := uint64(v.super.NodeSize)
	if end := v.super.PoolSize / size; first > end || n > end-first {
		return false
	}
	for i := first; i < first+n; i++ {
		if !v.space.HasNode(i * size) {
			return false
		}
		v.waiting.nodes = append(v.waiting.nodes, i*size)
	}
	return true
}
