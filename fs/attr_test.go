package fs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("lstat %s: %v", path, err)
	}
	return st
}

func TestTimes(t *testing.T) {
	d := mount(t, "")
	path := d.path("file")
	began := time.Now()
	fd := d.open("file", 0)
	set := []unix.Timespec{{Sec: 1, Nsec: 123456789}, {Sec: -5, Nsec: 999999999}}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, set, 0))
	st := stat(t, path)
	if st.Atim != set[0] || st.Mtim != set[1] {
		t.Errorf("times %v and %v, want %v", st.Atim, st.Mtim, set)
	}
	if ctime := time.Unix(st.Ctim.Unix()); ctime.Before(began) {
		t.Errorf("ctime %v before the change at %v", ctime, began)
	}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"write", func() error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err }},
		{"overwrite", func() error { _, err := unix.Pwrite(fd, []byte("y"), 0); return err }},
		{"ftruncate", func() error { return unix.Ftruncate(fd, 100) }},
		{"O_TRUNC", func() error { return os.WriteFile(path, nil, 0644) }},
		{"mapped store", func() error {
			must(t, unix.Ftruncate(fd, 4096))
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, set, 0))
			storeAndSync(t, fd, 1)
			return nil
		}},
	} {
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, set, 0))
		before := stat(t, path)
		must(t, change.do())
		after := stat(t, path)
		if after.Mtim == before.Mtim || after.Ctim == before.Ctim {
			t.Errorf("%s: mtime %v -> %v, ctime %v -> %v", change.name, before.Mtim, after.Mtim, before.Ctim, after.Ctim)
		}
	}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, set, 0))
	must(t, unix.Fsync(fd))
	must(t, d.close(fd))
	if st := stat(t, path); st.Mtim != set[1] {
		t.Errorf("mtime is %v after fsync and close, want %v", st.Mtim, set[1])
	}
}

func TestSizeAndBlocksAfterWriteAndTruncate(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	for _, step := range []struct {
		do     func()
		size   int64
		blocks int64
	}{
		{func() { mustWrite(t, fd, make([]byte, 10000), 0) }, 10000, 24},
		{func() { mustWrite(t, fd, make([]byte, 10000), 5000) }, 15000, 32},
		{func() { must(t, unix.Ftruncate(fd, 4096)) }, 4096, 8},
		{func() { must(t, unix.Ftruncate(fd, 1<<20)) }, 1 << 20, 8},
		{func() { must(t, unix.Ftruncate(fd, 0)) }, 0, 0},
	} {
		step.do()
		if st := stat(t, d.path("file")); st.Size != step.size || st.Blocks != step.blocks || st.Blksize != 4096 {
			t.Errorf("size %d, %d blocks; want %d, %d", st.Size, st.Blocks, step.size, step.blocks)
		}
	}
}

func TestSetUserIDIsCleared(t *testing.T) {
	d := mount(t, "")
	must(t, os.Chmod(d.point, 0777))
	for _, tc := range []struct {
		name   string
		uid    uint32
		script string
		want   uint32
	}{
		{"write by root", 0, "echo x >> file", 06777},
		{"write", nobody, "echo x >> file", 0777},
		{"O_TRUNC", nobody, "echo x > file", 0777},
		{"truncate", nobody, "truncate -s 3 file", 0777},
		{"fallocate", nobody, "fallocate -l 9999 file", 0777},
		{"punch a hole", nobody, "fallocate -p -o 2 -l 5 file", 0777},
		{"zero a range", nobody, "fallocate -z -o 2 -l 5 file", 0777},
		{"allocate behind the end", nobody, "fallocate -n -o 8192 -l 5 file", 0777},
		{"fallocate by root", 0, "fallocate -l 9999 file", 06777},
		{"chown", 0, "chown 5 file", 0777},
		{"chgrp", 0, "chgrp 5 file", 0777},
		{"touch", 0, "touch file", 06777},
		{"reading", nobody, "cat file", 06777},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, os.WriteFile(d.path("file"), []byte("some content"), 0644))
			must(t, unix.Chown(d.path("file"), 0, 0))
			must(t, unix.Chmod(d.path("file"), 06777))
			mustShell(t, tc.uid, d.point, tc.script)
			if got := stat(t, d.path("file")).Mode & 07777; got != tc.want {
				t.Errorf("mode %o, want %o", got, tc.want)
			}
		})
	}
}

// The kernel must not honour a set-user-id bit that a write has just cleared, even if nobody looks at the mode in between.
func TestSetUserIDIsGoneAtExec(t *testing.T) {
	d := mount(t, "")
	id, err := os.ReadFile("/usr/bin/id")
	must(t, err)
	must(t, os.WriteFile(d.path("id"), id, 0755))
	must(t, unix.Chmod(d.path("id"), 04777))
	if got := mustShell(t, nobody, d.point, "./id -u"); got != "0" {
		t.Fatalf("a set-user-id program runs as %s", got)
	}
	if got := mustShell(t, nobody, d.point, "echo x >> id; ./id -u"); got != fmt.Sprint(nobody) {
		t.Errorf("after a write by nobody it runs as user %s", got)
	}
	must(t, unix.Chmod(d.path("id"), 04777))
	if got := mustShell(t, nobody, d.point, "fallocate -l 2000000 id; ./id -u"); got != fmt.Sprint(nobody) {
		t.Errorf("after fallocate by nobody it runs as user %s", got)
	}
}

func TestModesOfNewInodes(t *testing.T) {
	d := mount(t, "")
	must(t, unix.Mkdir(d.path("dir"), 0755))
	must(t, unix.Chown(d.path("dir"), 0, 77))
	must(t, unix.Chmod(d.path("dir"), 03777))
	mustShell(t, nobody, d.path("dir"), `
		umask 027; echo x > file; mkdir sub; mkfifo pipe; ln -s file link; umask 0; mkdir -m 1777 sticky; umask 0777; echo > none`)
	for name, want := range map[string]uint32{
		"file": unix.S_IFREG | 0640, "sub": unix.S_IFDIR | 02750, "pipe": unix.S_IFIFO | 0640,
		"link": unix.S_IFLNK | 0777, "sticky": unix.S_IFDIR | 01777, "none": unix.S_IFREG,
	} {
		st := stat(t, d.path("dir/"+name))
		if st.Mode != want || st.Uid != nobody || st.Gid != 77 {
			t.Errorf("%s: mode %o, owner %d:%d; want %o, %d:77", name, st.Mode, st.Uid, st.Gid, want, nobody)
		}
	}
}

func TestDeviceNumbersAndBirthTime(t *testing.T) {
	d := mount(t, "")
	dev := unix.Mkdev(259, 70000)
	must(t, unix.Mknod(d.path("dev"), unix.S_IFCHR|0600, int(dev)))
	if st := stat(t, d.path("dev")); st.Rdev != dev {
		t.Errorf("stat: device %#x, want %#x", st.Rdev, dev)
	}
	var x unix.Statx_t
	must(t, unix.Statx(unix.AT_FDCWD, d.path("dev"), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x))
	if x.Rdev_major != 259 || x.Rdev_minor != 70000 {
		t.Errorf("statx: device %d:%d", x.Rdev_major, x.Rdev_minor)
	}
	if x.Mask&unix.STATX_BTIME == 0 || time.Since(time.Unix(x.Btime.Sec, int64(x.Btime.Nsec))) > time.Minute {
		t.Errorf("birth time %v, mask %#x", x.Btime, x.Mask)
	}
	must(t, os.Symlink("nothing", d.path("dangling")))
	must(t, unix.Statx(unix.AT_FDCWD, d.path("dangling"), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_ALL, &x))
}

func TestStatFs(t *testing.T) {
	d := mount(t, "")
	statfs := func() unix.Statfs_t {
		var st unix.Statfs_t
		must(t, unix.Statfs(d.point, &st))
		if st.Bsize != 4096 || st.Frsize != 4096 || st.Namelen != 255 || st.Blocks*4096 > testPool ||
			st.Bavail > st.Bfree || st.Bfree > st.Blocks || st.Ffree > st.Files || st.Type != unix.FUSE_SUPER_MAGIC {
			t.Errorf("%+v", st)
		}
		return st
	}
	before := statfs()
	must(t, os.WriteFile(d.path("file"), make([]byte, 8<<20), 0644))
	after := statfs()
	if used := before.Bfree - after.Bfree; used < 2048 || used > 2300 {
		t.Errorf("8 MiB take %d blocks", used)
	}
	if after.Files-after.Ffree != before.Files-before.Ffree+1 {
		t.Errorf("inodes in use: %d, then %d", before.Files-before.Ffree, after.Files-after.Ffree)
	}
}

func TestXattrs(t *testing.T) {
	d := mount(t, "")
	path := d.path("file")
	must(t, os.WriteFile(path, nil, 0644))
	value := strings.Repeat("v", 3000)
	must(t, unix.Setxattr(path, "user.a", []byte("one"), unix.XATTR_CREATE))
	must(t, unix.Setxattr(path, "user.b", []byte(value), 0))
	must(t, unix.Setxattr(path, "user.empty", nil, 0))
	buf := make([]byte, 8192)
	for name, want := range map[string]string{"user.a": "one", "user.b": value, "user.empty": ""} {
		if n, err := unix.Getxattr(path, name, buf); err != nil || string(buf[:n]) != want {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	for what, got := range map[string]struct {
		err  error
		want error
	}{
		"create an old one":       {unix.Setxattr(path, "user.a", nil, unix.XATTR_CREATE), unix.EEXIST},
		"replace a missing one":   {unix.Setxattr(path, "user.c", nil, unix.XATTR_REPLACE), unix.ENODATA},
		"remove a missing one":    {unix.Removexattr(path, "user.c"), unix.ENODATA},
		"read into a small slice": {second(unix.Getxattr(path, "user.b", buf[:10])), unix.ERANGE},
		"read a missing one":      {second(unix.Getxattr(path, "user.c", buf)), unix.ENODATA},
		"security.capability":     {second(unix.Getxattr(path, "security.capability", buf)), unix.ENODATA},
		"set security.selinux":    {unix.Setxattr(path, "security.selinux", []byte("x"), 0), nil},
		"trusted":                 {unix.Setxattr(path, "trusted.x", []byte("x"), 0), nil},
		"system":                  {unix.Setxattr(path, "system.x", []byte("x"), 0), unix.EOPNOTSUPP},
		"no name space":           {unix.Setxattr(path, "x", []byte("x"), 0), unix.EOPNOTSUPP},
		"name space alone":        {unix.Setxattr(path, "user.", []byte("x"), 0), unix.EINVAL},
		"64 KiB":                  {unix.Setxattr(path, "user.large", make([]byte, 65536), 0), nil},
		"more than 64 KiB":        {unix.Setxattr(path, "user.large", make([]byte, 65537), 0), unix.E2BIG},
		"get an ACL":              {second(unix.Getxattr(path, "system.posix_acl_access", buf)), unix.ENODATA},
		"set a wrong ACL":         {unix.Setxattr(path, "system.posix_acl_access", []byte("x"), 0), unix.EINVAL},
	} {
		if !errors.Is(got.err, got.want) {
			t.Errorf("%s: %v, want %v", what, got.err, got.want)
		}
	}
	n, err := unix.Listxattr(path, buf)
	must(t, err)
	for _, name := range []string{"user.a", "user.b", "user.empty", "trusted.x", "security.selinux"} {
		if !strings.Contains("\x00"+string(buf[:n]), "\x00"+name+"\x00") {
			t.Errorf("%s is not in %q", name, buf[:n])
		}
	}
	if names := mustShell(t, nobody, d.point, "getfattr -m - file"); strings.Contains(names, "trusted.x") || !strings.Contains(names, "user.a") {
		t.Errorf("nobody sees %q", names)
	}
	if out, err := shell(t, nobody, d.point, "getfattr -n trusted.x file"); err == nil {
		t.Errorf("nobody reads a trusted attribute: %s", out)
	}
	must(t, unix.Removexattr(path, "user.a"))
	if _, err := unix.Getxattr(path, "user.a", buf); err != unix.ENODATA {
		t.Errorf("a removed attribute: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestReadOnlyMount(t *testing.T) {
	d := mount(t, "ro,noatime")
	for what, err := range map[string]error{
		"create": os.WriteFile(d.path("file"), nil, 0644),
		"mkdir":  os.Mkdir(d.path("dir"), 0755),
		"chmod":  os.Chmod(d.point, 0700),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want EROFS", what, err)
		}
	}
}
