package volume

import (
	"fmt"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Access control lists are extended attributes with rules (acl(5)): an access ACL and the permission bits of the mode always
// say the same, and what is made in a directory with a default ACL inherits that. Who may do what is decided elsewhere.

func isACL(name string) bool { return name == posixacl.Access || name == posixacl.Default }

// acl reads an ACL, nil if there is none. Uses Volume.block.
func (v *Volume) acl(ino Ino, name string) (posixacl.ACL, error) {
	_, x, ok := v.findXattr(ino, name)
	if !ok {
		return nil, nil
	}
	acl, err := v.decodeACL(&x, v.block[:])
	if err != nil {
		return nil, fmt.Errorf("%s of inode %d: %w", name, ino, err)
	}
	return acl, nil
}

// decodeACL decodes the value of an attribute. A large one is read into buf, a block.
func (v *Volume) decodeACL(x *layout.Xattr, buf []byte) (posixacl.ACL, error) {
	b := x.Data
	if r, ok := x.Run(); ok && x.Vlen <= posixacl.MaxSize {
		if err := pmem.CopyOut(buf, v.bytes[r.Pblk*layout.BlockSize:][:x.Vlen]); err != nil {
			return nil, err
		}
		b = buf[:x.Vlen]
	}
	acl, err := posixacl.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return acl, nil
}

// setACL is SetXattr of an ACL.
func (v *Volume) setACL(ino Ino, ind *layout.Inode, name string, value []byte, flags uint32) error {
	if len(value) > posixacl.MaxSize {
		return syscall.E2BIG
	}
	acl, err := posixacl.Decode(value)
	switch {
	case err != nil:
		return syscall.EINVAL
	case ind.Mode&syscall.S_IFMT == syscall.S_IFLNK:
		return syscall.EOPNOTSUPP
	case name == posixacl.Default && !isDir(ind.Mode):
		return syscall.EACCES
	case name == posixacl.Default:
		return v.setXattr(ino, name, value, flags, ind.Mode)
	}
	mode := acl.Mode(ind.Mode)
	if flags&XattrKillSGID != 0 {
		mode &^= syscall.S_ISGID
	}
	if !acl.Minimal() {
		return v.setXattr(ino, name, value, flags, mode)
	}
	if err := v.admit(v.xattrCost(), false); err != nil {
		return err
	}
	if _, _, ok := v.findXattr(ino, name); ok {
		v.changeXattr(ino, name, nil, mode)
		return nil
	}
	now := v.now()
	v.update(ino, func(ind *layout.Inode) { ind.Mode, ind.Ctime = mode, now })
	return nil
}

// chmodACL makes the access ACL say what mode says, together with the mode of the inode.
func (v *Volume) chmodACL(ino Ino, was, mode uint32) error {
	acl, err := v.acl(ino, posixacl.Access)
	if acl == nil {
		return err
	}
	acl.Chmod(mode)
	c := v.xattrCost().plus(cost{1, inodeBytes})
	if err := v.admit(c, false); err != nil {
		return err
	}
	var x newXattr
	if err := v.prepareXattr(&x, ino, posixacl.Access, acl.Append(nil), c.edits); err != nil {
		return err
	}
	v.changeXattr(ino, posixacl.Access, &x, was&syscall.S_IFMT|mode&07777)
	return nil
}

// inherited is what a new inode gets from its directory.
type inherited struct {
	mode  uint32
	attrs [2]struct { // those with a name
		name  string
		value []byte
		newXattr
	}
	n int
}

func (h *inherited) add(name string, acl posixacl.ACL) {
	h.attrs[h.n].name, h.attrs[h.n].value = name, acl.Append(nil)
	h.n++
}

// inherit finds what an inode gets that is made in dir: a default ACL there sets the bounds of its mode, else the umask does.
func (v *Volume) inherit(h *inherited, dir Ino, m *Make) error {
	h.mode = m.Mode
	if m.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return nil
	}
	acl, err := v.acl(dir, posixacl.Default)
	if err != nil {
		return err
	}
	if acl == nil {
		h.mode &^= m.Umask & 0777
		return nil
	}
	if isDir(m.Mode) {
		h.add(posixacl.Default, acl)
	}
	h.mode = acl.Create(m.Mode)
	if !acl.Minimal() {
		h.add(posixacl.Access, acl)
	}
	return nil
}

// cost is what putting the attributes takes.
func (h *inherited) cost(v *Volume) cost { return cost{h.n, h.n * (opPut + v.limits.value)} }

// prepare makes the attributes ready to be put, and leaves nodes for so many edits. When it fails, nothing of them is left.
func (h *inherited) prepare(v *Volume, edits int) error {
	for i := range h.attrs[:h.n] {
		a := &h.attrs[i]
		if err := v.prepareXattr(&a.newXattr, v.nextIno, a.name, a.value, edits); err != nil {
			for j := range h.attrs[:i] {
				v.abandonXattr(&h.attrs[j].newXattr)
			}
			return err
		}
	}
	return nil
}

// put gives the attributes to ino, whose Blocks count them already.
func (h *inherited) put(v *Volume, ino Ino) {
	for i := range h.attrs[:h.n] {
		v.putXattr(ino, h.attrs[i].name, &h.attrs[i].newXattr)
	}
}

func (h *inherited) blocks() uint64 { return h.attrs[0].blocks.n + h.attrs[1].blocks.n }
