package volume

import (
	"encoding/binary"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// symlinkPiece is how many bytes of a symlink's target one key holds.
const symlinkPiece = 256

// nameCost is a change of one name: its list, and the inodes of directory and object.
func (v *Volume) nameCost() cost { return cost{4, opPut + v.limits.value + 2*inodeBytes + opPut + 8} }

// Make creates a file, directory, symlink, device, fifo or socket and names it. In a set-group-id directory it gets the
// directory's group, and a directory gets the bit too. In a directory with a default ACL it inherits that. Errors: EPERM (see FlagImmutable), EEXIST, EINVAL, ENAMETOOLONG, ENOENT (the directory was
// removed, or an empty target), ENOTDIR, EMLINK, ESTALE, ENOSPC (too many names with one hash), ErrShort.
func (v *Volume) Make(dir Ino, name string, m Make) (a Attr, err error) {
	err = v.change(func() error {
		a, err = v.make(dir, name, m)
		return err
	})
	return a, err
}

func (v *Volume) make(dir Ino, name string, m Make) (Attr, error) {
	parent, err := v.vacant(dir, name)
	if err != nil {
		return Attr{}, err
	}
	if err := checkMake(&m, &parent); err != nil {
		return Attr{}, err
	}
	var h inherited
	if err := v.prepareMake(&h, dir, &m); err != nil {
		return Attr{}, err
	}
	return v.create(&parent, &h, dir, name, m), nil
}

// makeCost is what create takes, but for what is inherited.
func (v *Volume) makeCost(m *Make) cost {
	pieces := (len(m.Target) + symlinkPiece - 1) / symlinkPiece
	return v.nameCost().plus(cost{pieces, pieces*opPut + len(m.Target)})
}

// prepareMake finds and prepares what a new inode in dir inherits, and makes room for all of it.
func (v *Volume) prepareMake(h *inherited, dir Ino, m *Make) error {
	if err := v.inherit(h, dir, m); err != nil {
		return err
	}
	c := v.makeCost(m).plus(h.cost(v))
	if err := v.admit(c, false); err != nil {
		return err
	}
	return h.prepare(v, c.edits)
}

// create makes an inode and names it. All was checked and prepared.
func (v *Volume) create(parent *layout.Inode, h *inherited, dir Ino, name string, m Make) Attr {
	ind := v.newInode(parent, h, dir, m)
	ino := v.addInode(&ind, h, m.Target)
	v.setName(dir, name, ino, uint8(m.Mode>>12))
	v.named(dir, btoi(isDir(m.Mode)))
	return attrOf(ino, &ind)
}

// addInode puts a new inode, what it inherits, and the target of a symlink.
func (v *Volume) addInode(ind *layout.Inode, h *inherited, target string) Ino {
	ino := v.takeIno()
	var b [layout.InodeSize]byte
	ind.Encode(b[:])
	v.put(inodeKey(ino), b[:])
	h.put(v, ino)
	for i := 0; i < len(target); i += symlinkPiece {
		piece := target[i:min(i+symlinkPiece, len(target))]
		v.put(layout.MakeKey(ino, layout.TypeSymlink, uint64(i/symlinkPiece)), []byte(piece))
	}
	v.countInodes(1)
	return ino
}

// named sets the times of a directory whose names changed, and counts its subdirectories.
func (v *Volume) named(dir Ino, subdirs int) {
	now := v.now()
	v.update(dir, func(ind *layout.Inode) {
		ind.Mtime, ind.Ctime = now, now
		ind.Nlink += uint32(subdirs)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// vacant checks that a name can be added to a directory, and returns that.
func (v *Volume) vacant(dir Ino, name string) (layout.Inode, error) {
	if err := checkName(name); err != nil {
		return layout.Inode{}, err
	}
	parent, err := v.dir(dir)
	if err != nil {
		return layout.Inode{}, err
	}
	if isDot(name) {
		return layout.Inode{}, syscall.EEXIST
	}
	if parent.Nlink == 0 {
		return layout.Inode{}, syscall.ENOENT
	}
	if _, _, err := v.find(dir, name); err == nil {
		return layout.Inode{}, syscall.EEXIST
	}
	if err := unprotected(&parent, FlagImmutable); err != nil {
		return layout.Inode{}, err
	}
	return parent, v.fits(dir, name)
}

func checkMake(m *Make, parent *layout.Inode) error {
	symlink := m.Mode&syscall.S_IFMT == syscall.S_IFLNK
	switch m.Mode & syscall.S_IFMT {
	case syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK, syscall.S_IFCHR, syscall.S_IFBLK:
	case syscall.S_IFDIR:
		if parent.Nlink >= MaxLink {
			return syscall.EMLINK
		}
	case syscall.S_IFLNK:
		if m.Target == "" {
			return syscall.ENOENT
		}
		if len(m.Target) > MaxSymlink {
			return syscall.ENAMETOOLONG
		}
	default:
		return syscall.EINVAL
	}
	if m.Target != "" && !symlink {
		return syscall.EINVAL
	}
	return nil
}

func (v *Volume) newInode(parent *layout.Inode, h *inherited, dir Ino, m Make) layout.Inode {
	now := v.now()
	ind := layout.Inode{
		Mode: h.mode & (syscall.S_IFMT | 07777), Nlink: 1, UID: m.UID, GID: m.GID,
		Size: uint64(len(m.Target)), Blocks: h.blocks(),
		Mtime: now, Ctime: now, Atime: now, Btime: now,
	}
	if t := m.Mode & syscall.S_IFMT; t == syscall.S_IFCHR || t == syscall.S_IFBLK {
		ind.Rdev = m.Rdev
	}
	if parent.Mode&syscall.S_ISGID != 0 {
		ind.GID = parent.GID
	}
	if isDir(m.Mode) {
		ind.Nlink, ind.Parent = 2, dir
		ind.Mode |= parent.Mode & syscall.S_ISGID
	}
	return ind
}

// Link gives an inode one more name, or the first one to a file of Tmpfile. Errors: EPERM for a directory, EMLINK, ENOENT
// if the inode has no name any more, and those of Make.
func (v *Volume) Link(ino, dir Ino, name string) (a Attr, err error) {
	err = v.change(func() error {
		a, err = v.link(ino, dir, name)
		return err
	})
	return a, err
}

func (v *Volume) link(ino, dir Ino, name string) (Attr, error) {
	ind, err := v.stored(ino)
	if err != nil {
		return Attr{}, err
	}
	if _, err := v.vacant(dir, name); err != nil {
		return Attr{}, err
	}
	if err := unprotected(&ind, FlagImmutable|FlagAppend); err != nil {
		return Attr{}, err
	}
	switch {
	case isDir(ind.Mode):
		return Attr{}, syscall.EPERM
	case ind.Nlink == 0 && !v.unnamed[ino]:
		return Attr{}, syscall.ENOENT
	case ind.Nlink >= MaxLink:
		return Attr{}, syscall.EMLINK
	}
	if err := v.admit(v.nameCost(), false); err != nil {
		return Attr{}, err
	}
	if ind.Nlink == 0 {
		v.adopt(ino)
	}
	now := v.now()
	v.update(ino, func(ind *layout.Inode) {
		ind.Nlink++
		ind.Ctime = now
	})
	v.setName(dir, name, ino, uint8(ind.Mode>>12))
	v.named(dir, 0)
	return v.attr(ino)
}

// Readlink is the target of a symlink. Errors: EINVAL, ESTALE.
func (v *Volume) Readlink(ino Ino) (target string, err error) {
	err = v.view(func() error {
		ind, err := v.inode(ino)
		if err != nil {
			return err
		}
		if ind.Mode&syscall.S_IFMT != syscall.S_IFLNK {
			return syscall.EINVAL
		}
		b := make([]byte, 0, min(ind.Size, MaxSymlink))
		v.tree.Ascend(layout.MakeKey(ino, layout.TypeSymlink, 0), layout.MakeKey(ino, layout.TypeOrphan, 0),
			func(_ layout.Key, piece []byte) bool {
				b = append(b, piece...)
				return true
			})
		target = string(b)
		return nil
	})
	return target, err
}

// orphan writes down that what the inode maps from this block on is to be freed, or all of it once it has no name.
func (v *Volume) orphan(ino Ino, from uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], from)
	v.put(orphanKey(ino), b[:])
}
