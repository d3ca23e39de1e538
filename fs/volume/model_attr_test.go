package volume

import (
	"bytes"
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
)

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
