package volume

import (
	"bytes"
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
