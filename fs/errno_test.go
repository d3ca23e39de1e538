package fs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The classes of cases of pjdfstest: each call with each kind of bad path, then what is special to the call, then the times that
// it changes. They run against a mount, as root or as somebody with no rights.

// as runs f with the rights of a user who is in the group of the same number and in no other. Only this thread has them, and
// it gets its own back: were it to end, the daemon that it started would be killed.
func as(uid int, f func() error) error {
	if uid == 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	groups, err := unix.Getgroups()
	if err != nil {
		return err
	}
	if err := setThreadGroups(nil); err != nil {
		return err
	}
	unix.Setfsgid(uid)
	unix.Setfsuid(uid)
	defer func() {
		unix.Setfsuid(0)
		unix.Setfsgid(0)
		if err := setThreadGroups(groups); err != nil {
			panic(err)
		}
	}()
	return f()
}

// scene is a directory with one thing of each kind.
func scene(t *testing.T, d *daemon) func(string) string {
	t.Helper()
	must(t, os.Chmod(d.point, 0755))
	at := func(name string) string { return d.point + "/scene/" + name } // as it stands, with its dots and slashes
	must(t, os.RemoveAll(d.path("scene")))
	for _, dir := range []string{"", "dir/sub", "empty", "secret/sub", "shut", "sticky", "open"} {
		must(t, os.MkdirAll(at(dir), 0755))
	}
	for _, file := range []string{"file", "dir/file", "secret/file", "shut/file", "sticky/file", "private"} {
		must(t, os.WriteFile(at(file), []byte("content"), 0644))
	}
	must(t, os.Mkdir(at("sticky/sub"), 0755))
	for name, mode := range map[string]uint32{"": 0777, "secret": 0700, "sticky": 01777, "private": 0600, "open": 0777} {
		must(t, unix.Chmod(at(name), mode))
	}
	must(t, os.WriteFile(at("mine"), nil, 0644))
	must(t, os.Mkdir(at("myempty"), 0755))
	must(t, os.Chown(at("mine"), nobody, nobody))
	must(t, os.Chown(at("myempty"), nobody, nobody))
	for link, target := range map[string]string{"link": "file", "dirlink": "dir", "loop": "loop", "dangling": "nothing"} {
		must(t, os.Symlink(target, at(link)))
	}
	must(t, unix.Mkfifo(at("fifo"), 0666))
	must(t, unix.Mknod(at("socket"), unix.S_IFSOCK|0666, 0))
	return at
}

func openOnce(path string, flags int, mode uint32) error {
	fd, err := unix.Open(path, flags, mode)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// calls takes each call to a path.
func calls(at func(string) string) map[string]func(path string) error {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	return map[string]func(string) error{
		"chmod":       func(p string) error { return unix.Chmod(p, 0600) },
		"chown":       func(p string) error { return unix.Chown(p, 1, 1) },
		"lchown":      func(p string) error { return unix.Lchown(p, 1, 1) },
		"link":        func(p string) error { return unix.Link(at("mine"), p) },
		"link from":   func(p string) error { return unix.Link(p, at("new")) },
		"mkdir":       func(p string) error { return unix.Mkdir(p, 0755) },
		"mkfifo":      func(p string) error { return unix.Mkfifo(p, 0644) },
		"mknod":       func(p string) error { return unix.Mknod(p, unix.S_IFREG|0644, 0) },
		"open":        func(p string) error { return openOnce(p, unix.O_RDONLY, 0) },
		"create":      func(p string) error { return openOnce(p, unix.O_CREAT|unix.O_WRONLY, 0644) },
		"rename":      func(p string) error { return unix.Rename(at("file"), p) },
		"rename from": func(p string) error { return unix.Rename(p, at("new")) },
		"rmdir":       func(p string) error { return unix.Rmdir(p) },
		"symlink":     func(p string) error { return unix.Symlink("target", p) },
		"truncate":    func(p string) error { return unix.Truncate(p, 5) },
		"unlink":      func(p string) error { return unix.Unlink(p) },
		"utimensat":   func(p string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p, now, 0) },
	}
}

func TestErrno_BadPaths(t *testing.T) {
	d := mount(t, "")
	at := scene(t, d)
	long := strings.Repeat("n", 256)
	paths := []struct {
		what, path string
		uid        int
		want       error
	}{
		{"below a file", at("file/x"), 0, unix.ENOTDIR},
		{"below a fifo", at("fifo/x"), 0, unix.ENOTDIR},
		{"below nothing", at("nothing/x"), 0, unix.ENOENT},
		{"below a dangling link", at("dangling/x"), 0, unix.ENOENT},
		{"below a loop", at("loop/x"), 0, unix.ELOOP},
		{"long name", at(long), 0, unix.ENAMETOOLONG},
		{"below a long name", at(long + "/x"), 0, unix.ENAMETOOLONG},
		{"long path", at(strings.Repeat("./", 2048) + "x"), 0, unix.ENAMETOOLONG},
		{"empty path", "", 0, unix.ENOENT},
		{"no search", at("secret/file"), nobody, unix.EACCES},
	}
	for call, do := range calls(at) {
		for _, p := range paths {
			if err := as(p.uid, func() error { return do(p.path) }); err != p.want {
				t.Errorf("%s, %s: %v, want %v", call, p.what, err, p.want)
			}
		}
		if st := stat(t, at("file")); st.Size != 7 || st.Nlink != 1 || st.Mode&0777 != 0644 {
			t.Fatalf("%s changed something: %+v", call, st)
		}
	}
}

func TestErrno_NameExistsOrNot(t *testing.T) {
	d := mount(t, "")
	at := scene(t, d)
	for call, do := range calls(at) {
		switch call {
		case "link", "mkdir", "mkfifo", "mknod", "symlink":
			for _, name := range []string{"file", "dir", "fifo", "socket", "link", "dangling", "loop"} {
				if err := do(at(name)); err != unix.EEXIST {
					t.Errorf("%s of %s: %v, want EEXIST", call, name, err)
				}
			}
			if err := as(nobody, func() error { return do(at("shut/new")) }); err != unix.EACCES {
				t.Errorf("%s in a directory without write permission: %v, want EACCES", call, err)
			}
		case "create", "rename":
		default:
			for _, name := range []string{"nothing", "dir/nothing", "dirlink/nothing"} {
				if err := do(at(name)); err != unix.ENOENT {
					t.Errorf("%s of %s: %v, want ENOENT", call, name, err)
				}
			}
		}
	}
}

func TestErrno_EachCall(t *testing.T) {
	d := mount(t, "")
	var at func(string) string
	elsewhere := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(elsewhere, nil, 0666))
	open := func(name string, flags int) func() error {
		return func() error { return openOnce(at(name), flags, 0644) }
	}
	times := func(name string, a, m int64, flags int) func() error {
		return func() error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{{Sec: 1, Nsec: a}, {Sec: 1, Nsec: m}}, flags)
		}
	}
	rename := func(from, to string) func() error { return func() error { return unix.Rename(at(from), at(to)) } }
	for _, tc := range []struct {
		what string
		uid  int
		do   func() error
		want error
	}{
		{"chmod of another's file", nobody, func() error { return unix.Chmod(at("file"), 0600) }, unix.EPERM},
		{"chmod of one's own", nobody, func() error { return unix.Chmod(at("mine"), 0600) }, nil},
		{"chmod of a loop", 0, func() error { return unix.Chmod(at("loop"), 0600) }, unix.ELOOP},
		{"chown of another's file", nobody, func() error { return unix.Chown(at("file"), nobody, nobody) }, unix.EPERM},
		{"chown to another", nobody, func() error { return unix.Chown(at("mine"), 1, -1) }, unix.EPERM},
		{"chown to a group of others", nobody, func() error { return unix.Chown(at("mine"), -1, 1) }, unix.EPERM},
		{"chown to one's own", nobody, func() error { return unix.Chown(at("mine"), nobody, nobody) }, nil},
		{"lchown of a dangling link", 0, func() error { return unix.Lchown(at("dangling"), 1, 1) }, nil},
		{"link of a directory", 0, func() error { return unix.Link(at("dir"), at("new")) }, unix.EPERM},
		{"link of a symlink", 0, func() error { return unix.Link(at("dangling"), at("new")) }, nil},
		{"link from elsewhere", 0, func() error { return unix.Link(elsewhere, at("new")) }, unix.EXDEV},
		{"link to elsewhere", 0, func() error { return unix.Link(at("file"), elsewhere+"2") }, unix.EXDEV},
		{"mknod of a block device", nobody, func() error { return unix.Mknod(at("open/b"), unix.S_IFBLK, 1) }, unix.EPERM},
		{"mknod of a character device", nobody, func() error { return unix.Mknod(at("open/c"), unix.S_IFCHR, 1) }, unix.EPERM},
		{"mknod of a socket", nobody, func() error { return unix.Mknod(at("open/s"), unix.S_IFSOCK, 0) }, nil},
		{"mknod of a directory", 0, func() error { return unix.Mknod(at("open/d"), unix.S_IFDIR, 0) }, unix.EPERM},
		{"mkdir with a slash at the end", 0, func() error { return unix.Mkdir(at("new/"), 0755) }, nil},
		{"create with O_EXCL", 0, open("file", unix.O_CREAT|unix.O_EXCL), unix.EEXIST},
		{"create a dangling link with O_EXCL", 0, open("dangling", unix.O_CREAT|unix.O_EXCL), unix.EEXIST},
		{"create without write permission", nobody, open("shut/new", unix.O_CREAT|unix.O_WRONLY), unix.EACCES},
		{"open a file as a directory", 0, open("file", unix.O_DIRECTORY), unix.ENOTDIR},
		{"open a link with O_NOFOLLOW", 0, open("link", unix.O_NOFOLLOW), unix.ELOOP},
		{"open a loop", 0, open("loop", unix.O_RDONLY), unix.ELOOP},
		{"open a directory for writing", 0, open("dir", unix.O_RDWR), unix.EISDIR},
		{"open a directory with O_CREAT", 0, open("dir", unix.O_CREAT), unix.EISDIR},
		{"open a fifo without a reader", 0, open("fifo", unix.O_WRONLY|unix.O_NONBLOCK), unix.ENXIO},
		{"open a socket", 0, open("socket", unix.O_RDONLY), unix.ENXIO},
		{"open without read permission", nobody, open("private", unix.O_RDONLY), unix.EACCES},
		{"open without write permission", nobody, open("file", unix.O_RDWR), unix.EACCES},
		{"open with O_TRUNC without write permission", nobody, open("file", unix.O_RDONLY|unix.O_TRUNC), unix.EACCES},
		{"rename a file over a directory", 0, rename("file", "empty"), unix.EISDIR},
		{"rename a directory over a file", 0, rename("dir", "file"), unix.ENOTDIR},
		{"rename over a full directory", 0, rename("empty", "dir"), unix.ENOTEMPTY},
		{"rename over an empty directory", 0, rename("dir", "empty"), nil},
		{"rename into itself", 0, rename("dir", "dir/sub/x"), unix.EINVAL},
		{"rename over an ancestor", 0, rename("dir/sub", "dir"), unix.ENOTEMPTY},
		{"rename of .", 0, rename("dir/.", "new"), unix.EBUSY},
		{"rename to elsewhere", 0, func() error { return unix.Rename(at("file"), elsewhere) }, unix.EXDEV},
		{"rename over another name of it", 0, func() error {
			must(t, unix.Link(at("file"), at("second")))
			must(t, unix.Rename(at("file"), at("second")))
			return unix.Unlink(at("file"))
		}, nil},
		{"rename out of a directory without write permission", nobody, rename("shut/file", "open/x"), unix.EACCES},
		{"rename into one", nobody, rename("mine", "shut/x"), unix.EACCES},
		{"rename another's file in a sticky directory", nobody, rename("sticky/file", "sticky/x"), unix.EPERM},
		{"rename over one", nobody, rename("mine", "sticky/file"), unix.EPERM},
		{"rename another's directory, whose .. changes", nobody, rename("empty", "open/x"), unix.EACCES},
		{"rename one's own directory", nobody, rename("myempty", "open/x"), nil},
		{"rmdir of a full directory", 0, func() error { return unix.Rmdir(at("dir")) }, unix.ENOTEMPTY},
		{"rmdir of a file", 0, func() error { return unix.Rmdir(at("file")) }, unix.ENOTDIR},
		{"rmdir of a link to a directory", 0, func() error { return unix.Rmdir(at("dirlink")) }, unix.ENOTDIR},
		{"rmdir of .", 0, func() error { return unix.Rmdir(at("empty/.")) }, unix.EINVAL},
		{"rmdir of ..", 0, func() error { return unix.Rmdir(at("dir/sub/..")) }, unix.ENOTEMPTY},
		{"rmdir of the mount point", 0, func() error { return unix.Rmdir(d.point) }, unix.EBUSY},
		{"rmdir in a sticky directory", nobody, func() error { return unix.Rmdir(at("sticky/sub")) }, unix.EPERM},
		{"rmdir without write permission", nobody, func() error { return unix.Rmdir(at("dir/sub")) }, unix.EACCES},
		{"symlink to nothing", 0, func() error { return unix.Symlink("", at("new")) }, unix.ENOENT},
		{"symlink with a long target", 0, func() error { return unix.Symlink(strings.Repeat("t", 4096), at("new")) }, unix.ENAMETOOLONG},
		{"truncate of a directory", 0, func() error { return unix.Truncate(at("dir"), 0) }, unix.EISDIR},
		{"truncate of a fifo", 0, func() error { return unix.Truncate(at("fifo"), 0) }, unix.EINVAL},
		{"truncate below zero", 0, func() error { return unix.Truncate(at("file"), -1) }, unix.EINVAL},
		{"truncate too far", 0, func() error { return unix.Truncate(at("file"), 1<<62) }, unix.EFBIG},
		{"truncate without write permission", nobody, func() error { return unix.Truncate(at("file"), 0) }, unix.EACCES},
		{"unlink of a directory", 0, func() error { return unix.Unlink(at("empty")) }, unix.EISDIR},
		{"unlink of a link to a directory", 0, func() error { return unix.Unlink(at("dirlink")) }, nil},
		{"unlink in a sticky directory", nobody, func() error { return unix.Unlink(at("sticky/file")) }, unix.EPERM},
		{"unlink without write permission", nobody, func() error { return unix.Unlink(at("shut/file")) }, unix.EACCES},
		{"times to now of another's file", nobody, times("file", unix.UTIME_NOW, unix.UTIME_NOW, 0), unix.EACCES},
		{"times of another's file", nobody, times("file", 1, 1, 0), unix.EPERM},
		{"times omitted", nobody, times("file", unix.UTIME_OMIT, unix.UTIME_OMIT, 0), nil},
		{"times with too many nanoseconds", 0, times("file", 1e9, 0, 0), unix.EINVAL},
		{"times of a dangling link", 0, times("dangling", 1, 1, unix.AT_SYMLINK_NOFOLLOW), nil},
		{"times of what a dangling link names", 0, times("dangling", 1, 1, 0), unix.ENOENT},
		{"times of a loop", 0, times("loop", 1, 1, 0), unix.ELOOP},
	} {
		at = scene(t, d)
		if err := as(tc.uid, tc.do); err != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
	}
}

func TestErrno_ReadOnly(t *testing.T) {
	d := mount(t, "")
	at := scene(t, d)
	must(t, unix.Mount("", d.point, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for call, do := range calls(at) {
		path, want := at("file"), error(unix.EROFS)
		switch call {
		case "open":
			want = nil
		case "rmdir":
			path = at("empty")
		case "link", "mkdir", "mkfifo", "mknod", "create", "rename", "symlink":
			path = at("new")
		}
		if err := do(path); err != want {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
}

func TestErrno_TextBusy(t *testing.T) {
	d := mount(t, "")
	program, err := os.ReadFile("/bin/sleep")
	must(t, err)
	must(t, os.WriteFile(d.path("sleep"), program, 0755))
	running := exec.Command(d.path("sleep"), "60")
	must(t, running.Start())
	defer running.Wait()
	defer running.Process.Kill()
	if err := openOnce(d.path("sleep"), unix.O_WRONLY, 0); err != unix.ETXTBSY {
		t.Errorf("open of a running program for writing: %v, want ETXTBSY", err)
	}
	if err := unix.Truncate(d.path("sleep"), 0); err != unix.ETXTBSY {
		t.Errorf("truncate of a running program: %v, want ETXTBSY", err)
	}
}

// Each call moves the times that POSIX says it does, and only those; one that fails moves none.
func TestTimesMoved(t *testing.T) {
	d := mount(t, "")
	at := scene(t, d)
	type moved struct{ ctime, mtime bool }
	old := []unix.Timespec{{Sec: 5}, {Sec: 5}}
	look := func(name string) [2]unix.Timespec {
		st := stat(t, at(name))
		return [2]unix.Timespec{st.Ctim, st.Mtim}
	}
	for _, tc := range []struct {
		what string
		do   func() error
		want map[string]moved // by name
	}{
		{"chmod", func() error { return unix.Chmod(at("file"), 0600) }, map[string]moved{"file": {true, false}, "": {}}},
		{"chown", func() error { return unix.Chown(at("file"), 0, 0) }, map[string]moved{"file": {true, false}, "": {}}},
		{"link", func() error { return unix.Link(at("file"), at("open/l")) }, map[string]moved{"file": {true, false}, "open": {true, true}, "": {}}},
		{"unlink", func() error { return unix.Unlink(at("open/l")) }, map[string]moved{"file": {true, false}, "open": {true, true}}},
		{"mkdir", func() error { return unix.Mkdir(at("open/d"), 0755) }, map[string]moved{"open": {true, true}, "": {}}},
		{"rmdir", func() error { return unix.Rmdir(at("open/d")) }, map[string]moved{"open": {true, true}, "": {}}},
		{"mkfifo", func() error { return unix.Mkfifo(at("open/p"), 0644) }, map[string]moved{"open": {true, true}}},
		{"symlink", func() error { return unix.Symlink("x", at("open/s")) }, map[string]moved{"open": {true, true}}},
		{"rename", func() error { return unix.Rename(at("open/p"), at("dir/p")) }, map[string]moved{"open": {true, true}, "dir": {true, true}, "": {}}},
		{"truncate", func() error { return unix.Truncate(at("file"), 3) }, map[string]moved{"file": {true, true}, "": {}}},
		{"truncate to the same size", func() error { return unix.Truncate(at("file"), 3) }, map[string]moved{"file": {true, true}}},
		{"open", func() error { return openOnce(at("file"), unix.O_RDWR, 0) }, map[string]moved{"file": {}, "": {}}},
		{"open with O_TRUNC", func() error { return openOnce(at("file"), unix.O_RDWR|unix.O_TRUNC, 0) }, map[string]moved{"file": {true, true}, "": {}}},
		{"setxattr", func() error { return unix.Setxattr(at("file"), "user.a", nil, 0) }, map[string]moved{"file": {true, false}, "": {}}},
		{"failed rmdir", func() error { must(t, ignore(unix.Rmdir(at("dir")), unix.ENOTEMPTY)); return nil }, map[string]moved{"dir": {}, "": {}}},
		{"failed link", func() error { must(t, ignore(unix.Link(at("file"), at("dir")), unix.EEXIST)); return nil }, map[string]moved{"file": {}, "": {}}},
		{"failed rename", func() error { must(t, ignore(unix.Rename(at("dir"), at("file")), unix.ENOTDIR)); return nil }, map[string]moved{"file": {}, "dir": {}, "": {}}},
	} {
		before := map[string][2]unix.Timespec{}
		for name := range tc.want {
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), old, 0))
			before[name] = look(name)
		}
		time.Sleep(time.Millisecond)
		must(t, tc.do())
		for name, want := range tc.want {
			after := look(name)
			if got := (moved{after[0] != before[name][0], after[1] != before[name][1]}); got != want {
				t.Errorf("%s, %q: moved %+v, want %+v", tc.what, name, got, want)
			}
		}
	}
}

// ignore is nil for the error that was to come.
func ignore(err, expected error) error {
	if err == expected {
		return nil
	}
	return &os.PathError{Op: "expected " + expected.Error() + ", got", Err: err}
}
