package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Unlink removes a name of something that is no directory. The inode goes when it has no name and nobody holds it.
// Errors: ENOENT, EPERM (see FlagImmutable), EISDIR, ENOTDIR, EINVAL, ENAMETOOLONG, ESTALE, ErrShort.
func (v *Volume) Unlink(dir Ino, name string) error {
	return v.change(func() error {
		ino, typ, err := v.existing(dir, name)
		if err != nil {
			return err
		}
		if isDir(uint32(typ) << 12) {
			return syscall.EISDIR
		}
		if err := v.admit(v.nameCost(), true); err != nil {
			return err
		}
		v.removeName(dir, name)
		v.named(dir, 0)
		v.dropLink(ino)
		return nil
	})
}

// Rmdir removes an empty directory. Errors: ENOTEMPTY, EINVAL for ".", and those of Unlink.
func (v *Volume) Rmdir(dir Ino, name string) error {
	return v.change(func() error {
		if name == "." {
			return syscall.EINVAL
		}
		if name == ".." {
			return syscall.ENOTEMPTY
		}
		ino, typ, err := v.existing(dir, name)
		switch {
		case err != nil:
			return err
		case !isDir(uint32(typ) << 12):
			return syscall.ENOTDIR
		case !v.emptyDir(ino):
			return syscall.ENOTEMPTY
		}
		if err := v.admit(v.nameCost(), true); err != nil {
			return err
		}
		v.removeName(dir, name)
		v.named(dir, -1)
		v.dropLink(ino)
		return nil
	})
}

// existing checks a name that is to be removed or moved and finds what it names.
func (v *Volume) existing(dir Ino, name string) (ino Ino, typ uint8, err error) {
	if err := checkName(name); err != nil {
		return 0, 0, err
	}
	parent, err := v.dir(dir)
	if err != nil {
		return 0, 0, err
	}
	if isDot(name) {
		return 0, 0, syscall.EISDIR
	}
	ino, typ, err = v.find(dir, name)
	if err == nil {
		err = v.mayRemove(&parent, ino)
	}
	return ino, typ, err
}

// dropLink takes one name from an inode, both links from a directory. Without a name it becomes an orphan.
func (v *Volume) dropLink(ino Ino) {
	now := v.now()
	var left uint32
	v.update(ino, func(ind *layout.Inode) {
		ind.Ctime = now
		ind.Nlink--
		if isDir(ind.Mode) {
			ind.Nlink = 0
		}
		left = ind.Nlink
	})
	if left > 0 {
		return
	}
	v.orphan(ino, 0)
	v.unnamed[ino] = false
	if v.holds.count(ino) == 0 {
		v.orphans = append(v.orphans, ino)
	}
}

// Reclaim does one step of freeing what orphans hold, one record at most, and tells whether there is more to do. Errors:
// ErrShort.
func (v *Volume) Reclaim() (more bool, err error) {
	err = v.change(func() error {
		if len(v.orphans) == 0 {
			return nil
		}
		done, err := v.reclaim(v.orphans[0])
		if done {
			v.orphans = v.orphans[1:]
		}
		more = len(v.orphans) > 0
		return err
	})
	return more, err
}

// reclaim does one step for an inode in the queue and tells whether it is done with. The queue may name what is no
// orphan (any more): a truncate finished it, it was held again and comes back with Forget, or it is in the queue twice.
func (v *Volume) reclaim(ino Ino) (done bool, err error) {
	ind, err := v.stored(ino)
	_, trimming := v.trims[ino]
	switch {
	case err == syscall.ESTALE:
		return true, nil
	case err != nil:
		return false, err
	case ind.Nlink == 0 && v.holds.count(ino) == 0:
		return v.removeStep(ino)
	case trimming:
		return v.trimStep(ino)
	}
	return true, nil
}

// removeStep removes some keys of an inode without a name, the inode itself last.
func (v *Volume) removeStep(ino Ino) (done bool, err error) {
	v.discard(ino)
	n := v.stepSize()
	if err := v.admit(stepCost(n), true); err != nil {
		return false, err
	}
	keys := v.keys[:0]
	v.tree.Ascend(layout.MakeKey(ino, layout.TypeDirent, 0), layout.MakeKey(ino+1, 0, 0), func(k layout.Key, val []byte) bool {
		keys = append(keys, k)
		eachRun(k, val, v.free)
		return len(keys) < n
	})
	for _, k := range keys {
		v.remove(k)
	}
	if len(keys) == n {
		return false, nil
	}
	v.remove(inodeKey(ino))
	v.remove(orphanKey(ino))
	v.countInodes(-1)
	delete(v.trims, ino)
	delete(v.unnamed, ino)
	return true, nil
}
