package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

// Flags of renameat2(2): fail with EEXIST instead of replacing, or let both names change places.
const (
	RenameNoReplace = 1
	RenameExchange  = 2
)

// move is one rename: what it moves, from where to where, and what it replaces or changes places with.
type move struct {
	from, to      Ino
	name, newname string
	ino           Ino
	typ           uint8
	target        Ino // 0 if newname names nothing
	targetTyp     uint8
	toInd         layout.Inode
}

func (m *move) dir() bool       { return isDir(uint32(m.typ) << 12) }
func (m *move) targetDir() bool { return m.target != 0 && isDir(uint32(m.targetTyp)<<12) }

// Rename moves a name, and replaces what newname names; with RenameExchange both names stay and change places. The content
// of a file that replaces another one is logged with it, so a crash shows the old or the new file, whole. Errors: EEXIST
// with RenameNoReplace, EINVAL (other flags, "." and "..", a directory into itself), ENOENT, ENOTDIR, EISDIR, ENOTEMPTY,
// EMLINK, ENAMETOOLONG, ESTALE, ENOSPC (too many names with one hash), ErrShort.
func (v *Volume) Rename(dir Ino, name string, newdir Ino, newname string, flags uint32) error {
	return v.change(func() error {
		m := move{from: dir, name: name, to: newdir, newname: newname}
		if flags&RenameExchange == 0 {
			return v.rename(&m, flags, cost{})
		}
		if flags != RenameExchange || isDot(name) || isDot(newname) {
			return syscall.EINVAL
		}
		return v.exchange(&m)
	})
}

// RenameWhiteout is Rename that leaves a whiteout in the old place: a character device with number 0 and mode 0, which
// union file systems take for a name that was removed. It belongs to uid and gid, as if they had made it.
func (v *Volume) RenameWhiteout(dir Ino, name string, newdir Ino, newname string, flags, uid, gid uint32) error {
	return v.change(func() error {
		m := move{from: dir, name: name, to: newdir, newname: newname}
		if err := v.rename(&m, flags, v.makeCost(&Make{})); err != nil || m.target == m.ino {
			return err
		}
		parent, err := v.dir(dir)
		if err != nil {
			return err
		}
		v.create(&parent, &inherited{mode: syscall.S_IFCHR}, dir, name, Make{Mode: syscall.S_IFCHR, UID: uid, GID: gid})
		return nil
	})
}

// rename does a plain rename. More is what the caller wants to do after it, in the same record.
func (v *Volume) rename(m *move, flags uint32, more cost) error {
	if flags&^RenameNoReplace != 0 || isDot(m.name) || isDot(m.newname) {
		return syscall.EINVAL
	}
	if err := v.checkMove(m, flags); err != nil {
		return err
	}
	if m.target == m.ino {
		return nil // two names of one inode: POSIX wants that nothing happens
	}
	f := v.files[m.ino]
	c := v.nameCost().plus(v.nameCost()).plus(more)
	if f != nil {
		c.bytes += f.aside.bytes
	}
	if err := v.admit(c, false); err != nil {
		return err
	}
	if f != nil && m.target != 0 && !mutant.On(mutant.RenameNotWhole) {
		v.flush(f)
	}
	v.applyMove(m)
	return nil
}

func (v *Volume) checkMove(m *move, flags uint32) error {
	if err := v.findMove(m); err != nil {
		return err
	}
	if m.target == 0 {
		if m.dir() && m.from != m.to && m.toInd.Nlink >= MaxLink {
			return syscall.EMLINK
		}
		return v.fits(m.to, m.newname)
	}
	return v.checkTarget(m, flags)
}

// findMove finds what both names of a move name.
func (v *Volume) findMove(m *move) (err error) {
	if m.ino, m.typ, err = v.existing(m.from, m.name); err != nil {
		return err
	}
	if err := checkName(m.newname); err != nil {
		return err
	}
	if m.toInd, err = v.dir(m.to); err != nil {
		return err
	}
	if m.toInd.Nlink == 0 {
		return syscall.ENOENT
	}
	if m.dir() && v.below(m.to, m.ino) {
		return syscall.EINVAL
	}
	m.target, m.targetTyp, err = v.find(m.to, m.newname)
	switch err {
	case nil:
		return v.mayRemove(&m.toInd, m.target)
	case syscall.ENOENT:
		return unprotected(&m.toInd, FlagImmutable)
	}
	return err
}

func (v *Volume) checkTarget(m *move, flags uint32) error {
	switch dir, targetDir := m.dir(), m.targetDir(); {
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
	v.removeName(m.from, m.name)
	v.setName(m.to, m.newname, m.ino, m.typ)
	moved := btoi(m.dir() && m.from != m.to)
	gone := btoi(m.targetDir())
	v.named(m.from, -moved)
	v.named(m.to, moved-gone)
	if m.target != 0 {
		v.dropLink(m.target)
	}
	v.moved(m.ino, m.to)
}

// exchange lets two names change places. Each of the inodes replaces the other one, so the content of both goes ahead: the
// record that exchanges them is never sealed before the records that have it.
func (v *Volume) exchange(m *move) error {
	if err := v.checkExchange(m); err != nil || m.target == m.ino {
		return err
	}
	for _, ino := range [...]Ino{m.ino, m.target} {
		if f := v.files[ino]; f != nil {
			v.flush(f)
		}
	}
	if err := v.admit(v.nameCost().plus(v.nameCost()), false); err != nil {
		return err
	}
	v.setName(m.from, m.name, m.target, m.targetTyp)
	v.setName(m.to, m.newname, m.ino, m.typ)
	gained := 0 // subdirectories that the directory of newname wins and the other one loses
	if m.from != m.to {
		gained = btoi(m.dir()) - btoi(m.targetDir())
	}
	v.named(m.from, -gained)
	v.named(m.to, gained)
	v.moved(m.ino, m.to)
	v.moved(m.target, m.from)
	return nil
}

func (v *Volume) checkExchange(m *move) error {
	if err := v.findMove(m); err != nil {
		return err
	}
	if m.target == 0 {
		return syscall.ENOENT
	}
	if m.targetDir() && v.below(m.from, m.target) {
		return syscall.EINVAL
	}
	from, err := v.dir(m.from)
	if err != nil {
		return err
	}
	if m.from != m.to && (m.dir() && !m.targetDir() && m.toInd.Nlink >= MaxLink || m.targetDir() && !m.dir() && from.Nlink >= MaxLink) {
		return syscall.EMLINK
	}
	return nil
}

// moved notes that ino has a name in dir instead of elsewhere.
func (v *Volume) moved(ino, dir Ino) {
	now := v.now()
	v.update(ino, func(ind *layout.Inode) {
		ind.Ctime = now
		if isDir(ind.Mode) {
			ind.Parent = dir
		}
	})
}
