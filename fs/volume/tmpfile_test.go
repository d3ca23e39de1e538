package volume

import (
	"bytes"
	"syscall"
	"testing"
)

func TestUnlinkedAndHeld(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	r.settle()
	free := r.v.StatFS()
	f := r.file("f")
	r.v.Hold(f)
	r.v.Hold(f)
	r.write(f, 0, pattern(100000, 1))
	want(t, "unlink", r.v.Unlink(Root, "f"), nil)
	r.settle()
	r.write(f, 100000, pattern(10, 2))
	if got := r.content(f); len(got) != 100010 {
		t.Error(len(got))
	}
	r.v.Forget(f, 1)
	r.settle()
	_ = r.content(f)
	r.v.Forget(f, 1)
	r.settle()
	want(t, "gone", second(r.v.GetAttr(f)), syscall.ESTALE)
	if now := r.v.StatFS(); now != free {
		t.Errorf("statfs %+v, expected %+v", now, free)
	}
}

func TestTmpfile(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	r.settle()
	free := r.v.StatFS()
	reg := Make{Mode: syscall.S_IFREG | 0600}
	make := func() Ino {
		a, err := r.v.Tmpfile(Root, reg)
		if err != nil || a.Nlink != 0 {
			t.Fatal(a, err)
		}
		r.write(a.Ino, 0, pattern(5000, 1))
		return a.Ino
	}
	kept, lost := make(), make()
	r.v.Hold(kept)
	r.v.Forget(kept, 1) // somebody else's
	r.settle()          // reclaims neither of them
	want(t, "link", second(r.v.Link(kept, Root, "kept")), nil)
	r.v.Forget(kept, 1)
	want(t, "unlink", r.v.Unlink(Root, "kept"), nil)
	want(t, "link of what lost its name", second(r.v.Link(kept, Root, "again")), syscall.ENOENT)
	r.v.Forget(lost, 1)
	r.settle()
	if now := r.v.StatFS(); now != free {
		t.Errorf("statfs %+v, expected %+v", now, free)
	}
	crashed := make()
	named := make()
	want(t, "link", second(r.v.Link(named, Root, "named")), nil)
	r.commit()
	r.crash(random(t), 0.5)
	r.settle()
	want(t, "after a crash", second(r.v.GetAttr(crashed)), syscall.ESTALE)
	if got := r.content(named); !bytes.Equal(got, pattern(5000, 1)) {
		t.Error("the content of a named one differs")
	}
}
