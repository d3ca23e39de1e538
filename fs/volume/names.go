package volume

import (
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Cookies of the two entries that every directory has and no list holds. Those of names are hash << indexBits | index,
// and no hash is 0.
const (
	cookieDot    = 1
	cookieDotDot = 2
	indexBits    = 7
)

// checkName refuses what is no name: EINVAL, ENAMETOOLONG. A name is any bytes but '/' and NUL.
func checkName(name string) error {
	switch {
	case name == "" || strings.IndexByte(name, '/') >= 0 || strings.IndexByte(name, 0) >= 0:
		return syscall.EINVAL
	case len(name) > MaxName:
		return syscall.ENAMETOOLONG
	}
	return nil
}

func isDot(name string) bool { return name == "." || name == ".." }

func (v *Volume) direntKey(dir Ino, name string) layout.Key {
	return layout.MakeKey(dir, layout.TypeDirent, layout.Hash56(v.super.HashKey, name))
}

// find looks a name up in a directory, ENOENT if it is not there. typ is mode >> 12.
func (v *Volume) find(dir Ino, name string) (ino Ino, typ uint8, err error) {
	list, _ := v.tree.Get(v.direntKey(dir, name))
	ino, typ, _, ok := layout.FindDirent(list, name)
	if !ok {
		return 0, 0, syscall.ENOENT
	}
	return ino, typ, nil
}

// fits tells whether a name can be added: all names with its hash share one value. It is ENOSPC otherwise, which takes
// several long names with the same hash.
func (v *Volume) fits(dir Ino, name string) error {
	list, _ := v.tree.Get(v.direntKey(dir, name))
	if len(list)+layout.DirentHeader+len(name) > v.limits.value {
		return syscall.ENOSPC
	}
	return nil
}

// setName adds a name, or makes it name something else.
func (v *Volume) setName(dir Ino, name string, ino Ino, typ uint8) {
	k := v.direntKey(dir, name)
	list, _ := v.tree.Get(k)
	v.value = layout.AddDirent(v.value[:0], list, ino, typ, name)
	v.put(k, v.value)
}

func (v *Volume) removeName(dir Ino, name string) {
	k := v.direntKey(dir, name)
	list, _ := v.tree.Get(k)
	v.value = layout.RemoveDirent(v.value[:0], list, name)
	if len(v.value) == 0 {
		v.remove(k)
	} else {
		v.put(k, v.value)
	}
}

// emptyDir tells whether a directory has no names.
func (v *Volume) emptyDir(dir Ino) bool {
	empty := true
	v.tree.Ascend(layout.MakeKey(dir, layout.TypeDirent, 0), layout.MakeKey(dir, layout.TypeExtent, 0),
		func(layout.Key, []byte) bool {
			empty = false
			return false
		})
	return empty
}

// Lookup finds a name, "." and ".." too. Errors: ENOENT, ENOTDIR, EINVAL, ENAMETOOLONG, ESTALE.
func (v *Volume) Lookup(dir Ino, name string) (a Attr, err error) {
	err = v.view(func() error {
		a, err = v.lookup(dir, name)
		return err
	})
	return a, err
}

func (v *Volume) lookup(dir Ino, name string) (Attr, error) {
	if err := checkName(name); err != nil {
		return Attr{}, err
	}
	if isDot(name) {
		return v.lookupDot(dir, name)
	}
	ino, _, err := v.find(dir, name)
	if err == nil { // so dir is a directory, and need not be looked at
		return v.attr(ino)
	}
	if _, why := v.dir(dir); why != nil {
		err = why
	}
	return Attr{}, err
}

func (v *Volume) lookupDot(dir Ino, name string) (Attr, error) {
	ind, err := v.dir(dir)
	if err != nil {
		return Attr{}, err
	}
	if name == "." {
		return attrOf(dir, &ind), nil
	}
	return v.attr(ind.Parent)
}

// ReadDir calls fn for the entries after the one with that cookie, 0 for all, until fn returns false. Fn must not call
// into the volume. An entry that is there from before the first call to after the last is met exactly once, whatever
// happens to others in between. Errors: ENOTDIR, ESTALE.
func (v *Volume) ReadDir(dir Ino, cookie uint64, fn func(DirEnt) bool) error {
	return v.view(func() error {
		ind, err := v.dir(dir)
		if err != nil {
			return err
		}
		if cookie < cookieDot && !fn(DirEnt{Ino: dir, Mode: syscall.S_IFDIR, Name: ".", Cookie: cookieDot}) {
			return nil
		}
		if cookie < cookieDotDot && !fn(DirEnt{Ino: ind.Parent, Mode: syscall.S_IFDIR, Name: "..", Cookie: cookieDotDot}) {
			return nil
		}
		return v.readNames(dir, cookie, fn)
	})
}

func (v *Volume) readNames(dir Ino, cookie uint64, fn func(DirEnt) bool) (err error) {
	from := layout.MakeKey(dir, layout.TypeDirent, cookie>>indexBits)
	more := true
	v.tree.Ascend(from, layout.MakeKey(dir, layout.TypeExtent, 0), func(k layout.Key, list []byte) bool {
		err = layout.EachDirent(list, func(index int, ino uint64, typ uint8, name []byte) bool {
			c := k.Sub()<<indexBits | uint64(index)
			if c > cookie {
				more = fn(DirEnt{Ino: ino, Mode: uint32(typ) << 12, Name: string(name), Cookie: c})
			}
			return more
		})
		return more && err == nil
	})
	return err
}
