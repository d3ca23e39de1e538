package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

func inodeKey(ino Ino) layout.Key  { return layout.MakeKey(ino, layout.TypeInode, 0) }
func orphanKey(ino Ino) layout.Key { return layout.MakeKey(0, layout.TypeOrphan, ino) }

func isDir(mode uint32) bool { return mode&syscall.S_IFMT == syscall.S_IFDIR }
func isReg(mode uint32) bool { return mode&syscall.S_IFMT == syscall.S_IFREG }

// stored is the inode as the tree has it: what is pending in memory is not in it. ESTALE if there is none.
func (v *Volume) stored(ino Ino) (layout.Inode, error) {
	val, ok := v.tree.Get(inodeKey(ino))
	if !ok {
		return layout.Inode{}, syscall.ESTALE
	}
	return layout.DecodeInode(val)
}

// inode is the inode as everyone sees it.
func (v *Volume) inode(ino Ino) (layout.Inode, error) {
	if f := v.files[ino]; f != nil {
		return f.ind, nil
	}
	return v.stored(ino)
}

// regular is the inode of a regular file: EISDIR if it is a directory, EINVAL if it is something else.
func (v *Volume) regular(ino Ino) (layout.Inode, error) {
	ind, err := v.inode(ino)
	if err == nil {
		err = notRegular(ind.Mode)
	}
	return ind, err
}

// notRegular is why an inode of this mode has no content, nil if it has.
func notRegular(mode uint32) error {
	switch {
	case isReg(mode):
		return nil
	case isDir(mode):
		return syscall.EISDIR
	}
	return syscall.EINVAL
}

// dir is the inode of a directory, ENOTDIR if it is something else.
func (v *Volume) dir(ino Ino) (layout.Inode, error) {
	ind, err := v.inode(ino)
	if err == nil && !isDir(ind.Mode) {
		err = syscall.ENOTDIR
	}
	return ind, err
}

// storeInode changes the inode in tree and group from was to is: only the bytes between the first and the last that
// differ.
func (v *Volume) storeInode(ino Ino, was, is *layout.Inode) {
	var a, b [layout.InodeSize]byte
	was.Encode(a[:])
	is.Encode(b[:])
	lo, hi := 0, len(a)
	for lo < hi && a[lo] == b[lo] {
		lo++
	}
	for hi > lo && a[hi-1] == b[hi-1] {
		hi--
	}
	if lo < hi {
		v.patch(inodeKey(ino), lo, b[lo:hi])
	}
}

// update changes the inode at once: in tree and group, and in memory.
func (v *Volume) update(ino Ino, fn func(ind *layout.Inode)) {
	was, err := v.stored(ino)
	if err != nil {
		v.stop(err)
		return
	}
	is := was
	fn(&is)
	v.storeInode(ino, &was, &is)
	if f := v.files[ino]; f != nil {
		fn(&f.ind)
	}
}

func attrOf(ino Ino, ind *layout.Inode) Attr {
	return Attr{
		Ino: ino, Mode: ind.Mode, Nlink: ind.Nlink, UID: ind.UID, GID: ind.GID, Rdev: ind.Rdev, Flags: ind.Flags,
		Size: ind.Size, Blocks: ind.Blocks * (layout.BlockSize / 512),
		Atime: Time(ind.Atime), Mtime: Time(ind.Mtime), Ctime: Time(ind.Ctime), Btime: Time(ind.Btime),
	}
}

func (v *Volume) attr(ino Ino) (Attr, error) {
	ind, err := v.inode(ino)
	if err != nil {
		return Attr{}, err
	}
	return attrOf(ino, &ind), nil
}

// GetAttr is stat(2). Errors: ESTALE.
func (v *Volume) GetAttr(ino Ino) (a Attr, err error) {
	err = v.view(func() error {
		a, err = v.attr(ino)
		return err
	})
	return a, err
}

// SetAttr changes attributes, and the size of a file. The new size and the new attributes are one step. Errors: ESTALE,
// EPERM (see FlagImmutable), EISDIR and EINVAL for a size of what is no file, EFBIG, ErrShort.
func (v *Volume) SetAttr(ino Ino, s SetAttr) (a Attr, err error) {
	err = v.change(func() error {
		a, err = v.setAttr(ino, s)
		return err
	})
	return a, err
}

func (v *Volume) setAttr(ino Ino, s SetAttr) (Attr, error) {
	ind, err := v.inode(ino)
	if err != nil {
		return Attr{}, err
	}
	if err := s.maySet(&ind); err != nil {
		return Attr{}, err
	}
	if s.Valid&SetMode != 0 {
		if err := v.chmodACL(ino, ind.Mode, s.Mode); err != nil {
			return Attr{}, err
		}
	}
	if s.Valid&SetSize == 0 {
		if err := v.admit(cost{1, inodeBytes}, false); err != nil {
			return Attr{}, err
		}
		v.applyAttr(ino, s)
		return v.attr(ino)
	}
	if err := notRegular(ind.Mode); err != nil {
		return Attr{}, err
	}
	if s.Size > MaxSize {
		return Attr{}, syscall.EFBIG
	}
	if err := v.resize(ino, s); err != nil {
		return Attr{}, err
	}
	return v.attr(ino)
}

// applyAttr applies all of s but the size. It was admitted.
func (v *Volume) applyAttr(ino Ino, s SetAttr) {
	now := v.now()
	v.update(ino, func(ind *layout.Inode) { s.apply(ind, now) })
}

func (s *SetAttr) apply(ind *layout.Inode, now layout.Time) {
	has := func(bit uint32) bool { return s.Valid&bit != 0 }
	if has(SetMode) {
		ind.Mode = ind.Mode&syscall.S_IFMT | s.Mode&07777
	}
	if has(SetUID) {
		ind.UID = s.UID
	}
	if has(SetGID) {
		ind.GID = s.GID
	}
	if has(KillPriv) {
		ind.Mode = withoutPriv(ind.Mode)
	}
	if has(SetAtime) {
		ind.Atime = normal(s.Atime)
	}
	if has(SetAtimeNow) {
		ind.Atime = now
	}
	if has(SetMtime) {
		ind.Mtime = normal(s.Mtime)
	}
	if has(SetMtimeNow|SetSize) && !has(SetMtime) {
		ind.Mtime = now
	}
	ind.Ctime = now
	if has(SetCtime) {
		ind.Ctime = normal(s.Ctime)
	}
}

// normal is t with nanoseconds below one second, as the format wants them.
func normal(t Time) layout.Time {
	const second = 1_000_000_000
	return layout.Time{Sec: t.Sec + int64(t.Nsec/second), Nsec: t.Nsec % second}
}

// withoutPriv is a mode without set-user-id, and without set-group-id if the group may execute (without that bit it means
// mandatory locking and is no privilege). Directories keep theirs.
func withoutPriv(mode uint32) uint32 {
	if isDir(mode) {
		return mode
	}
	mode &^= syscall.S_ISUID
	if mode&syscall.S_IXGRP != 0 {
		mode &^= syscall.S_ISGID
	}
	return mode
}
