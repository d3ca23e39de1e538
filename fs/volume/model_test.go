package volume

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
)

// The model: what a file system is, in maps. A node keeps beside its content what a crash would leave of it (flushed),
// and what was ever written to it, since bytes written in place may survive without a flush.
type mnode struct {
	ino           Ino
	mode, uid     uint32
	nlink         uint32
	data, flushed []byte
	at            int // number of writes at the flush
	writes        []mwrite
	target        string
	xattrs        map[string]string
	names         map[string]*mnode
	parent        *mnode
	held          bool
	unnamed       bool // and never had a name
}

type mwrite struct {
	off  int
	data []byte
}

func (n *mnode) dir() bool { return isDir(n.mode) }
func (n *mnode) reg() bool { return isReg(n.mode) }

func (n *mnode) flush() {
	n.flushed = bytes.Clone(n.data)
	n.at = len(n.writes)
}

// wrote tells whether this byte was written after the flush.
func (n *mnode) wrote(off int, c byte) bool {
	for _, w := range n.writes[n.at:] {
		if off >= w.off && off < w.off+len(w.data) && w.data[off-w.off] == c {
			return true
		}
	}
	return false
}

// snapshot is a copy of the tree below n as a crash would leave it. Writes are shared: those that come later count too.
func (n *mnode) snapshot(parent *mnode, done map[*mnode]*mnode) *mnode {
	if s := done[n]; s != nil {
		return s
	}
	s := *n
	done[n] = &s
	s.data, s.flushed = bytes.Clone(n.flushed), bytes.Clone(n.flushed)
	s.xattrs, s.names, s.parent, s.held = maps.Clone(n.xattrs), nil, parent, false
	if n.names != nil {
		s.names = make(map[string]*mnode)
		for name, c := range n.names {
			s.names[name] = c.snapshot(&s, done)
		}
	}
	return &s
}

type fuzzer struct {
	*rig
	rnd   *rand.Rand
	root  *mnode
	snaps map[uint64]*mnode // by group: what a crash then leaves
	life  map[Ino]*mnode    // every file there was since the last crash: what was written to it may be found after the next
	held  []*mnode
	log   []string
}

func newFuzzer(r *rig, rnd *rand.Rand) *fuzzer {
	f := &fuzzer{rig: r, rnd: rnd}
	f.root = &mnode{ino: Root, mode: syscall.S_IFDIR | 0755, nlink: 2, names: make(map[string]*mnode)}
	f.root.parent = f.root
	f.keepOnly(0)
	return f
}

// keepOnly starts a life: only its first state can be recovered to.
func (f *fuzzer) keepOnly(lsn uint64) {
	f.life = make(map[Ino]*mnode)
	for _, n := range f.nodes((*mnode).reg) {
		n.flush()
		f.life[n.ino] = n
	}
	f.snaps = map[uint64]*mnode{lsn: f.root.snapshot(nil, make(map[*mnode]*mnode))}
}

func (f *fuzzer) op(format string, args ...any) { f.log = append(f.log, fmt.Sprintf(format, args...)) }

// dirs and files list the nodes that have a name.
func (f *fuzzer) nodes(want func(*mnode) bool) (out []*mnode) {
	seen := make(map[*mnode]bool)
	var walk func(n *mnode)
	walk = func(n *mnode) {
		if !seen[n] && want(n) {
			out = append(out, n)
		}
		seen[n] = true
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			walk(n.names[name])
		}
	}
	walk(f.root)
	return out
}

func pick[T any](rnd *rand.Rand, s []T) T { return s[rnd.IntN(len(s))] }

func (f *fuzzer) name() string {
	names := []string{"a", "b", "c", "d", "e", strings.Repeat("long", 60), "ü\xff\x01"}
	return pick(f.rnd, names)
}

// expect compares an errno with what the model says.
func (f *fuzzer) expect(err, errno error) bool {
	f.t.Helper()
	if (errno == nil) != (err == nil) || errno != nil && err != errno {
		f.fatal("%v, expected %v", err, errno)
	}
	return err == nil
}

func (f *fuzzer) fatal(format string, args ...any) {
	f.t.Helper()
	for _, l := range f.log[max(0, len(f.log)-400):] {
		f.t.Log(l)
	}
	f.t.Fatalf(format, args...)
}

func (f *fuzzer) random() {
	dirs, regs := f.nodes((*mnode).dir), f.nodes((*mnode).reg)
	for _, h := range f.held {
		if h.nlink == 0 && h.reg() {
			regs = append(regs, h)
		}
	}
	d, name := pick(f.rnd, dirs), f.name()
	switch k := f.rnd.IntN(100); {
	case k < 12:
		f.make(d, name)
	case k < 18:
		f.unlink(d, name)
	case k < 22:
		f.rmdir(d, name)
	case k < 30:
		f.rename(d, name, pick(f.rnd, dirs), f.name(), pick(f.rnd, []uint32{0, 0, RenameNoReplace, RenameExchange, whiteout}))
	case k < 79 && len(regs) == 0:
	case k < 34:
		f.link(pick(f.rnd, regs), d, name)
	case k < 54:
		f.write(pick(f.rnd, regs))
	case k < 62:
		f.truncate(pick(f.rnd, regs))
	case k < 66:
		f.fallocate(pick(f.rnd, regs))
	case k < 67:
		f.setACL(pick(f.rnd, append(dirs, regs...)))
	case k < 70:
		f.xattr(pick(f.rnd, append(dirs, regs...)))
	case k < 73:
		f.chmod(pick(f.rnd, append(dirs, regs...)))
	case k < 76:
		f.hold(pick(f.rnd, append(dirs, regs...)))
	case k < 79:
		f.flush(pick(f.rnd, regs))
	case k < 80:
		f.tmpfile(d)
	case k < 83:
		if len(f.held) > 0 {
			i := f.rnd.IntN(len(f.held))
			f.held[i].held = false
			f.v.Forget(f.held[i].ino, 1)
			f.held = slices.Delete(f.held, i, i+1)
		}
	case k < 85:
		f.op("reclaim")
		if _, err := f.v.Reclaim(); err != nil {
			f.fatal("reclaim: %v", err)
		}
	case k < 92:
		f.close()
	case k < 95:
		f.epoch()
	default:
		f.op("step")
		f.step()
	}
}

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

// offset is one that likes the borders of blocks and the end of the file.
func (f *fuzzer) offset(n *mnode) int {
	base := pick(f.rnd, []int{0, len(n.data), 4096, 8192, 40960, 65536})
	return max(0, base+pick(f.rnd, []int{0, 0, 1, -1, 100, -100, f.rnd.IntN(9000)}))
}

func (f *fuzzer) write(n *mnode) {
	off, size := f.offset(n), pick(f.rnd, []int{1, 64, 4095, 4096, 4097, 1 + f.rnd.IntN(20000)})
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(f.rnd.Uint32()) | 1
	}
	f.op("write %d %d+%d", n.ino, off, size)
	f.rig.write(n.ino, uint64(off), data)
	if grow := off + size - len(n.data); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	copy(n.data[off:], data)
	n.writes = append(n.writes, mwrite{off, data})
}

func (f *fuzzer) truncate(n *mnode) {
	size := f.offset(n)
	f.op("truncate %d %d", n.ino, size)
	f.rig.truncate(n.ino, uint64(size))
	if size <= len(n.data) {
		n.data = n.data[:size:size]
	} else {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
	n.flush()
}

func (f *fuzzer) fallocate(n *mnode) {
	off, size := f.offset(n), 1+f.rnd.IntN(50000)
	mode := pick(f.rnd, []string{"", "keep", "punch", "punch", "zero", "zero keep"})
	f.op("fallocate %q %d %d+%d", mode, n.ino, off, size)
	var err error
	switch mode {
	case "":
		err = f.v.Fallocate(n.ino, uint64(off), uint64(size))
	case "keep":
		err = f.v.Preallocate(n.ino, uint64(off), uint64(size))
	case "punch":
		err = f.v.PunchHole(n.ino, uint64(off), uint64(size))
	default:
		err = f.v.ZeroRange(n.ino, uint64(off), uint64(size), mode == "zero keep")
	}
	f.expect(err, nil)
	if grow := off + size - len(n.data); grow > 0 && (mode == "" || mode == "zero") {
		n.data = append(n.data, make([]byte, grow)...)
	}
	if strings.HasPrefix(mode, "punch") || strings.HasPrefix(mode, "zero") {
		clear(n.data[min(off, len(n.data)):min(off+size, len(n.data))])
	}
	n.flush()
}

func (f *fuzzer) xattr(n *mnode) {
	name := "user." + pick(f.rnd, []string{"a", "b", "long" + strings.Repeat("x", 200)})
	if n.xattrs == nil {
		n.xattrs = make(map[string]string)
	}
	if _, has := n.xattrs[name]; has && f.rnd.IntN(2) == 0 {
		f.op("removexattr %d %q", n.ino, name)
		f.expect(f.v.RemoveXattr(n.ino, name), nil)
		delete(n.xattrs, name)
		return
	}
	value := pattern(pick(f.rnd, []int{0, 1, 256, 257, 5000, 65536}), byte(f.rnd.Uint32()))
	f.op("setxattr %d %q %d", n.ino, name, len(value))
	f.expect(f.v.SetXattr(n.ino, name, value, 0), nil)
	n.xattrs[name] = string(value)
}

func (f *fuzzer) chmod(n *mnode) {
	mode := uint32(f.rnd.IntN(0777))
	f.op("chmod %d %o", n.ino, mode)
	_, err := f.v.SetAttr(n.ino, SetAttr{Valid: SetMode, Mode: mode})
	f.expect(err, nil)
	n.mode = n.mode&syscall.S_IFMT | mode
	if acl := n.acl(posixacl.Access); acl != nil {
		acl.Chmod(mode)
		n.xattrs[posixacl.Access] = string(acl.Append(nil))
	}
}

// setACL sets or removes an ACL.
func (f *fuzzer) setACL(n *mnode) {
	name := posixacl.Access
	if n.dir() && f.rnd.IntN(2) == 0 {
		name = posixacl.Default
	}
	if n.xattrs == nil {
		n.xattrs = make(map[string]string)
	}
	if f.rnd.IntN(4) == 0 {
		f.op("removexattr %d %s", n.ino, name)
		f.expect(f.v.RemoveXattr(n.ino, name), nil)
		delete(n.xattrs, name)
		return
	}
	perm := func() uint16 { return uint16(f.rnd.IntN(8)) }
	acl := posixacl.ACL{{Tag: posixacl.UserObj, Perm: perm(), ID: 1<<32 - 1}}
	users := pick(f.rnd, []int{0, 1, 3, 40})
	for i := range users {
		acl = append(acl, posixacl.Entry{Tag: posixacl.User, Perm: perm(), ID: uint32(i)})
	}
	acl = append(acl, posixacl.Entry{Tag: posixacl.GroupObj, Perm: perm(), ID: 1<<32 - 1})
	if users > 0 {
		acl = append(acl, posixacl.Entry{Tag: posixacl.Mask, Perm: perm(), ID: 1<<32 - 1})
	}
	acl = append(acl, posixacl.Entry{Tag: posixacl.Other, Perm: perm(), ID: 1<<32 - 1})
	f.op("setxattr %d %s, %d entries", n.ino, name, len(acl))
	f.expect(f.v.SetXattr(n.ino, name, acl.Append(nil), 0), nil)
	n.xattrs[name] = string(acl.Append(nil))
	if name == posixacl.Access {
		n.mode = acl.Mode(n.mode)
		if acl.Minimal() {
			delete(n.xattrs, name)
		}
	}
}

func (n *mnode) acl(name string) posixacl.ACL {
	acl, err := posixacl.Decode([]byte(n.xattrs[name]))
	if err != nil {
		return nil
	}
	return acl
}

// inherit applies the rules for what is made in d.
func (n *mnode) inherit(d *mnode, m Make) {
	acl := d.acl(posixacl.Default)
	switch {
	case m.Target != "":
	case acl == nil:
		n.mode &^= m.Umask
	default:
		if n.dir() {
			n.xattrs[posixacl.Default] = d.xattrs[posixacl.Default]
		}
		if n.mode = acl.Create(m.Mode); !acl.Minimal() {
			n.xattrs[posixacl.Access] = string(acl.Append(nil))
		}
	}
}

func (f *fuzzer) hold(n *mnode) {
	if n.held {
		return
	}
	f.op("hold %d", n.ino)
	f.v.Hold(n.ino)
	n.held = true
	f.held = append(f.held, n)
}

func (f *fuzzer) flush(n *mnode) {
	f.op("flush %d", n.ino)
	if _, err := f.v.FlushFile(n.ino); err != nil {
		f.fatal("flush: %v", err)
	}
	n.flush()
}

func (f *fuzzer) close() {
	if f.rnd.IntN(3) == 0 {
		f.op("flush all")
		if _, err := f.v.FlushAll(); err != nil {
			f.fatal("flush: %v", err)
		}
		for _, n := range append(f.nodes((*mnode).reg), f.held...) {
			n.flush()
		}
	}
	f.op("close group")
	if _, err := f.v.CloseGroup(); err != nil {
		f.fatal("close: %v", err)
	}
	f.closed()
}

func (f *fuzzer) closed() {
	if lsn := f.v.LSN(); f.snaps[lsn] == nil {
		f.snaps[lsn] = f.root.snapshot(nil, make(map[*mnode]*mnode))
	}
}

func (f *fuzzer) epoch() {
	f.op("close epoch")
	if _, err := f.v.CloseEpoch(); err != nil {
		f.fatal("epoch: %v", err)
	}
	f.closed()
}

// compare tests the whole volume against a model. exact: content must be equal; else bytes written after the flush count
// as well, and the model takes over what it finds.
func (f *fuzzer) compare(n *mnode, exact bool, links map[Ino]*mnode) {
	f.t.Helper()
	if links[n.ino] != nil {
		return
	}
	links[n.ino] = n
	a := f.rig.attr(n.ino)
	if a.Mode != n.mode || a.Nlink != n.nlink || a.UID != n.uid && n.ino != Root {
		f.fatal("inode %d: mode %o links %d uid %d, expected %o %d %d", n.ino, a.Mode, a.Nlink, a.UID, n.mode, n.nlink, n.uid)
	}
	f.compareXattrs(n)
	switch {
	case n.dir():
		f.compareNames(n, exact, links)
	case n.reg():
		f.compareData(n, exact)
	case n.target != "":
		if got, err := f.v.Readlink(n.ino); got != n.target || err != nil {
			f.fatal("inode %d: target differs: %v", n.ino, err)
		}
	}
}

func (f *fuzzer) compareNames(n *mnode, exact bool, links map[Ino]*mnode) {
	f.t.Helper()
	if got, want := f.names(n.ino), slices.Sorted(maps.Keys(n.names)); !slices.Equal(got, want) {
		f.fatal("directory %d: names %q, expected %q", n.ino, got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		c := n.names[name]
		if a, err := f.v.Lookup(n.ino, name); err != nil || a.Ino != c.ino {
			f.fatal("lookup %q in %d: inode %d, %v, expected %d", name, n.ino, a.Ino, err, c.ino)
		}
		f.compare(c, exact, links)
	}
}

func (f *fuzzer) compareData(n *mnode, exact bool) {
	f.t.Helper()
	got := f.content(n.ino)
	if len(got) != len(n.data) {
		f.fatal("inode %d has %d bytes, expected %d", n.ino, len(got), len(n.data))
	}
	for i := range got {
		if got[i] != n.data[i] && (exact || !n.wrote(i, got[i])) {
			f.fatal("inode %d: byte %d of %d is %#x, expected %#x", n.ino, i, len(got), got[i], n.data[i])
		}
	}
	n.data = got
	f.compareSpans(n)
}

// compareSpans tests that what is called a hole reads as zeros, and that spans take turns up to the end.
func (f *fuzzer) compareSpans(n *mnode) {
	f.t.Helper()
	last := false
	for off := 0; off < len(n.data); {
		data, end, err := f.v.Span(n.ino, uint64(off))
		if err != nil || int(end) <= off || int(end) > len(n.data) || off > 0 && data == last {
			f.fatal("inode %d: span at %d of %d ends at %d, data %v, %v", n.ino, off, len(n.data), end, data, err)
		}
		if !data && !allZero(n.data[off:end]) {
			f.fatal("inode %d: bytes %d to %d are called a hole", n.ino, off, end)
		}
		off, last = int(end), data
	}
}

func (f *fuzzer) compareXattrs(n *mnode) {
	f.t.Helper()
	size, err := f.v.ListXattr(n.ino, nil)
	list := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.v.ListXattr(n.ino, list)
	}
	if err != nil || bytes.Count(list, []byte{0}) != len(n.xattrs) {
		f.fatal("inode %d: attributes %q, %v, expected %d", n.ino, list, err, len(n.xattrs))
	}
	for name, value := range n.xattrs {
		b := make([]byte, 65536)
		if k, err := f.v.GetXattr(n.ino, name, b); err != nil || string(b[:k]) != value {
			f.fatal("inode %d: attribute %q: %v", n.ino, name, err)
		}
	}
}

// crashed opens what a crash may leave and compares it with the state of the group that it recovered to.
func (f *fuzzer) crashed(keep float64) {
	f.t.Helper()
	f.op("crash keeping %.1f", keep)
	f.crash(f.rnd, keep)
	s := f.snaps[f.rec.LSN]
	if s == nil {
		f.fatal("recovered to group %d, which never was closed", f.rec.LSN)
	}
	f.root, f.held = s, nil
	s.parent = s
	for _, n := range f.nodes((*mnode).reg) {
		n.writes = f.life[n.ino].writes
	}
	f.compare(s, false, make(map[Ino]*mnode))
	f.keepOnly(f.rec.LSN)
}

func TestRandomAgainstModel(t *testing.T) {
	rnd := random(t)
	const rounds, ops = 30, 150
	r := newRig(t, 16<<20, Params{NodeSize: pick(rnd, []uint32{1024, 2048, 4096}), LogLen: 2 << 20})
	f := newFuzzer(r, rnd)
	for range rounds {
		for range 1 + rnd.IntN(ops) {
			f.random()
		}
		f.compare(f.root, true, make(map[Ino]*mnode))
		f.check()
		if f.rnd.IntN(4) > 0 {
			f.crashed(pick(rnd, []float64{0, 1, 0.5, 0.1, 0.9}))
		}
	}
}
