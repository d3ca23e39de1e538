package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

// RenameNoReplace is the flag of renameat2(2) that makes Rename fail with EEXIST instead of replacing.
const RenameNoReplace = 1

// move is one rename: what it moves, from where to where, and what it replaces.
type move struct {
	from, to      Ino
	name, newname string
	ino           Ino
	typ           uint8
	target        Ino // 0 if nothing is replaced
}

// Rename moves a name, and replaces what newname names. The content of a file that replaces another one goes into the
// same record, so a crash shows the old or the new file, whole. Errors: EEXIST with RenameNoReplace, EINVAL (other
// flags, "." and "..", a directory into itself), ENOENT, ENOTDIR, EISDIR, ENOTEMPTY, EMLINK, ENAMETOOLONG, ESTALE,
// ENOSPC (too many names with one hash), ErrShort.
func (v *Volume) Rename(dir Ino, name string, newdir Ino, newname string, flags uint32) error {
	return v.change(func() error {
		if flags&^RenameNoReplace != 0 || isDot(name) || isDot(newname) {
			return syscall.EINVAL
		}
		m := move{from: dir, name: name, to: newdir, newname: newname}
		if err := v.checkMove(&m, flags); err != nil {
			return err
		}
		if m.target == m.ino {
			return nil // two names of one inode: POSIX wants that nothing happens
		}
		f := v.files[m.ino]
		c := v.nameCost().plus(v.nameCost())
		if f != nil {
			c.bytes += f.aside.bytes
		}
		if err := v.admit(c, false); err != nil {
			return err
		}
		if f != nil && m.target != 0 && !mutant.On(mutant.RenameNotWhole) {
			v.flush(f)
		}
		v.applyMove(&m)
		return nil
	})
}

func (v *Volume) checkMove(m *move, flags uint32) (err error) {
	if m.ino, m.typ, err = v.existing(m.from, m.name); err != nil {
		return err
	}
	if err := checkName(m.newname); err != nil {
		return err
	}
	to, err := v.dir(m.to)
	if err != nil {
		return err
	}
	if to.Nlink == 0 {
		return syscall.ENOENT
	}
	dir := isDir(uint32(m.typ) << 12)
	if dir && v.below(m.to, m.ino) {
		return syscall.EINVAL
	}
	target, typ, err := v.find(m.to, m.newname)
	if err == syscall.ENOENT {
		if dir && m.from != m.to && to.Nlink >= MaxLink {
			return syscall.EMLINK
		}
		return v.fits(m.to, m.newname)
	}
	m.target = target
	return v.checkTarget(m, dir, isDir(uint32(typ)<<12), flags)
}

func (v *Volume) checkTarget(m *move, dir, targetDir bool, flags uint32) error {
	switch {
	case flags&RenameNoReplace != 0:
		return syscall.EEXIST
	case m.target == m.ino:
		return nil
	case targetDir && !dir:
		return syscall.EISDIR
	case dir && !targetDir:
		return syscall.ENOTDIR
	case targetDir && !v.emptyDir(m.target):
		return syscall.ENOTEMPTY
	}
	return nil
}

// below tells whether a directory is ino or lies below it. It gives up, as if so, when the parents are a ring.
func (v *Volume) below(dir, ino Ino) bool {
	for range v.inodes + 1 {
		if dir == ino {
			return true
		}
		if dir == Root {
			return false
		}
		ind, err := v.stored(dir)
		if err != nil {
			return true
		}
		dir = ind.Parent
	}
	return true
}

// applyMove does what was checked and admitted.
func (v *Volume) applyMove(m *move) {
	dir := isDir(uint32(m.typ) << 12)
	v.removeName(m.from, m.name)
	v.setName(m.to, m.newname, m.ino, m.typ)
	moved := btoi(dir && m.from != m.to)
	gone := btoi(dir && m.target != 0)
	v.named(m.from, -moved)
	v.named(m.to, moved-gone)
	if m.target != 0 {
		v.dropLink(m.target)
	}
	now := v.now()
	v.update(m.ino, func(ind *layout.Inode) {
		ind.Ctime = now
		if dir {
			ind.Parent = m.to
		}
	})
}
