package volume

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Finding is one inconsistency that Check met.
type Finding struct{ Where, What string }

func (f Finding) String() string { return f.Where + ": " + f.What }

// Check tests the live state as a whole: every node, that nothing is mapped twice, names against inodes and link
// counts, parents, orphans, counts, and that the allocator has in use just what is reachable or held. It changes
// nothing, and calls report under the volume's lock. An error means that it could not look at everything, because of
// damage or a fault.
func (v *Volume) Check(report func(Finding)) error {
	return v.view(func() error {
		c := &checker{v: v, report: report, shadow: newSpace(&v.super), seen: make(map[Ino]*seen), orphans: make(map[Ino]bool)}
		if err := v.tree.Walk(true, c.node, c.value); err != nil {
			return err
		}
		c.held()
		c.names()
		for ino, s := range c.seen {
			c.inode(ino, s)
		}
		c.counts()
		return nil
	})
}

// checker is one Check. shadow is marked with all that is reachable or held, to be compared with the allocator.
type checker struct {
	v       *Volume
	report  func(Finding)
	shadow  space
	seen    map[Ino]*seen
	entries []entry
	orphans map[Ino]bool
}

// seen is what the tree holds for one inode.
type seen struct {
	there   bool // the INODE key
	ind     layout.Inode
	blocks  uint64 // mapped by extents and large attributes
	end     uint64 // first block behind the last extent
	written uint64 // first block behind the last written extent
	target  uint64 // bytes of symlink pieces
	names   uint32
	subdirs uint32
	parent  Ino // the directory with its last name
	access  posixacl.ACL
	deflt   posixacl.ACL
}

type entry struct {
	dir, ino Ino
	typ      uint8
	name     string
}

func (c *checker) find(where, format string, args ...any) {
	c.report(Finding{where, fmt.Sprintf(format, args...)})
}

func (c *checker) of(ino Ino) *seen {
	s := c.seen[ino]
	if s == nil {
		s = &seen{}
		c.seen[ino] = s
	}
	return s
}

func (c *checker) node(off uint64, _ int, _ uint64) error {
	if !c.shadow.MarkNode(off) {
		c.find(fmt.Sprintf("node at offset %d", off), "is reached twice, or stands outside of a node chunk")
	}
	return nil
}

func (c *checker) value(k layout.Key, val []byte) error {
	where := keyName(k)
	err := c.v.checkedRuns(k, val, func(blk, n uint64) error {
		c.mark(where, blk, n)
		c.of(k.Hi).blocks += n
		return nil
	})
	if err != nil {
		c.find(where, "%v", err)
		return nil
	}
	switch k.Type() {
	case layout.TypeInode:
		s := c.of(k.Hi)
		s.there = true
		s.ind, _ = layout.DecodeInode(val)
	case layout.TypeDirent:
		c.list(k, val)
	case layout.TypeExtent:
		c.extent(k, val)
	case layout.TypeXattr:
		c.of(k.Hi)
		_ = layout.EachXattr(val, func(x layout.Xattr) bool {
			if isACL(string(x.Name)) {
				c.acl(k, &x)
			}
			if layout.Hash56(c.v.super.HashKey, string(x.Name)) != k.Sub() {
				c.find(where, "extended attribute %q stands under the hash of another name", x.Name)
			}
			return true
		})
	case layout.TypeSymlink:
		c.of(k.Hi).target += uint64(len(val))
	case layout.TypeOrphan:
		c.orphans[k.Sub()] = true
	}
	return nil
}

func (c *checker) mark(where string, blk, n uint64) {
	if !c.shadow.MarkData(blk, n) {
		c.find(where, "blocks %d to %d are in use by something else too", blk, blk+n-1)
	}
}

func (c *checker) list(k layout.Key, val []byte) {
	_ = layout.EachDirent(val, func(_ int, ino uint64, typ uint8, name []byte) bool {
		e := entry{k.Hi, ino, typ, string(name)}
		c.entries = append(c.entries, e)
		if layout.Hash56(c.v.super.HashKey, e.name) != k.Sub() {
			c.find(keyName(k), "name %q stands under the hash of another name", e.name)
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
		c.of(k.Hi).access = acl
	} else {
		c.of(k.Hi).deflt = acl
	}
}

func (c *checker) extent(k layout.Key, val []byte) {
	s := c.of(k.Hi)
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

// names compares every name with the inode that it names.
func (c *checker) names() {
	for _, e := range c.entries {
		where := fmt.Sprintf("inode %d, name %q", e.dir, e.name)
		s, dir := c.seen[e.ino], c.seen[e.dir]
		switch {
		case checkName(e.name) != nil || isDot(e.name):
			c.find(where, "is no name")
		case dir == nil || !dir.there || !isDir(dir.ind.Mode):
			c.find(where, "stands in what is no directory")
			continue
		}
		if s == nil || !s.there {
			c.find(where, "names inode %d, which does not exist", e.ino)
			continue
		}
		if uint32(e.typ) != s.ind.Mode>>12 {
			c.find(where, "has type %#o, inode %d has mode %#o", e.typ, e.ino, s.ind.Mode)
		}
		s.names++
		s.parent = e.dir
		if isDir(s.ind.Mode) {
			dir.subdirs++
		}
	}
}

func (c *checker) inode(ino Ino, s *seen) {
	where := fmt.Sprintf("inode %d", ino)
	if !s.there {
		c.find(where, "has names, blocks or attributes, but no inode")
		return
	}
	if ino == 0 || ino >= c.v.nextIno {
		c.find(where, "has a number not below the next one, %d", c.v.nextIno)
	}
	if want := c.links(ino, s); s.ind.Nlink != want {
		c.find(where, "has %d links, expected %d", s.ind.Nlink, want)
	}
	if s.ind.Nlink == 0 && !c.orphans[ino] {
		c.find(where, "has no name and is not among the orphans")
	}
	if s.ind.Nlink == 0 {
		return // half removed, perhaps
	}
	if s.ind.Blocks != s.blocks {
		c.find(where, "counts %d blocks, %d are mapped", s.ind.Blocks, s.blocks)
	}
	if s.access != nil && s.access.Mode(s.ind.Mode) != s.ind.Mode {
		c.find(where, "has mode %#o, its access ACL says %#o", s.ind.Mode, s.access.Mode(s.ind.Mode))
	}
	if s.deflt != nil && !isDir(s.ind.Mode) {
		c.find(where, "has a default ACL and is no directory")
	}
	switch {
	case isDir(s.ind.Mode):
		c.dir(ino, s)
	case isReg(s.ind.Mode):
		if _, trimming := c.v.trims[ino]; s.written > blocksOf(s.ind.Size) && !trimming {
			c.find(where, "has %d bytes, but written blocks up to %d", s.ind.Size, s.written)
		}
	case s.ind.Size != s.target:
		c.find(where, "has a size of %d, expected %d", s.ind.Size, s.target)
	}
}

// links is the link count that the names call for.
func (c *checker) links(ino Ino, s *seen) uint32 {
	if !isDir(s.ind.Mode) {
		return s.names
	}
	if s.names == 0 && ino != Root {
		return 0
	}
	return 2 + s.subdirs
}

// dir checks that a directory has one name, in its parent, and that the parents lead to the root.
func (c *checker) dir(ino Ino, s *seen) {
	where := fmt.Sprintf("inode %d", ino)
	if ino == Root {
		if s.names != 0 || s.ind.Parent != Root {
			c.find(where, "is the root, and has %d names and the parent %d", s.names, s.ind.Parent)
		}
		return
	}
	if s.names != 1 || s.ind.Parent != s.parent {
		c.find(where, "is a directory with %d names, the last in inode %d; its parent is %d", s.names, s.parent, s.ind.Parent)
	}
	up := s
	for range len(c.seen) {
		if up.ind.Parent == Root {
			return
		}
		if up = c.seen[up.ind.Parent]; up == nil {
			break
		}
	}
	c.find(where, "its parents do not lead to the root")
}

// counts compares totals, and the allocator with what was marked.
func (c *checker) counts() {
	v := c.v
	for ino := range c.orphans {
		if s := c.seen[ino]; s == nil || !s.there {
			c.find(fmt.Sprintf("inode %d", ino), "is among the orphans and does not exist")
		}
	}
	for _, n := range []struct {
		what        string
		found, want uint64
	}{
		{"inodes", v.inodes, uint64(len(c.seen))},
		{"blocks in use", v.space.data, c.shadow.data},
		{"nodes in use", v.space.nodes, c.shadow.nodes},
		{"free blocks", v.space.FreeBlocks(), c.shadow.FreeBlocks()},
		{"nodes to be had", v.space.NodesAvailable(), c.shadow.NodesAvailable()},
	} {
		if n.found != n.want {
			c.find(n.what, "found %d, expected %d", n.found, n.want)
		}
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
