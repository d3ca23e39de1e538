package volume

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
)

func TestRenameReplacesWithContent(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 8<<20, Params{})
	old, data := pattern(9000, 1), pattern(12345, 2)
	r.write(r.file("f"), 0, old)
	r.commit()
	f := r.file("f.new")
	r.write(f, 0, data)
	want(t, "rename", r.v.Rename(Root, "f.new", Root, "f", 0), nil)
	if _, err := r.v.CloseGroup(); err != nil {
		t.Fatal(err)
	}
	r.drain()
	r.crash(rnd, 0.5)
	a, err := r.v.Lookup(Root, "f")
	if err != nil || !bytes.Equal(r.content(a.Ino), data) {
		t.Error("the new content is not whole", err)
	}
}

func TestExchange(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 8<<20, Params{})
	v := r.v
	a, b := r.make(Root, "a", syscall.S_IFDIR|0755), r.make(Root, "b", syscall.S_IFDIR|0755)
	d, f := r.make(a, "d", syscall.S_IFDIR|0755), r.make(b, "f", syscall.S_IFREG|0644)
	inner := r.make(d, "inner", syscall.S_IFDIR|0755)
	content := pattern(30000, 9)
	r.write(f, 0, content)
	want(t, "directory with file", v.Rename(a, "d", b, "f", RenameExchange), nil)
	if r.attr(a).Nlink != 2 || r.attr(b).Nlink != 3 {
		t.Errorf("links of the parents: %d and %d, expected 2 and 3", r.attr(a).Nlink, r.attr(b).Nlink)
	}
	if up, err := v.Lookup(d, ".."); err != nil || up.Ino != b {
		t.Error("parent of the exchanged directory:", up.Ino, err)
	}
	want(t, "directory with an inner one of another", v.Rename(Root, "a", d, "inner", RenameExchange), nil)
	if up, err := v.Lookup(a, ".."); err != nil || up.Ino != d {
		t.Error("parent of a:", up.Ino, err)
	}
	if _, err := v.CloseGroup(); err != nil {
		t.Fatal(err)
	}
	for r.step() {
	}
	r.crash(rnd, 0.5)
	if got, err := r.v.Lookup(Root, "a"); err != nil || got.Ino != inner {
		t.Error("a names", got.Ino, err)
	}
	if got, err := r.v.Lookup(a, "d"); err != nil || got.Ino != f || !bytes.Equal(r.content(f), content) {
		t.Error("the content of an exchanged file is not whole", err)
	}
}

func TestWhiteout(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	d, _ := r.v.Make(Root, "d", Make{Mode: syscall.S_IFDIR | syscall.S_ISGID | 0755, GID: 77})
	sub := r.make(d.Ino, "sub", syscall.S_IFDIR|0755)
	want(t, "whiteout", r.v.RenameWhiteout(d.Ino, "sub", Root, "moved", 0, 5, 6), nil)
	w, err := r.v.Lookup(d.Ino, "sub")
	if err != nil || w.Mode != syscall.S_IFCHR || w.Rdev != 0 || w.UID != 5 || w.GID != 77 || w.Nlink != 1 {
		t.Errorf("%+v %v", w, err)
	}
	if got, err := r.v.Lookup(Root, "moved"); err != nil || got.Ino != sub || r.attr(d.Ino).Nlink != 2 {
		t.Errorf("%+v %v", got, err)
	}
	r.commit()
	r.reopen(bytes.Clone(r.media))
	if again, err := r.v.Lookup(d.Ino, "sub"); err != nil || again != w {
		t.Errorf("after recovery %+v %v", again, err)
	}
}

// An inode has as many names, and a directory as many subdirectories, as the format allows, and not one more.
func TestMaxLink(t *testing.T) {
	r := newRig(t, 48<<20, Params{})
	f, d := r.file("f"), r.make(Root, "d", syscall.S_IFDIR|0755)
	many := r.make(Root, "many", syscall.S_IFDIR|0755)
	other := r.make(Root, "other", syscall.S_IFDIR|0755)
	each := func(what string, n int, do func(name string) error) {
		t.Helper()
		for i := range n {
			if err := do(fmt.Sprint(i)); err != nil {
				t.Fatalf("%s number %d: %v", what, i, err)
			}
			if i%5000 == 4999 {
				r.commit()
				r.flip()
			}
		}
		want(t, what+" too many", do("more"), syscall.EMLINK)
	}
	each("link", MaxLink-1, func(name string) error { return second(r.v.Link(f, d, name)) })
	each("mkdir", MaxLink-2, func(name string) error { return second(r.v.Make(many, name, Make{Mode: syscall.S_IFDIR})) })
	want(t, "move a directory there", r.v.Rename(Root, "other", many, "o", 0), syscall.EMLINK)
	want(t, "replace one there", r.v.Rename(Root, "other", many, "0", 0), nil)
	want(t, "exchange a file for a directory", r.v.Rename(Root, "f", many, "1", RenameExchange), nil)
	want(t, "and back", r.v.Rename(Root, "f", many, "1", RenameExchange), nil)
	want(t, "exchange a file there for a directory", func() error {
		if err := r.v.Unlink(d, "0"); err != nil {
			return err
		}
		if err := second(r.v.Link(f, many, "file")); err != nil {
			return err
		}
		return r.v.Rename(many, "file", Root, "d", RenameExchange)
	}(), syscall.EMLINK)
	if r.attr(f).Nlink != MaxLink || r.attr(many).Nlink != MaxLink || r.attr(other).Nlink != 2 {
		t.Error(r.attr(f).Nlink, r.attr(many).Nlink, r.attr(other).Nlink)
	}
}
