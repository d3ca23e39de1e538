package volume

import "syscall"

// Tmpfile creates a regular file without a name, as open(2) does with O_TMPFILE. It is held once, for the caller to Forget,
// and an orphan from the start: unless Link gives it a name it goes with its last hold, or with a crash. Owner and mode are
// as if it were made in dir. Errors: EINVAL (no regular file), EPERM
// (see FlagImmutable), ENOENT, ENOTDIR, ESTALE, ErrShort.
func (v *Volume) Tmpfile(dir Ino, m Make) (a Attr, err error) {
	err = v.change(func() error {
		a, err = v.tmpfile(dir, m)
		return err
	})
	return a, err
}

func (v *Volume) tmpfile(dir Ino, m Make) (Attr, error) {
	parent, err := v.dir(dir)
	switch {
	case err != nil:
		return Attr{}, err
	case parent.Nlink == 0:
		return Attr{}, syscall.ENOENT
	case !isReg(m.Mode) || m.Target != "":
		return Attr{}, syscall.EINVAL
	}
	if err := unprotected(&parent, FlagImmutable); err != nil {
		return Attr{}, err
	}
	var h inherited
	if err := v.prepareMake(&h, dir, &m); err != nil {
		return Attr{}, err
	}
	ind := v.newInode(&parent, &h, dir, m)
	ind.Nlink = 0
	ino := v.addInode(&ind, &h, "")
	v.orphan(ino, 0)
	v.unnamed[ino] = true
	v.holds.add(ino)
	return attrOf(ino, &ind), nil
}

// adopt makes ino, which is about to get its first name, an orphan no more, unless a truncation of it is not finished.
func (v *Volume) adopt(ino Ino) {
	delete(v.unnamed, ino)
	if from, trimming := v.trims[ino]; trimming {
		v.orphan(ino, from)
	} else {
		v.remove(orphanKey(ino))
	}
}
