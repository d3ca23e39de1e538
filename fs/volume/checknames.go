package volume

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// names is pass 2 of a check: every name against the inode that it names.
func (c *checker) names(k layout.Key, val []byte) error {
	if k.Type() != layout.TypeDirent {
		return nil
	}
	_ = layout.EachDirent(val, func(_ int, ino uint64, typ uint8, name []byte) bool {
		c.name(k, ino, typ, string(name))
		return true
	})
	return nil
}

func (c *checker) name(k layout.Key, ino Ino, typ uint8, name string) {
	where := fmt.Sprintf("inode %d, name %q", k.Hi, name)
	if layout.Hash56(c.v.super.HashKey, name) != k.Sub() {
		c.find(where, "stands under the hash of another name")
	}
	if checkName(name) != nil || isDot(name) {
		c.find(where, "is no name")
	}
	dir := c.inodes.directory(k.Hi)
	if dir == nil && !c.lostKey(inodeKey(k.Hi)) {
		c.find(where, "stands in what is no directory")
		return
	}
	r := c.inodes.find(ino)
	if r == nil || !r.there {
		if !c.lostKey(inodeKey(ino)) {
			c.find(where, "names inode %d, which does not exist", ino)
		}
		return
	}
	if typ != r.typ {
		c.find(where, "has type %#o, inode %d is of type %#o", typ, ino, r.typ)
	}
	r.names++
	if r.dir != 0 {
		c.inodes.dirs[r.dir-1].namedIn = k.Hi
		if dir != nil {
			dir.subdirs++
		}
	}
}

// links compares what was counted with what the inodes say. Where a part of the tree is lost, names may be among it, and there is
// nothing to compare.
func (c *checker) links() {
	if len(c.lost) > 0 {
		c.find("link counts, parents and orphans", "not checked, since a part of the tree is lost")
		return
	}
	c.inodes.each(func(r *inodeRecord) {
		if r.there {
			c.linksOf(r)
		}
	})
	for _, ino := range c.orphans {
		if r := c.inodes.find(ino); r == nil || !r.there {
			c.fixable(fix{kind: fixOrphan, ino: ino}, fmt.Sprintf("inode %d", ino), "is among the orphans and does not exist")
		}
	}
}

func (c *checker) linksOf(r *inodeRecord) {
	where := fmt.Sprintf("inode %d", r.ino)
	want, named := r.names, uint32(1) // named: what it has once it has a name
	if r.dir != 0 {
		named = 2 + c.inodes.dirs[r.dir-1].subdirs
		if want = named; r.names == 0 && r.ino != Root {
			want = 0
		}
	}
	switch {
	case want == 0 && (r.nlink > 0 || !c.orphan(r.ino)):
		c.fixable(fix{kind: fixUnreachable, ino: r.ino, num: uint64(named)}, where, "has no name, %d links, and is not to be removed", r.nlink)
		return
	case r.nlink != want:
		c.fixable(fix{kind: fixLinks, ino: r.ino, num: uint64(want)}, where, "has %d links, expected %d", r.nlink, want)
	}
	if r.dir != 0 && want > 0 {
		c.dir(r, &c.inodes.dirs[r.dir-1])
	}
}

// dir checks that a directory has one name, in its parent, and that the parents lead to the root.
func (c *checker) dir(r *inodeRecord, d *dirRecord) {
	where := fmt.Sprintf("inode %d", r.ino)
	switch {
	case r.ino == Root:
		if r.names != 0 || d.parent != Root {
			c.find(where, "is the root, and has %d names and the parent %d", r.names, d.parent)
		}
	case r.names != 1:
		c.find(where, "is a directory with %d names, the last in inode %d; its parent is %d", r.names, d.namedIn, d.parent)
	case d.parent != d.namedIn:
		c.fixable(fix{kind: fixParent, ino: r.ino, num: d.namedIn}, where, "is a directory with its name in inode %d, and has the parent %d", d.namedIn, d.parent)
	case !c.inodes.leadsToRoot(d):
		c.find(where, "its parents do not lead to the root")
	}
}
