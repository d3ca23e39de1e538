package volume

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func TestWriteReadCommitReopen(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	ino := r.file("a")
	data := pattern(10000, 3)
	r.write(ino, 100, data)
	whole := append(make([]byte, 100), data...)
	if got := r.content(ino); !bytes.Equal(got, whole) {
		t.Fatal("content before the commit differs")
	}
	if !r.v.Dirty(ino) {
		t.Error("a file with pending content is not dirty")
	}
	lsn, err := r.v.FlushFile(ino)
	if err != nil || lsn != 1 {
		t.Fatal(lsn, err)
	}
	if ok, err := r.v.CloseGroup(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if !r.v.Dirty(ino) {
		t.Error("a file in a group that is not sealed is not dirty")
	}
	r.drain()
	if r.v.Dirty(ino) {
		t.Error("a file is dirty after its group was sealed")
	}
	if lsn, err := r.v.FlushFile(ino); lsn != 0 || err != nil {
		t.Error("flush with nothing to do:", lsn, err)
	}
	r.write(ino, 0, []byte("lost"))
	r.crash(rand.New(rand.NewPCG(1, 1)), 0)
	if r.rec.LSN != 1 || r.rec.Replayed != 1 {
		t.Errorf("recovered %+v", r.rec)
	}
	a, err := r.v.Lookup(Root, "a")
	if err != nil || a.Ino != ino {
		t.Fatal(a, err)
	}
	if got := r.content(ino); !bytes.Equal(got, whole) {
		t.Error("content after recovery differs")
	}
}

func TestOpenTwiceRecoversTheSame(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	for i := range 30 {
		r.write(r.file(strings.Repeat("n", i+1)), 0, pattern(5000, byte(i)))
	}
	r.commit()
	first := r.names(Root)
	for range 3 {
		r.reopen(bytes.Clone(r.region.Bytes()))
		if r.rec.LSN != 1 || len(first) != len(r.names(Root)) {
			t.Fatalf("recovered %+v, %d names", r.rec, len(r.names(Root)))
		}
	}
}

func TestCheckpointEndsReplay(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	r.write(r.file("a"), 0, pattern(100, 1))
	r.commit()
	r.flip()
	r.file("b")
	r.commit()
	r.crash(rand.New(rand.NewPCG(1, 1)), 0)
	if r.rec.Replayed != 1 || r.rec.LSN != 2 || r.rec.Slot != nil {
		t.Errorf("recovered %+v", r.rec)
	}
	if got := r.names(Root); len(got) != 2 {
		t.Error(got)
	}
}

func TestSuperIsNotOverwrittenBeforeTheLastIsSealed(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	if ok, err := r.v.CloseEpoch(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := r.v.CloseEpoch(); ok || err != nil {
		t.Fatal("second epoch closed while the first super is under way:", ok, err)
	}
	r.drain()
	if ok, err := r.v.CloseEpoch(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.drain()
}

func TestNamesErrors(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	v := r.v
	f, d := r.file("f"), r.make(Root, "d", syscall.S_IFDIR|0755)
	long := strings.Repeat("x", 255)
	r.file(long)
	r.make(d, "sub", syscall.S_IFDIR|0755)
	reg := Make{Mode: syscall.S_IFREG}
	for _, c := range []struct {
		what  string
		err   error
		errno error
	}{
		{"make existing", second(v.Make(Root, "f", reg)), syscall.EEXIST},
		{"make .", second(v.Make(Root, ".", reg)), syscall.EEXIST},
		{"make empty", second(v.Make(Root, "", reg)), syscall.EINVAL},
		{"make slash", second(v.Make(Root, "a/b", reg)), syscall.EINVAL},
		{"make NUL", second(v.Make(Root, "a\x00b", reg)), syscall.EINVAL},
		{"make 256", second(v.Make(Root, long+"x", reg)), syscall.ENAMETOOLONG},
		{"make in file", second(v.Make(f, "x", reg)), syscall.ENOTDIR},
		{"make in nothing", second(v.Make(999, "x", reg)), syscall.ESTALE},
		{"make no type", second(v.Make(Root, "x", Make{Mode: 0644})), syscall.EINVAL},
		{"symlink empty", second(v.Make(Root, "x", Make{Mode: syscall.S_IFLNK})), syscall.ENOENT},
		{"symlink long", second(v.Make(Root, "x", Make{Mode: syscall.S_IFLNK, Target: strings.Repeat("t", 4096)})), syscall.ENAMETOOLONG},
		{"lookup none", second(v.Lookup(Root, "none")), syscall.ENOENT},
		{"lookup in file", second(v.Lookup(f, "x")), syscall.ENOTDIR},
		{"lookup 256", second(v.Lookup(Root, long+"x")), syscall.ENAMETOOLONG},
		{"unlink none", v.Unlink(Root, "none"), syscall.ENOENT},
		{"unlink dir", v.Unlink(Root, "d"), syscall.EISDIR},
		{"unlink in file", v.Unlink(f, "x"), syscall.ENOTDIR},
		{"rmdir file", v.Rmdir(Root, "f"), syscall.ENOTDIR},
		{"rmdir full", v.Rmdir(Root, "d"), syscall.ENOTEMPTY},
		{"rmdir .", v.Rmdir(Root, "."), syscall.EINVAL},
		{"rmdir ..", v.Rmdir(Root, ".."), syscall.ENOTEMPTY},
		{"rmdir none", v.Rmdir(Root, "none"), syscall.ENOENT},
		{"tmpfile in file", second(v.Tmpfile(f, reg)), syscall.ENOTDIR},
		{"tmpfile no file", second(v.Tmpfile(d, Make{Mode: syscall.S_IFIFO})), syscall.EINVAL},
		{"link dir", second(v.Link(d, Root, "l")), syscall.EPERM},
		{"link existing", second(v.Link(f, Root, "d")), syscall.EEXIST},
		{"link nothing", second(v.Link(999, Root, "l")), syscall.ESTALE},
		{"rename none", v.Rename(Root, "none", Root, "y", 0), syscall.ENOENT},
		{"rename flags", v.Rename(Root, "f", Root, "y", 8), syscall.EINVAL},
		{"exchange and noreplace", v.Rename(Root, "f", Root, "d", RenameExchange|RenameNoReplace), syscall.EINVAL},
		{"exchange with none", v.Rename(Root, "f", Root, "y", RenameExchange), syscall.ENOENT},
		{"exchange none", v.Rename(Root, "y", Root, "f", RenameExchange), syscall.ENOENT},
		{"exchange with its child", v.Rename(Root, "d", d, "sub", RenameExchange), syscall.EINVAL},
		{"exchange with its parent", v.Rename(d, "sub", Root, "d", RenameExchange), syscall.EINVAL},
		{"exchange .", v.Rename(Root, "d", Root, "..", RenameExchange), syscall.EINVAL},
		{"whiteout and exchange", v.RenameWhiteout(Root, "f", Root, "d", RenameExchange, 0, 0), syscall.EINVAL},
		{"whiteout over existing", v.RenameWhiteout(Root, "f", Root, "d", RenameNoReplace, 0, 0), syscall.EEXIST},
		{"rename noreplace", v.Rename(Root, "f", Root, "d", RenameNoReplace), syscall.EEXIST},
		{"rename file over dir", v.Rename(Root, "f", Root, "d", 0), syscall.EISDIR},
		{"rename dir over file", v.Rename(Root, "d", Root, "f", 0), syscall.ENOTDIR},
		{"rename into itself", v.Rename(Root, "d", d, "x", 0), syscall.EINVAL},
		{"rename 256", v.Rename(Root, "f", Root, long+"x", 0), syscall.ENAMETOOLONG},
		{"rename .", v.Rename(Root, ".", Root, "x", 0), syscall.EINVAL},
		{"read dir", second(v.Read(d, 0, make([]byte, 1))), syscall.EISDIR},
		{"write dir", second(v.Write(d, 0, []byte("x"), false)), syscall.EISDIR},
		{"write at the end of all", second(v.Write(f, MaxSize, []byte("x"), false)), syscall.EFBIG},
		{"truncate dir", second(v.SetAttr(d, SetAttr{Valid: SetSize})), syscall.EISDIR},
		{"truncate far", second(v.SetAttr(f, SetAttr{Valid: SetSize, Size: MaxSize + 1})), syscall.EFBIG},
		{"readlink file", second(v.Readlink(f)), syscall.EINVAL},
		{"readdir file", v.ReadDir(f, 0, nil), syscall.ENOTDIR},
		{"getattr nothing", second(v.GetAttr(999)), syscall.ESTALE},
		{"fallocate nothing", v.Fallocate(f, 0, 0), syscall.EINVAL},
		{"fallocate far", v.Fallocate(f, MaxSize, 1), syscall.EFBIG},
		{"punch nothing", v.PunchHole(f, 0, 0), syscall.EINVAL},
		{"punch a dir", v.PunchHole(d, 0, 1), syscall.EISDIR},
		{"zero wrap", v.ZeroRange(f, 1<<63, 1<<63, true), syscall.EFBIG},
		{"preallocate far", v.Preallocate(f, MaxSize, 1), syscall.EFBIG},
		{"span at the end", third(v.Span(f, 0)), syscall.ENXIO},
		{"span of a dir", third(v.Span(d, 0)), syscall.EISDIR},
		{"fallocate wrap", v.Fallocate(f, 1<<63, 1<<63), syscall.EFBIG},
	} {
		want(t, c.what, c.err, c.errno)
	}
	sub, err := v.Lookup(d, "sub")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "rename over a full dir", v.Rename(d, "sub", Root, "d", 0), syscall.ENOTEMPTY)
	want(t, "rename into a child", v.Rename(Root, "d", sub.Ino, "x", 0), syscall.EINVAL)
	if r.content(f) != nil && len(r.content(f)) != 0 {
		t.Error("a failed operation changed the file")
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

func TestDirectories(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	v := r.v
	a := r.make(Root, "a", syscall.S_IFDIR|0755)
	b := r.make(Root, "b", syscall.S_IFDIR|0755)
	c := r.make(a, "c", syscall.S_IFDIR|0755)
	if got := r.attr(Root).Nlink; got != 4 {
		t.Error("links of the root:", got)
	}
	want(t, "rename dir", v.Rename(a, "c", b, "c2", 0), nil)
	if up, err := v.Lookup(c, ".."); err != nil || up.Ino != b {
		t.Error("..:", up, err)
	}
	if r.attr(a).Nlink != 2 || r.attr(b).Nlink != 3 {
		t.Error("links after a rename:", r.attr(a).Nlink, r.attr(b).Nlink)
	}
	want(t, "rename dir over empty dir", v.Rename(b, "c2", Root, "a", 0), nil)
	if got := r.names(Root); len(got) != 2 || r.attr(Root).Nlink != 4 || r.attr(b).Nlink != 2 {
		t.Error(got, r.attr(Root).Nlink, r.attr(b).Nlink)
	}
	v.Hold(c)
	want(t, "rmdir", v.Rmdir(Root, "a"), nil)
	want(t, "make in a removed dir", second(v.Make(c, "x", Make{Mode: syscall.S_IFREG})), syscall.ENOENT)
	v.Forget(c, 1)
	r.settle()
	want(t, "reclaimed", second(v.GetAttr(c)), syscall.ESTALE)
}

func TestReadDirWhileOthersComeAndGo(t *testing.T) {
	r := newRig(t, 16<<20, Params{})
	rnd := random(t)
	stay := make(map[string]int)
	for i := range 500 {
		name := strings.Repeat("s", 1+i%40) + string(rune('0'+i%10)) + string(rune('a'+i/10%26)) + string(rune('a'+i/260))
		r.file(name)
		stay[name] = 0
	}
	var cookie uint64
	for i, more := 0, true; more; i++ {
		n := 0
		err := r.v.ReadDir(Root, cookie, func(e DirEnt) bool {
			if n == 7 {
				return false
			}
			n++
			cookie = e.Cookie
			if _, ok := stay[e.Name]; ok {
				stay[e.Name]++
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		more = n > 0
		name := "other" + string(rune('a'+rnd.IntN(26)))
		if _, err := r.v.Make(Root, name, Make{Mode: syscall.S_IFREG}); err != nil {
			want(t, "unlink", r.v.Unlink(Root, name), nil)
		}
	}
	for name, n := range stay {
		if n != 1 {
			t.Errorf("%q was met %d times", name, n)
		}
	}
}

func TestSymlinksAndSpecialFiles(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	target := string(pattern(4095, 1))
	target = strings.ReplaceAll(target, "\x00", "x")
	a, err := r.v.Make(Root, "l", Make{Mode: syscall.S_IFLNK | 0777, Target: target})
	if err != nil || a.Size != 4095 {
		t.Fatal(a, err)
	}
	dev, err := r.v.Make(Root, "dev", Make{Mode: syscall.S_IFCHR | 0600, Rdev: 259})
	if err != nil || dev.Rdev != 259 {
		t.Fatal(dev, err)
	}
	r.commit()
	r.reopen(bytes.Clone(r.media))
	if got, err := r.v.Readlink(a.Ino); got != target || err != nil {
		t.Error("target differs", err)
	}
	want(t, "unlink", r.v.Unlink(Root, "l"), nil)
	r.settle()
}

func TestSetGroupIDDirectory(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	d, _ := r.v.Make(Root, "d", Make{Mode: syscall.S_IFDIR | syscall.S_ISGID | 0755, GID: 77})
	f, _ := r.v.Make(d.Ino, "f", Make{Mode: syscall.S_IFREG | 0644, GID: 5})
	s, _ := r.v.Make(d.Ino, "s", Make{Mode: syscall.S_IFDIR | 0755, GID: 5})
	if f.GID != 77 || f.Mode&syscall.S_ISGID != 0 || s.GID != 77 || s.Mode&syscall.S_ISGID == 0 {
		t.Errorf("%+v %+v", f, s)
	}
}

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

func TestTimes(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	f := r.file("f")
	before := r.attr(f)
	r.write(f, 0, []byte("x"))
	after := r.attr(f)
	if after.Mtime == before.Mtime || after.Ctime == before.Ctime || after.Btime != before.Btime {
		t.Errorf("%+v %+v", before, after)
	}
	set := SetAttr{Valid: SetAtime | SetMtime, Atime: Time{Sec: 5, Nsec: 6}, Mtime: Time{Sec: -7, Nsec: 999_999_999}}
	got, err := r.v.SetAttr(f, set)
	if err != nil || got.Atime != set.Atime || got.Mtime != set.Mtime || got.Ctime == after.Ctime {
		t.Errorf("%+v %v", got, err)
	}
	r.commit()
	r.reopen(bytes.Clone(r.media))
	if now := r.attr(f); now != got {
		t.Errorf("after recovery %+v, expected %+v", now, got)
	}
	// Relatime: the first read after a change counts, the second does not.
	_ = r.content(f)
	first := r.attr(f).Atime
	_ = r.content(f)
	if second := r.attr(f).Atime; first == got.Atime || second != first {
		t.Errorf("access times %v, %v, %v", got.Atime, first, second)
	}
	if r.v.Dirty(f) {
		t.Error("an access time makes a file dirty")
	}
	r.commit()
	r.reopen(bytes.Clone(r.media))
	if now := r.attr(f).Atime; now != first {
		t.Error("the access time was lost")
	}
}

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
