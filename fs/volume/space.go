package volume

import (
	"github.com/pmemfs/pmemfs/fs/volume/alloc"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/oplog"
	"github.com/pmemfs/pmemfs/fs/volume/snapshot"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// space is the allocator and a count of what was taken from it. It gives the tree its nodes.
type space struct {
	*alloc.Allocator
	data, nodes uint64 // blocks and nodes in use
	nodeSize    uint64 // bytes
	stale       stale
	watch       Watcher
}

func (s *space) AllocNode() (off uint64, ok bool) {
	if off, ok = s.Allocator.AllocNode(); ok {
		s.nodes++
		s.watch.Allocated(pmem.Range{Off: off, Len: s.nodeSize})
	}
	return off, ok
}

// FreeNode is how the tree gives up a node of the open epoch, which no job ever names.
func (s *space) FreeNode(off uint64) {
	s.stale.add(off, 1) // a node lies in one span
	s.releaseNode(off)
}

func (s *space) releaseNode(off uint64) {
	s.Allocator.FreeNode(off)
	s.nodes--
}

func (s *space) MarkNode(off uint64) bool {
	ok := s.Allocator.MarkNode(off)
	if ok {
		s.nodes++
	}
	return ok
}

func (s *space) AllocData(goal, want uint64) (blk, n uint64, ok bool) {
	if s.watch.Short() {
		return 0, 0, false
	}
	if blk, n, ok = s.Allocator.AllocData(goal, want); ok {
		s.data += n
		s.watch.Allocated(pmem.Range{Off: blk * layout.BlockSize, Len: n * layout.BlockSize})
	}
	return blk, n, ok
}

func (s *space) FreeData(blk, n uint64) {
	s.Allocator.FreeData(blk, n)
	s.data -= n
}

func (s *space) MarkData(blk, n uint64) bool {
	ok := s.Allocator.MarkData(blk, n)
	if ok {
		s.data += n
	}
	return ok
}

// dropped is what no later state refers to, but one that a copy may still recover to.
type dropped struct {
	nodes  []uint64     // pool offsets
	blocks []pmem.Range // in blocks
}

func (d *dropped) reset() { d.nodes, d.blocks = d.nodes[:0], d.blocks[:0] }

func (s *space) freeDropped(d *dropped) {
	s.unmark(d)
	d.reset()
}

// unmark takes what was dropped out of the allocator, mark brings it back.
func (s *space) unmark(d *dropped) {
	for _, off := range d.nodes {
		s.releaseNode(off)
	}
	for _, r := range d.blocks {
		s.FreeData(r.Off, r.Len)
	}
}

func (s *space) mark(d *dropped) {
	for _, off := range d.nodes {
		s.MarkNode(off)
	}
	for _, r := range d.blocks {
		s.MarkData(r.Off, r.Len)
	}
}

// inUse is all that is taken, in a form that can be compared.
func (s *space) inUse() []byte {
	return snapshot.Append(nil, 0, snapshot.Space{Nodes: s.EachNode, Data: s.EachData, Dropped: func(func(first, n uint64)) {}})
}

// cost is what an operation may need at most: edits of the tree and bytes of a log record.
type cost struct{ edits, bytes int }

func (c cost) plus(d cost) cost  { return cost{c.edits + d.edits, c.bytes + d.bytes} }
func (c cost) minus(d cost) cost { return cost{c.edits - d.edits, c.bytes - d.bytes} }

const (
	opPut    = 1 + 16 + 2 // without its value
	opPatch  = 1 + 16 + 4 // without its bytes
	opDelete = 1 + 16
	// groupTail is what closing a group adds to it: the next inode number and the change of the number of inodes.
	groupTail = 9 + 9
	// inodeCost is a change of an inode, whole in the worst case.
	inodeBytes = opPut + layout.InodeSize
	// extentCost is the worst that mapping one pending extent takes: what it replaces is cut off or removed, what
	// stands right of that is put again or the neighbour joined, and the extent itself is put.
	extentEdits = 3
	extentBytes = extentEdits * (opPut + layout.ExtentSize)
)

// limits follow from the size of the log.
type limits struct {
	body    int    // bytes of a record's body
	pending int    // extents pending in one file, so that a flush fits into one record beside a rename
	dirty   int    // dirty ranges of one file, and of a group
	aside   int    // bytes of log set aside
	value   int    // bytes of a value in the tree
	reserve uint64 // nodes that data leave free
	floor   uint64 // nodes that all but deletions leave free
}

func limitsOf(s *layout.Super) limits {
	body := int(min(s.LogLen/4, layout.MaxBody)) - layout.RecordHeader
	reserve := uint64(s.Reserve) * uint64(s.Chunk) / uint64(s.NodeSize)
	return limits{
		body:    body,
		pending: min(1024, body/2/extentBytes),
		dirty:   4096,
		aside:   int(s.LogLen / 4),
		value:   tree.MaxValue(int(s.NodeSize)),
		reserve: reserve,
		floor:   reserve / 2,
	}
}

// admit makes sure that an operation of this cost can be applied completely, beside all that is pending, or returns
// ErrShort. It may move pending content into the group and close the group. dig lets deletions use the reserve.
func (v *Volume) admit(c cost, dig bool) error {
	if !v.nodesFor(c.edits, dig) {
		v.relieve()
		if !v.nodesFor(c.edits, dig) {
			return ErrShort
		}
	}
	v.groupFor(c.bytes)
	if !v.logFor(c.bytes, v.aside.bytes, dig) {
		return ErrShort
	}
	return nil
}

// relieve gives back what is set aside: for pending content by moving it into the group, for appends at once.
func (v *Volume) relieve() {
	v.flushFiles()
	v.releaseAll()
}

// nodesFor tells whether there are nodes for so many edits and for what is pending. Data keep out of the reserve; half
// of it is for metadata when data lie everywhere else, half is for deletions alone.
func (v *Volume) nodesFor(edits int, dig bool) bool {
	need := uint64(v.tree.Worst(edits + v.aside.edits))
	if !dig {
		need += v.limits.floor
	}
	return v.space.NodesAvailable() >= need && !v.space.watch.Short()
}

// groupFor closes the open group if it cannot take n bytes more, or has very many ranges.
func (v *Volume) groupFor(n int) {
	if len(v.group.body)+n+groupTail > v.limits.body || len(v.group.ranges) > v.limits.dirty {
		v.closeGroup()
	}
}

// logFor tells whether the log can take the open group with n bytes more, and then groups with all that is set aside.
// What is no deletion leaves one group of the largest size, so that deletions find room.
func (v *Volume) logFor(n, aside int, dig bool) bool {
	// Groups closed early for want of room are at least half full two by two.
	groups := 2*aside/v.limits.body + 2
	need := oplog.Space(uint64(len(v.group.body)+n+groupTail)) + uint64(aside) + uint64(groups)*oplog.Space(groupTail)
	if !dig {
		need += oplog.Space(uint64(v.limits.body))
	}
	return v.log.Free() >= need && !v.space.watch.Short()
}

// inodeCharge is what StatFS counts for an inode, its name and its extents, in bytes.
const inodeCharge = 384

// StatFS counts blocks that wait for a seal before they are used again as used, and blocks set aside for appends as free.
//
// How many nodes a tree has depends on the order in which it was filled, too. So that the same files always leave the same
// space, an inode counts with a flat charge in place of its share of the nodes. What is available is less than that by the
// reserve and two chunks, which nodes may stand in that the charge does not cover, and never more than data can have.
func (v *Volume) StatFS() Stat {
	v.mu.RLock()
	defer v.mu.RUnlock()
	total := v.space.Total()
	used := min(v.space.data-v.ahead+blocksOf(v.inodes*inodeCharge), total)
	kept := (uint64(v.super.Reserve) + 2) * uint64(v.super.Chunk) / layout.BlockSize
	free := total - used
	return Stat{
		Blocks: total,
		Free:   free,
		Avail:  min(free-min(kept, free), v.space.DataAvailable()+v.ahead),
		Inodes: v.inodes,
	}
}
