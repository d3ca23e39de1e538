package fs

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// After a copy is lost for good: EIO where a promise of durability is asked for, EROFS for other changes, and reads go on.
func TestStickyError(t *testing.T) {
	d := mount(t, "")
	content := bytes.Repeat([]byte("kept "), 10000)
	must(t, os.WriteFile(d.path("kept"), content, 0644))
	clean, dirty := d.open("kept", 0), d.open("dirty", 0)
	unused, dsync, mapped := d.open("unused", 0), d.open("dsync", unix.O_DSYNC), d.open("mapped", 0)
	must(t, unix.Ftruncate(mapped, 4096))
	mem, err := unix.Mmap(mapped, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	mustWrite(t, dsync, []byte("x"), 0)
	d.tell("sync")
	mustWrite(t, dirty, []byte("never durable"), 0)
	d.tell("fail")

	mem[0] = 1
	for what, got := range map[string]struct{ err, want error }{
		"fsync":                {unix.Fsync(dirty), unix.EIO},
		"fsync again":          {unix.Fsync(dirty), unix.EIO},
		"fdatasync":            {unix.Fdatasync(dirty), unix.EIO},
		"O_DSYNC write":        {second(unix.Pwrite(dsync, []byte("y"), 0)), unix.EIO},
		"RWF_DSYNC write":      {second(unix.Pwritev2(dirty, [][]byte{{1}}, 0, unix.RWF_DSYNC)), unix.EIO},
		"msync":                {unix.Msync(mem, unix.MS_SYNC), unix.EIO},
		"write":                {second(unix.Pwrite(clean, []byte("y"), 0)), unix.EROFS},
		"create":               {os.WriteFile(d.path("new"), nil, 0644), unix.EROFS},
		"mkdir":                {os.Mkdir(d.path("newdir"), 0755), unix.EROFS},
		"unlink":               {os.Remove(d.path("kept")), unix.EROFS},
		"rename":               {os.Rename(d.path("kept"), d.path("moved")), unix.EROFS},
		"chmod":                {os.Chmod(d.path("kept"), 0600), unix.EROFS},
		"truncate":             {os.Truncate(d.path("kept"), 0), unix.EROFS},
		"setxattr":             {unix.Setxattr(d.path("kept"), "user.a", nil, 0), unix.EROFS},
		"fallocate":            {unix.Fallocate(clean, 0, 0, 1<<20), unix.EROFS},
		"close with content":   {d.close(dirty), unix.EIO},
		"close of a clean one": {d.close(unused), nil},
	} {
		if !errors.Is(got.err, got.want) {
			t.Errorf("%s: %v, want %v", what, got.err, got.want)
		}
	}
	must(t, unix.Fadvise(clean, 0, 0, unix.FADV_DONTNEED))
	got, err := os.ReadFile(d.path("kept"))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("reading: %d bytes, %v", len(got), err)
	}
	if seen := listing(t, d.point, func() {}); seen["kept"] != 1 {
		t.Errorf("listing: %v", seen)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(d.point, &st))
	d.tell("abort")
	d.kill()
}
