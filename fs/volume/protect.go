package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Flags of an inode, with the values of ioctl_iflags(2). They bind everyone, the superuser too: EPERM.
//
//   - FlagImmutable: neither content nor attributes nor names of the inode change; in a directory no name does.
//   - FlagAppend: content is only added, attributes and names stay; in a directory names are only added.
const (
	FlagImmutable = 0x10
	FlagAppend    = 0x20
)

// SetFlags sets all flags of a file or directory. Errors: EOPNOTSUPP (other flags), ENOTTY (neither file nor directory),
// ESTALE, ErrShort.
func (v *Volume) SetFlags(ino Ino, flags uint32) error {
	return v.change(func() error {
		ind, err := v.inode(ino)
		switch {
		case err != nil:
			return err
		case !isDir(ind.Mode) && !isReg(ind.Mode):
			return syscall.ENOTTY
		case flags&^(FlagImmutable|FlagAppend) != 0:
			return syscall.EOPNOTSUPP
		}
		if err := v.admit(cost{1, inodeBytes}, false); err != nil {
			return err
		}
		now := v.now()
		v.update(ino, func(ind *layout.Inode) { ind.Flags, ind.Ctime = flags, now })
		return nil
	})
}

// unprotected is EPERM for an inode that has one of these flags.
func unprotected(ind *layout.Inode, flags uint32) error {
	if ind.Flags&flags != 0 {
		return syscall.EPERM
	}
	return nil
}

// mayRemove tells whether the name of ino may be taken out of a directory.
func (v *Volume) mayRemove(dir *layout.Inode, ino Ino) error {
	if err := unprotected(dir, FlagImmutable|FlagAppend); err != nil {
		return err
	}
	ind, err := v.inode(ino)
	if err != nil {
		return err
	}
	return unprotected(&ind, FlagImmutable|FlagAppend)
}

// maySet tells whether the attributes may be changed. What is append-only can be touched, both times set to the present, and
// loses set-user-id when something is added.
func (s *SetAttr) maySet(ind *layout.Inode) error {
	const touch = SetAtimeNow | SetMtimeNow
	if s.Valid == KillPriv || s.Valid&touch == touch && s.Valid&^(touch|SetAtime|SetMtime) == 0 {
		return unprotected(ind, FlagImmutable)
	}
	return unprotected(ind, FlagImmutable|FlagAppend)
}

// mayWrite tells whether bytes may be written at off.
func mayWrite(ind *layout.Inode, off uint64) error {
	if ind.Flags&FlagAppend != 0 && off < ind.Size {
		return syscall.EPERM
	}
	return unprotected(ind, FlagImmutable)
}
