package volume

import (
	"strings"
	"syscall"
)

func (f *fuzzer) make(d *mnode, name string) {
	typ := pick(f.rnd, []uint32{syscall.S_IFREG, syscall.S_IFREG, syscall.S_IFDIR, syscall.S_IFLNK, syscall.S_IFIFO})
	m := Make{Mode: typ | uint32(f.rnd.IntN(0777)), UID: uint32(f.rnd.IntN(9))}
	if typ == syscall.S_IFLNK {
		m.Target = strings.Repeat("t", 1+f.rnd.IntN(700))
	}
	m.Umask = uint32(f.rnd.IntN(0777))
	f.op("make %d %q %o %o", d.ino, name, m.Mode, m.Umask)
	a, err := f.v.Make(d.ino, name, m)
	if d.names[name] != nil {
		f.expect(err, syscall.EEXIST)
		return
	}
	f.expect(err, nil)
	n := &mnode{ino: a.Ino, mode: m.Mode, uid: m.UID, nlink: 1, target: m.Target, parent: d, xattrs: make(map[string]string)}
	if n.dir() {
		n.nlink, n.names = 2, make(map[string]*mnode)
		d.nlink++
	}
	n.inherit(d, m)
	d.names[name] = n
	f.life[n.ino] = n
}

func (f *fuzzer) drop(n *mnode) {
	n.nlink--
	if n.dir() {
		n.nlink = 0
	}
}

func (f *fuzzer) unlink(d *mnode, name string) {
	f.op("unlink %d %q", d.ino, name)
	err := f.v.Unlink(d.ino, name)
	n := d.names[name]
	switch {
	case n == nil:
		f.expect(err, syscall.ENOENT)
	case n.dir():
		f.expect(err, syscall.EISDIR)
	default:
		f.expect(err, nil)
		delete(d.names, name)
		f.drop(n)
	}
}

func (f *fuzzer) rmdir(d *mnode, name string) {
	f.op("rmdir %d %q", d.ino, name)
	err := f.v.Rmdir(d.ino, name)
	n := d.names[name]
	switch {
	case n == nil:
		f.expect(err, syscall.ENOENT)
	case !n.dir():
		f.expect(err, syscall.ENOTDIR)
	case len(n.names) > 0:
		f.expect(err, syscall.ENOTEMPTY)
	default:
		f.expect(err, nil)
		delete(d.names, name)
		f.drop(n)
		d.nlink--
	}
}

// whiteout stands for RenameWhiteout among the flags of rename.
const whiteout = 4

// above tells whether n is dir or above it.
func (f *fuzzer) above(n, dir *mnode) bool {
	for n.dir() {
		if dir == n {
			return true
		}
		if dir == f.root {
			break
		}
		dir = dir.parent
	}
	return false
}

func (f *fuzzer) rename(d *mnode, name string, to *mnode, newname string, flags uint32) {
	f.op("rename %d %q %d %q %d", d.ino, name, to.ino, newname, flags)
	var err error
	if flags == whiteout {
		err = f.v.RenameWhiteout(d.ino, name, to.ino, newname, 0, 7, 0)
	} else {
		err = f.v.Rename(d.ino, name, to.ino, newname, flags)
	}
	n, target := d.names[name], to.names[newname]
	switch {
	case n == nil || flags == RenameExchange && target == nil && !f.above(n, to):
		f.expect(err, syscall.ENOENT)
	case f.above(n, to) || flags == RenameExchange && f.above(target, d):
		f.expect(err, syscall.EINVAL)
	case target != nil && flags == RenameNoReplace:
		f.expect(err, syscall.EEXIST)
	case target == n:
		f.expect(err, nil)
	case flags == RenameExchange:
		f.expect(err, nil)
		f.place(n, d, to, newname)
		f.place(target, to, d, name)
		n.flush()
		target.flush()
	case target != nil && target.dir() && !n.dir():
		f.expect(err, syscall.EISDIR)
	case target != nil && n.dir() && !target.dir():
		f.expect(err, syscall.ENOTDIR)
	case target != nil && len(target.names) > 0:
		f.expect(err, syscall.ENOTEMPTY)
	default:
		f.expect(err, nil)
		f.replace(d, name, to, newname)
		if flags == whiteout {
			f.whiteout(d, name)
		}
	}
}

// place makes a name in to of what d has named so far.
func (f *fuzzer) place(n, d, to *mnode, newname string) {
	if n.dir() {
		d.nlink--
		to.nlink++
		n.parent = to
	}
	to.names[newname] = n
}

func (f *fuzzer) replace(d *mnode, name string, to *mnode, newname string) {
	n, target := d.names[name], to.names[newname]
	delete(d.names, name)
	f.place(n, d, to, newname)
	if target != nil {
		if target.dir() {
			to.nlink--
		}
		f.drop(target)
		n.flush()
	}
}

// whiteout adds what a rename left to the model.
func (f *fuzzer) whiteout(d *mnode, name string) {
	a, err := f.v.Lookup(d.ino, name)
	f.expect(err, nil)
	d.names[name] = &mnode{ino: a.Ino, mode: syscall.S_IFCHR, uid: 7, nlink: 1, parent: d, xattrs: make(map[string]string)}
	f.life[a.Ino] = d.names[name]
}

func (f *fuzzer) link(n, d *mnode, name string) {
	f.op("link %d %d %q", n.ino, d.ino, name)
	_, err := f.v.Link(n.ino, d.ino, name)
	switch {
	case d.names[name] != nil:
		f.expect(err, syscall.EEXIST)
	case n.nlink == 0 && !n.unnamed:
		f.expect(err, syscall.ENOENT)
	default:
		f.expect(err, nil)
		d.names[name] = n
		n.nlink++
		n.unnamed = false
	}
}

func (f *fuzzer) tmpfile(d *mnode) {
	f.op("tmpfile %d", d.ino)
	m := Make{Mode: syscall.S_IFREG | uint32(f.rnd.IntN(0777)), UID: 3, Umask: 022}
	a, err := f.v.Tmpfile(d.ino, m)
	f.expect(err, nil)
	n := &mnode{ino: a.Ino, mode: m.Mode, uid: 3, held: true, unnamed: true, xattrs: make(map[string]string)}
	n.inherit(d, m)
	f.held = append(f.held, n)
	f.life[n.ino] = n
}
