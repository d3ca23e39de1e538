package volume

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
)

func TestACL_Errors(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	v := r.v
	f := r.file("f")
	link, err := v.Make(Root, "l", Make{Mode: syscall.S_IFLNK, Target: "f"})
	if err != nil {
		t.Fatal(err)
	}
	acl := manyEntries(3)
	for _, c := range []struct {
		what  string
		err   error
		errno error
	}{
		{"no list", v.SetXattr(f, posixacl.Access, nil, 0), syscall.EINVAL},
		{"cut list", v.SetXattr(f, posixacl.Access, acl[:len(acl)-8], 0), syscall.EINVAL},
		{"long list", v.SetXattr(f, posixacl.Access, manyEntries(600), 0), syscall.E2BIG},
		{"of a symlink", v.SetXattr(link.Ino, posixacl.Access, acl, 0), syscall.EOPNOTSUPP},
		{"default of a file", v.SetXattr(f, posixacl.Default, acl, 0), syscall.EACCES},
		{"replace none", v.SetXattr(f, posixacl.Access, acl, XattrReplace), syscall.ENODATA},
		{"other name", v.SetXattr(f, "system.posix_acl_other", acl, 0), syscall.EOPNOTSUPP},
		{"of nothing", v.SetXattr(999, posixacl.Access, acl, 0), syscall.ESTALE},
		{"remove none", v.RemoveXattr(f, posixacl.Access), nil},
	} {
		want(t, c.what, c.err, c.errno)
	}
	if a := r.attr(f); a.Mode&0777 != 0644 {
		t.Errorf("mode %o after errors", a.Mode)
	}
}

// A list that needs a block of its own is inherited with that block, and its block comes back when a chmod replaces it.
func TestACL_LargeOnesAreCounted(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	r.settle()
	empty := r.v.StatFS()
	d := r.make(Root, "d", syscall.S_IFDIR|0755)
	want(t, "default", r.v.SetXattr(d, posixacl.Default, manyEntries(400), 0), nil)
	sub, err := r.v.Make(d, "sub", Make{Mode: syscall.S_IFDIR | 0777, Umask: 0777})
	if err != nil || sub.Blocks != 16 || sub.Mode&0777 != 0775 {
		t.Fatal(sub, err)
	}
	f, err := r.v.Make(d, "f", Make{Mode: syscall.S_IFREG | 0666, Umask: 0777})
	if err != nil || f.Blocks != 8 || f.Mode&0777 != 0664 {
		t.Fatal(f, err)
	}
	a, err := r.v.SetAttr(f.Ino, SetAttr{Valid: SetMode, Mode: 02710})
	if err != nil || a.Blocks != 8 || a.Mode != syscall.S_IFREG|02710 {
		t.Error(a, err)
	}
	r.commit()
	r.crash(random(t), 0.5)
	r.check()
	b := make([]byte, posixacl.MaxSize)
	n, err := r.v.GetXattr(f.Ino, posixacl.Access, b)
	acl, decodeErr := posixacl.Decode(b[:n])
	if err != nil || decodeErr != nil || len(acl) != 404 || acl.Mode(0) != 0710 {
		t.Error(len(acl), err, decodeErr)
	}
	want(t, "minimal", r.v.SetXattr(f.Ino, posixacl.Access, posixacl.ACL{acl[0], acl[401], acl[403]}.Append(nil), XattrKillSGID), nil)
	if a := r.attr(f.Ino); a.Blocks != 0 || a.Mode&07000 != 0 {
		t.Errorf("%+v", a)
	}
	r.deleteAll()
	r.settle()
	if now := r.v.StatFS(); now != empty {
		t.Errorf("statfs %+v, expected %+v", now, empty)
	}
}

// Check finds an ACL that is none, one that contradicts the mode, and a default ACL of a file. A damaged default ACL stops
// nobody but those who would inherit it.
func TestACL_CheckFindsDamage(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	t.Cleanup(func() { r.v.Stop(syscall.EIO) }) // no check at the end: there is damage
	f, d := r.file("f"), r.make(Root, "d", syscall.S_IFDIR|0755)
	plant := func(ino Ino, name string, value []byte) {
		r.v.mu.Lock()
		defer r.v.mu.Unlock()
		ind, err := r.v.inode(ino)
		if err == nil {
			err = r.v.setXattr(ino, name, value, 0, ind.Mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	plant(f, posixacl.Access, manyEntries(1))
	plant(f, posixacl.Default, manyEntries(1))
	plant(d, posixacl.Default, bytes.Repeat([]byte{9}, 12))
	var found strings.Builder
	if err := r.v.Check(func(f Finding) { found.WriteString(f.String() + "\n") }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"its access ACL says 0100775", "has a default ACL and is no directory", "invalid access control list"} {
		if !strings.Contains(found.String(), want) {
			t.Errorf("no finding says %q:\n%s", want, found.String())
		}
	}
	if _, err := r.v.Make(d, "x", Make{Mode: syscall.S_IFREG}); !strings.Contains(err.Error(), "corrupt pool") {
		t.Error("make below a damaged default ACL:", err)
	}
	want(t, "make elsewhere", second(r.v.Make(Root, "x", Make{Mode: syscall.S_IFREG})), nil)
}
