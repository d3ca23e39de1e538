package volume

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Finding is one inconsistency that Check met.
type Finding struct {
	Where, What string
	Off         uint64 // pool offset of what is wrong, 0 where there is no such place
	// Note: nothing is wrong; a crash may leave it so, and the next mount tidies it up.
	Note bool

	damage *tree.Damage // of a damaged node
	fix    fix
}

func (f Finding) String() string { return f.Where + ": " + f.What }

// Check tests the live state as a whole: every node, that nothing is mapped twice, names against inodes and link
// counts, parents, orphans, counts, and that the allocator has in use just what is reachable or held. It changes
// nothing, and calls report under the volume's lock. An error means that it could not look at everything, because of
// damage or a fault.
//
// It goes through the tree twice, and keeps about 24 bytes per inode and a bit per block.
func (v *Volume) Check(report func(Finding)) error {
	return v.view(func() error {
		c := newChecker(v, report)
		if err := v.tree.Walk(true, c.node, c.value); err != nil {
			return err
		}
		c.held()
		c.finish()
		if err := v.tree.Walk(false, nil, c.names); err != nil {
			return err
		}
		c.links()
		c.space()
		return nil
	})
}

// checker is one Check. shadow is marked with all that is reachable or held, to be compared with the allocator.
type checker struct {
	v       *Volume
	report  func(Finding)
	shadow  space
	inodes  inodeTable
	orphans []Ino // ascending: the tree has them first
	now     seen  // the inode of which values come
	lost    []tree.Damage
}

func newChecker(v *Volume, report func(Finding)) *checker {
	now := v.super
	now.PoolSize = v.space.End() * layout.BlockSize // less than in the super while a growth is under way
	return &checker{v: v, report: report, shadow: newSpace(&now)}
}

// seen is what the tree holds for one inode, but for its names.
type seen struct {
	begun   bool // there is such an inode
	ino     Ino
	there   bool // the INODE key
	ind     layout.Inode
	blocks  uint64 // mapped by extents and large attributes
	end     uint64 // first block behind the last extent
	written uint64 // first block behind the last written extent
	target  uint64 // bytes of symlink pieces
	access  posixacl.ACL
	deflt   posixacl.ACL
}

func (c *checker) find(where, format string, args ...any) {
	c.report(Finding{Where: where, What: fmt.Sprintf(format, args...)})
}

// fixable reports what a repair can put right.
func (c *checker) fixable(f fix, where, format string, args ...any) {
	c.report(Finding{Where: where, What: fmt.Sprintf(format, args...), fix: f})
}

func (c *checker) node(off uint64, _ int, _ uint64) error {
	if !c.shadow.MarkNode(off) {
		c.report(Finding{Where: fmt.Sprintf("node at offset %d", off), What: "is reached twice, or stands outside of a node chunk", Off: off})
	}
	return nil
}

// value is pass 1: each value by itself, and all values of one inode together.
func (c *checker) value(k layout.Key, val []byte) error {
	where := keyName(k)
	if k.Type() == layout.TypeOrphan && k.Hi == 0 {
		c.orphans = append(c.orphans, k.Sub())
		if err := checkValue(k, val); err != nil {
			c.find(where, "%v", err)
		}
		return nil
	}
	if !c.now.begun || k.Hi != c.now.ino {
		c.finish()
		c.now = seen{begun: true, ino: k.Hi}
	}
	err := c.v.checkedRuns(k, val, func(blk, n uint64) error {
		c.mark(where, blk, n)
		c.now.blocks += n
		return nil
	})
	if err != nil {
		c.find(where, "%v", err)
		return nil
	}
	switch k.Type() {
	case layout.TypeInode:
		if k.Sub() != 0 {
			c.find(where, "stands under a key that nobody looks up, expected sub 0")
		}
		c.now.there = true
		c.now.ind, _ = layout.DecodeInode(val)
	case layout.TypeExtent:
		c.extent(k, val)
	case layout.TypeXattr:
		c.xattrs(k, val)
	case layout.TypeSymlink:
		c.now.target += uint64(len(val))
	case layout.TypeOrphan:
		c.find(where, "stands in what is no list of orphans")
	}
	return nil
}

func (c *checker) mark(where string, blk, n uint64) {
	if !c.shadow.MarkData(blk, n) {
		c.find(where, "blocks %d to %d are in use by something else too", blk, blk+n-1)
	}
}

func (c *checker) xattrs(k layout.Key, val []byte) {
	_ = layout.EachXattr(val, func(x layout.Xattr) bool {
		if isACL(string(x.Name)) {
			c.acl(k, &x)
		}
		if layout.Hash56(c.v.super.HashKey, string(x.Name)) != k.Sub() {
			c.find(keyName(k), "extended attribute %q stands under the hash of another name", x.Name)
		}
		return true
	})
}

// acl keeps what an ACL says, to be compared with the mode.
func (c *checker) acl(k layout.Key, x *layout.Xattr) {
	acl, err := c.v.decodeACL(x, make([]byte, layout.BlockSize))
	if err != nil {
		c.find(keyName(k), "%s: %v", x.Name, err)
		return
	}
	if string(x.Name) == posixacl.Access {
		c.now.access = acl
	} else {
		c.now.deflt = acl
	}
}

func (c *checker) extent(k layout.Key, val []byte) {
	s := &c.now
	e, _ := layout.DecodeExtent(val)
	if k.Sub() < s.end {
		c.find(keyName(k), "begins before block %d, where the extent before it ends", s.end)
	}
	s.end = k.Sub() + uint64(e.N)
	if e.Flags&layout.Unwritten == 0 {
		s.written = s.end
	}
	if s.end > maxBlock {
		c.find(keyName(k), "ends at block %d, behind the largest file", s.end)
	}
}

// held marks what memory holds: pending content, blocks set aside, and what waits for a seal.
func (c *checker) held() {
	v := c.v
	for ino, f := range v.files {
		where := fmt.Sprintf("inode %d, pending", ino)
		for _, p := range f.exts {
			if p.fresh {
				c.mark(where, p.pblk, p.n)
			}
		}
		if f.ahead.n > 0 {
			c.mark(where, f.ahead.blk, f.ahead.n)
		}
	}
	c.freed("open group", v.group.frees)
	for _, jobs := range [][]*Job{v.queue, v.flying} {
		for _, j := range jobs {
			c.freed(fmt.Sprintf("job %d", j.Seq), j.frees)
		}
	}
	for _, d := range []*dropped{&v.dropped, &v.waiting} {
		c.freed("dropped", d.blocks)
		for _, off := range d.nodes {
			_ = c.node(off, 0, 0)
		}
	}
	for _, off := range v.tree.Replaced() {
		_ = c.node(off, 0, 0)
	}
}

func (c *checker) freed(where string, rs []pmem.Range) {
	for _, r := range rs {
		c.mark("freed in "+where, r.Off, r.Len)
	}
}

// finish ends the inode of which values came: it checks what needs no other one, and takes it into the table.
func (c *checker) finish() {
	s := c.now
	c.now = seen{}
	if !s.begun {
		return
	}
	r := inodeRecord{ino: s.ino, nlink: s.ind.Nlink, typ: uint8(s.ind.Mode >> 12), there: s.there}
	if s.there && isDir(s.ind.Mode) {
		c.inodes.dirs = append(c.inodes.dirs, dirRecord{parent: s.ind.Parent})
		r.dir = uint32(len(c.inodes.dirs))
	}
	c.inodes.add(r)
	c.inode(&s)
}

func (c *checker) inode(s *seen) {
	where := fmt.Sprintf("inode %d", s.ino)
	switch {
	case !s.there && c.lostKey(inodeKey(s.ino)):
		return
	case !s.there:
		c.find(where, "has names, blocks or attributes, but no inode")
		return
	case s.ino == 0 || s.ino >= c.v.nextIno:
		c.find(where, "has a number not below the next one, %d", c.v.nextIno)
	}
	if s.ind.Nlink == 0 && c.orphan(s.ino) || c.lostPart(s.ino) {
		return // half removed, perhaps
	}
	if s.ind.Blocks != s.blocks {
		c.fixable(fix{kind: fixBlocks, ino: s.ino, num: s.blocks}, where, "counts %d blocks, %d are mapped", s.ind.Blocks, s.blocks)
	}
	if s.access != nil && s.access.Mode(s.ind.Mode) != s.ind.Mode {
		c.find(where, "has mode %#o, its access ACL says %#o", s.ind.Mode, s.access.Mode(s.ind.Mode))
	}
	if s.deflt != nil && !isDir(s.ind.Mode) {
		c.find(where, "has a default ACL and is no directory")
	}
	switch {
	case isDir(s.ind.Mode):
	case isReg(s.ind.Mode):
		if s.written > blocksOf(s.ind.Size) && !c.trimming(s.ino) {
			c.find(where, "has %d bytes, but written blocks up to %d", s.ind.Size, s.written)
		}
	case s.ind.Size != s.target:
		c.find(where, "has a size of %d, expected %d", s.ind.Size, s.target)
	}
}

func (c *checker) orphan(ino Ino) bool {
	_, found := slices.BinarySearch(c.orphans, ino)
	return found
}

// trimming tells whether blocks behind the end of a file are known and on their way out. A volume that was not recovered knows
// them by the keys alone.
func (c *checker) trimming(ino Ino) bool {
	if _, trimming := c.v.trims[ino]; trimming {
		return true
	}
	return c.v.salvage && c.orphan(ino)
}

// space compares totals, and the allocator with what was marked.
func (c *checker) space() {
	v := c.v
	if found, want := v.inodes, c.inodes.there; found != want {
		c.fixable(fix{kind: fixInodes, num: want - found}, "inodes", "found %d, expected %d", found, want)
	}
	for _, n := range []struct {
		what        string
		found, want uint64
	}{
		{"blocks in use", v.space.data, c.shadow.data},
		{"nodes in use", v.space.nodes, c.shadow.nodes},
		{"free blocks", v.space.FreeBlocks(), c.shadow.FreeBlocks()},
		{"nodes to be had", v.space.NodesAvailable(), c.shadow.NodesAvailable()},
	} {
		if n.found != n.want {
			c.find(n.what, "found %d, expected %d", n.found, n.want)
		}
	}
	if !bytes.Equal(v.space.inUse(), c.shadow.inUse()) {
		c.find("allocator", "has other nodes and blocks in use than those that are reachable or held")
	}
}

// AllocatedRanges calls fn for every range of the pool that the state refers to: super slots and log, nodes, and data.
// After an unclean boot the bytes of a page cache may have reached the medium or not: they are flushed before anything
// is built on them.
func (v *Volume) AllocatedRanges(fn func(pmem.Range)) error {
	return v.view(func() error {
		fn(pmem.Range{Off: layout.SuperOff0, Len: v.super.LogOff + v.super.LogLen - layout.SuperOff0})
		err := v.tree.Walk(false, func(off uint64, _ int, _ uint64) error {
			fn(pmem.Range{Off: off, Len: uint64(v.super.NodeSize)})
			return nil
		}, func(k layout.Key, val []byte) error {
			return v.checkedRuns(k, val, func(blk, n uint64) error {
				fn(pmem.Range{Off: blk * layout.BlockSize, Len: n * layout.BlockSize})
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("allocated ranges: %w", err)
		}
		return nil
	})
}
