package volume

import (
	"fmt"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// fix is what a repair does about a finding.
type fix struct {
	kind fixKind
	ino  Ino
	num  uint64
}

type fixKind uint8

const (
	noFix          fixKind = iota
	fixSuper               // write the older super slot anew, as every checkpoint does
	fixLinks               // set the link count to num
	fixParent              // set the parent of a directory to num
	fixBlocks              // set the block count to num
	fixInodes              // add num, modulo 2^64, to the number of inodes
	fixOrphan              // drop the ORPHAN key of an inode that does not exist
	fixUnreachable         // give it a name in lost+found, and num links
)

// LostFound is the directory, below the root, in which a repair names what has no name.
const LostFound = "lost+found"

// Repair puts right what Check finds, as far as the rest of the pool proves what must be there: counts, parents, orphan keys, and
// inodes without a name, which get one in lost+found. Say hears of each change before it is made; what is left alone is told to
// refused. The changes are ordinary ones: they reach the pool with the groups that the caller then commits, so a crash in the
// middle leaves a part of them, and a pool as whole as before. The volume must be opened with Options.ForCheck.
func (v *Volume) Repair(say func(f Finding, action string), refused func(Finding)) error {
	var found []Finding
	if err := v.Check(func(f Finding) { found = append(found, f) }); err != nil {
		return err
	}
	for _, f := range found {
		if f.fix.kind == noFix {
			refused(f)
			continue
		}
		say(f, f.fix.action())
		if err := v.apply(&f.fix); err != nil {
			return fmt.Errorf("%v: %s: %w", f, f.fix.action(), err)
		}
	}
	return nil
}

// action says what a fix does.
func (f *fix) action() string {
	switch f.kind {
	case fixSuper:
		return "write it anew with the next checkpoint"
	case fixLinks:
		return fmt.Sprintf("set the link count to %d", f.num)
	case fixParent:
		return fmt.Sprintf("set the parent to %d", f.num)
	case fixBlocks:
		return fmt.Sprintf("set the block count to %d", f.num)
	case fixInodes:
		return fmt.Sprintf("change the number of inodes by %d", int64(f.num))
	case fixOrphan:
		return "take it off the list of orphans"
	case fixUnreachable:
		return fmt.Sprintf("name it /%s/%s", LostFound, lostName(f.ino))
	}
	return "leave it"
}

func lostName(ino Ino) string { return fmt.Sprintf("#%d", ino) }

// apply makes the change of a fix, as one operation.
func (v *Volume) apply(f *fix) error {
	return v.change(func() error {
		if f.kind == fixUnreachable {
			return v.toLostFound(f.ino, uint32(f.num))
		}
		if err := v.admit(v.nameCost(), true); err != nil {
			return err
		}
		switch f.kind {
		case fixLinks:
			v.setLinks(f.ino, uint32(f.num))
		case fixParent:
			v.update(f.ino, func(ind *layout.Inode) { ind.Parent = f.num })
		case fixBlocks:
			v.update(f.ino, func(ind *layout.Inode) { ind.Blocks = f.num })
		case fixInodes:
			v.countInodes(int64(f.num))
		case fixOrphan:
			v.remove(orphanKey(f.ino))
		}
		return nil
	})
}

// setLinks sets a link count. An inode that had none is no orphan any more.
func (v *Volume) setLinks(ino Ino, links uint32) {
	ind, err := v.stored(ino)
	if err != nil {
		v.stop(err)
		return
	}
	if _, ok := v.tree.Get(orphanKey(ino)); ok && ind.Nlink == 0 {
		v.remove(orphanKey(ino))
	}
	v.update(ino, func(ind *layout.Inode) { ind.Nlink = links })
}

// toLostFound gives an inode a name in lost+found, which it makes if it is not there.
func (v *Volume) toLostFound(ino Ino, links uint32) error {
	dir, _, err := v.find(Root, LostFound)
	if err == syscall.ENOENT {
		a, makeErr := v.make(Root, LostFound, Make{Mode: syscall.S_IFDIR | 0o700})
		dir, err = a.Ino, makeErr
	}
	if err != nil {
		return err
	}
	name := lostName(ino)
	if _, err := v.vacant(dir, name); err != nil {
		return err
	}
	ind, err := v.stored(ino)
	if err != nil {
		return err
	}
	if err := v.admit(v.nameCost(), false); err != nil {
		return err
	}
	v.setLinks(ino, links)
	v.setName(dir, name, ino, uint8(ind.Mode>>12))
	v.named(dir, btoi(isDir(ind.Mode)))
	if isDir(ind.Mode) {
		v.update(ino, func(ind *layout.Inode) { ind.Parent = dir })
	}
	return nil
}
