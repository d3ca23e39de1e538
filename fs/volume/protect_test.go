package volume

import (
	"bytes"
	"syscall"
	"testing"
)

func TestKillPriv(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	for _, c := range []struct{ mode, after uint32 }{{06755, 0755}, {06745, 02745}, {04644, 0644}} {
		for _, how := range []string{"write", "truncate", "chown"} {
			f, _ := r.v.Make(Root, "f", Make{Mode: syscall.S_IFREG | c.mode})
			switch how {
			case "write":
				_, _ = r.v.Write(f.Ino, 0, []byte("x"), true)
			case "truncate":
				_, _ = r.v.SetAttr(f.Ino, SetAttr{Valid: SetSize | KillPriv, Size: 3})
			case "chown":
				_, _ = r.v.SetAttr(f.Ino, SetAttr{Valid: SetUID | KillPriv, UID: 3})
			}
			if got := r.attr(f.Ino).Mode & 07777; got != c.after {
				t.Errorf("%s of mode %o leaves %o, expected %o", how, c.mode, got, c.after)
			}
			want(t, "unlink", r.v.Unlink(Root, "f"), nil)
		}
	}
	r.settle()
}

// Each change that the flags forbid answers EPERM and changes nothing; each that they allow succeeds.
func TestFlags(t *testing.T) {
	const no, yes = syscall.EPERM, syscall.Errno(0)
	reg := Make{Mode: syscall.S_IFREG | 0644}
	for _, c := range []struct {
		what              string
		do                func(v *Volume, d, f Ino) error
		immutable, append syscall.Errno // of file and directory
	}{
		{"write", func(v *Volume, d, f Ino) error { return second(v.Write(f, 0, []byte("x"), false)) }, no, no},
		{"append", func(v *Volume, d, f Ino) error { return second(v.Write(f, 4, []byte("x"), false)) }, no, yes},
		{"truncate", func(v *Volume, d, f Ino) error { return second(v.SetAttr(f, SetAttr{Valid: SetSize, Size: 9})) }, no, no},
		{"chmod", func(v *Volume, d, f Ino) error { return second(v.SetAttr(f, SetAttr{Valid: SetMode, Mode: 0600})) }, no, no},
		{"chown", func(v *Volume, d, f Ino) error { return second(v.SetAttr(f, SetAttr{Valid: SetUID | KillPriv})) }, no, no},
		{"set time", func(v *Volume, d, f Ino) error { return second(v.SetAttr(f, SetAttr{Valid: SetMtime})) }, no, no},
		{"touch", func(v *Volume, d, f Ino) error {
			return second(v.SetAttr(f, SetAttr{Valid: SetMtimeNow | SetAtimeNow}))
		}, no, yes},
		{"clear set-user-id", func(v *Volume, d, f Ino) error { return second(v.SetAttr(f, SetAttr{Valid: KillPriv})) }, no, yes},
		{"fallocate", func(v *Volume, d, f Ino) error { return v.Fallocate(f, 0, 99) }, no, yes},
		{"preallocate", func(v *Volume, d, f Ino) error { return v.Preallocate(f, 0, 99) }, no, yes},
		{"punch", func(v *Volume, d, f Ino) error { return v.PunchHole(f, 0, 9) }, no, no},
		{"zero", func(v *Volume, d, f Ino) error { return v.ZeroRange(f, 0, 9, true) }, no, no},
		{"setxattr", func(v *Volume, d, f Ino) error { return v.SetXattr(f, "user.b", nil, 0) }, no, no},
		{"removexattr", func(v *Volume, d, f Ino) error { return v.RemoveXattr(f, "user.a") }, no, no},
		{"link", func(v *Volume, d, f Ino) error { return second(v.Link(f, Root, "l")) }, no, no},
		{"unlink", func(v *Volume, d, f Ino) error { return v.Unlink(d, "f") }, no, no},
		{"rename", func(v *Volume, d, f Ino) error { return v.Rename(d, "f", Root, "g", 0) }, no, no},
		{"replace", func(v *Volume, d, f Ino) error { return v.Rename(Root, "other", d, "f", 0) }, no, no},
		{"exchange", func(v *Volume, d, f Ino) error { return v.Rename(Root, "other", d, "f", RenameExchange) }, no, no},
		{"rename the directory", func(v *Volume, d, f Ino) error { return v.Rename(Root, "d", Root, "e", 0) }, no, no},
		{"rename into it", func(v *Volume, d, f Ino) error { return v.Rename(Root, "other", d, "g", 0) }, no, yes},
		{"link into it", func(v *Volume, d, f Ino) error {
			a, _ := v.Lookup(Root, "other")
			return second(v.Link(a.Ino, d, "l"))
		}, no, yes},
		{"make in it", func(v *Volume, d, f Ino) error { return second(v.Make(d, "g", reg)) }, no, yes},
		{"tmpfile in it", func(v *Volume, d, f Ino) error { return second(v.Tmpfile(d, reg)) }, no, yes},
		{"remove in it", func(v *Volume, d, f Ino) error { return v.Rmdir(d, "sub") }, no, no},
	} {
		for flag, want := range map[uint32]syscall.Errno{FlagImmutable: c.immutable, FlagAppend: c.append, 0: yes} {
			r := newRig(t, 2<<20, Params{NodeSize: 1024})
			d := r.make(Root, "d", syscall.S_IFDIR|0755)
			f := r.make(d, "f", syscall.S_IFREG|0644)
			r.make(d, "sub", syscall.S_IFDIR|0755)
			r.file("other")
			r.write(f, 0, []byte("text"))
			_ = r.v.SetXattr(f, "user.a", nil, 0)
			for _, ino := range []Ino{f, d} {
				if err := r.v.SetFlags(ino, flag); err != nil {
					t.Fatal(err)
				}
			}
			r.commit()
			r.reopen(bytes.Clone(r.media)) // flags are durable
			before := r.attr(f)
			err := c.do(r.v, d, f)
			if want == yes && err != nil || want != yes && err != error(want) {
				t.Errorf("%s with flags %#x: %v, expected %v", c.what, flag, err, want)
			}
			if after := r.attr(f); want != yes && after != before {
				t.Errorf("%s with flags %#x: %+v, before %+v", c.what, flag, after, before)
			}
		}
	}
	r := newRig(t, 8<<20, Params{})
	fifo := r.make(Root, "fifo", syscall.S_IFIFO)
	want(t, "flags of a fifo", r.v.SetFlags(fifo, FlagAppend), syscall.ENOTTY)
	want(t, "unknown flag", r.v.SetFlags(Root, 1), syscall.EOPNOTSUPP)
}
