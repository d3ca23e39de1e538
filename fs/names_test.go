package fs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"
)

// notSupported names the cases of the posix suite that a mount refuses, with what it answers instead.
var notSupported = map[string]string{
	"FcntlFlockLocksFile": "expects fcntl locks of one process to exclude each other, as they do where a server turns them into locks of " +
		"its own; POSIX says that they do not. TestLocks has the case with two processes",
}

func TestPosix(t *testing.T) {
	d := mount(t, "")
	for name, run := range posixtest.All {
		dir := d.path(name)
		must(t, os.Mkdir(dir, 0755))
		var inner *testing.T
		if reason, ok := notSupported[name]; ok {
			t.Logf("%s: %s", name, reason)
			continue
		}
		t.Run(name, func(t *testing.T) {
			inner = t
			run(t, dir)
		})
		if inner != nil && inner.Skipped() {
			t.Errorf("%s was skipped: list it in notSupported with the reason, or make it work", name)
		}
	}
}

// waitInodes waits until so many inodes are in use: the kernel sends FORGET when it likes. That the number is reached
// shows that each reference given to the kernel was counted once.
func (d *daemon) waitInodes(want uint64) {
	d.t.Helper()
	var got uint64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		d.tell("checkpoint")
		if got = inodesInUse(d.t, d.point); got == want {
			return
		}
	}
	d.t.Fatalf("%d inodes in use, want %d", got, want)
}

func TestLookupCounts(t *testing.T) {
	d := mount(t, "")
	before := inodesInUse(t, d.point)
	mustShell(t, 0, d.point, `
		for i in 1 2 3 4 5 6 7 8 9; do
			mkdir d$i; echo x > d$i/file; ln d$i/file d$i/hard; ln -s file d$i/soft; mkfifo d$i/pipe
		done
		ls -lR . > /dev/null; ls -la d1 d2 > /dev/null; find . -name nothing; cat d*/soft > /dev/null
		mv d1/file d2/moved; mv d3/soft d4/soft`)
	if got := inodesInUse(t, d.point); got <= before {
		t.Fatalf("%d inodes in use with files, %d without", got, before)
	}
	mustShell(t, 0, d.point, "rm -r d*")
	d.waitInodes(before)
}

// listing reads a directory with a small buffer and returns how often each name came.
func listing(t *testing.T, dir string, between func()) map[string]int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	seen := map[string]int{}
	buf := make([]byte, 1024)
	for {
		n, err := unix.Getdents(fd, buf)
		must(t, err)
		if n == 0 {
			return seen
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e fuse.DirEntry
			rest = rest[e.Parse(rest):]
			seen[e.Name]++
		}
		between()
	}
}

func TestReaddir_StableEntriesOnceWhileOthersChange(t *testing.T) {
	const stable = 10000
	d := mount(t, "")
	dir := d.path("dir")
	must(t, os.Mkdir(dir, 0755))
	for i := range stable {
		must(t, unix.Mknod(filepath.Join(dir, fmt.Sprintf("stable-%05d", i)), unix.S_IFREG|0644, 0))
	}
	step := 0
	seen := listing(t, dir, func() {
		must(t, unix.Mknod(filepath.Join(dir, fmt.Sprintf("new-%d", step)), unix.S_IFREG|0644, 0))
		if step > 10 {
			must(t, os.Remove(filepath.Join(dir, fmt.Sprintf("new-%d", step-10))))
		}
		step++
	})
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", name, n)
		}
	}
	for i := range stable {
		if name := fmt.Sprintf("stable-%05d", i); seen[name] != 1 {
			t.Fatalf("%s came %d times", name, seen[name])
		}
	}
	if seen["."] != 1 || seen[".."] != 1 {
		t.Errorf(". and .. came %d and %d times", seen["."], seen[".."])
	}
	mustShell(t, 0, dir, "find . -type f -delete")
	must(t, os.Remove(dir))
}

func TestNames(t *testing.T) {
	d := mount(t, "")
	for _, name := range []string{
		"a", strings.Repeat("n", 255), strings.Repeat("\u20ac", 85), "new\nline", "\xff\xfe\x80", "-rf", "...", " ", `back\slash`,
	} {
		must(t, os.WriteFile(d.path(name), []byte(name), 0644))
		got, err := os.ReadFile(d.path(name))
		if err != nil || string(got) != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
		if seen := listing(t, d.point, func() {}); seen[name] != 1 {
			t.Errorf("%q came %d times", name, seen[name])
		}
	}
	long := d.path(strings.Repeat("n", 256))
	for what, err := range map[string]error{
		"create":  os.WriteFile(long, nil, 0644),
		"stat":    func() error { _, err := os.Stat(long); return err }(),
		"mkdir":   os.Mkdir(long, 0755),
		"rename":  os.Rename(d.path("a"), long),
		"link":    os.Link(d.path("a"), long),
		"symlink": os.Symlink("a", long),
	} {
		if !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("%s with a name of 256 bytes: %v, want ENAMETOOLONG", what, err)
		}
	}
	for _, n := range []int{1, 255, 256, 257, 4095} {
		target, link := strings.Repeat("t", n), d.path(fmt.Sprintf("link%d", n))
		must(t, os.Symlink(target, link))
		cost, _ := d.requests(func() {
			for range 2 {
				if got, err := os.Readlink(link); err != nil || got != target {
					t.Errorf("link of %d bytes reads %d bytes, %v", n, len(got), err)
				}
			}
		})
		if cost[OpReadlink] != 1 {
			t.Errorf("%d READLINK for two looks at a link of %d bytes", cost[OpReadlink], n)
		}
	}
}

// A name that was looked up in vain and then comes into being by any call is seen.
func TestNegativeNamesEnd(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("file"), nil, 0644))
	for i, create := range []func(string) error{
		func(p string) error { return os.WriteFile(p, nil, 0644) },
		func(p string) error { return os.Mkdir(p, 0755) },
		func(p string) error { return os.Symlink("file", p) },
		func(p string) error { return os.Link(d.path("file"), p) },
		func(p string) error { return os.Rename(d.path("file"), p) },
		func(p string) error { return unix.Mkfifo(p, 0644) },
	} {
		p := d.path(fmt.Sprintf("name%d", i))
		cost, _ := d.requests(func() {
			for range 3 {
				if _, err := os.Lstat(p); !errors.Is(err, unix.ENOENT) {
					t.Errorf("%d: %v before it exists", i, err)
				}
			}
		})
		if cost[OpLookup] != 1 {
			t.Errorf("%d LOOKUP for three looks at a name that does not exist", cost[OpLookup])
		}
		must(t, create(p))
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestRenameFlags(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("a"), []byte("a"), 0644))
	must(t, os.WriteFile(d.path("b"), []byte("b"), 0644))
	rename := func(flags uint) error {
		return unix.Renameat2(unix.AT_FDCWD, d.path("a"), unix.AT_FDCWD, d.path("b"), flags)
	}
	if err := rename(unix.RENAME_NOREPLACE); err != unix.EEXIST {
		t.Errorf("RENAME_NOREPLACE: %v, want EEXIST", err)
	}
	if got, _ := os.ReadFile(d.path("b")); string(got) != "b" {
		t.Errorf("b reads %q", got)
	}
}

func TestRenameExchange(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("file"), []byte("content"), 0644))
	must(t, os.MkdirAll(d.path("dir/sub"), 0755))
	exchange := func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, d.path(a), unix.AT_FDCWD, d.path(b), unix.RENAME_EXCHANGE)
	}
	must(t, exchange("file", "dir/sub"))
	if got, err := os.ReadFile(d.path("dir/sub")); err != nil || string(got) != "content" {
		t.Errorf("the file reads %q, %v", got, err)
	}
	if a, b := stat(t, d.path("dir")).Nlink, stat(t, d.point).Nlink; a != 2 || b != 4 {
		t.Errorf("links of the directories: %d and %d, want 2 and 4", a, b)
	}
	if a, b := stat(t, d.path("file/..")).Ino, stat(t, d.point).Ino; a != b {
		t.Errorf("the parent of the directory is %d, want %d", a, b)
	}
	must(t, os.Mkdir(d.path("file/deep"), 0755))
	for what, tc := range map[string]struct{ err, want error }{
		"missing":     {exchange("file", "nothing"), unix.ENOENT},
		"with parent": {exchange("file/deep", "file"), unix.EINVAL},
		"with child":  {exchange("file", "file/deep"), unix.EINVAL},
		"noreplace": {unix.Renameat2(unix.AT_FDCWD, d.path("file"), unix.AT_FDCWD, d.path("dir"),
			unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE), unix.EINVAL},
	} {
		if tc.err != tc.want {
			t.Errorf("%s: %v, want %v", what, tc.err, tc.want)
		}
	}
}

func TestRenameWhiteout(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("file"), []byte("content"), 0644))
	must(t, unix.Renameat2(unix.AT_FDCWD, d.path("file"), unix.AT_FDCWD, d.path("moved"), unix.RENAME_WHITEOUT))
	if st := stat(t, d.path("file")); st.Mode != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("whiteout: mode %o, device %#x", st.Mode, st.Rdev)
	}
	if got, err := os.ReadFile(d.path("moved")); err != nil || string(got) != "content" {
		t.Errorf("the file reads %q, %v", got, err)
	}
	must(t, os.Remove(d.path("file")))
}

func TestSyncOptionsCoverNames(t *testing.T) {
	for options, drains := range map[string]uint64{"": 0, "dirsync": 1, "sync": 1} {
		d := mount(t, options)
		must(t, os.Mkdir(d.path("dir"), 0755))
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"mknod", func() error { return unix.Mknod(d.path("a"), unix.S_IFREG|0644, 0) }},
			{"link", func() error { return os.Link(d.path("a"), d.path("b")) }},
			{"rename", func() error { return os.Rename(d.path("b"), d.path("dir/c")) }},
			{"unlink", func() error { return unix.Unlink(d.path("dir/c")) }},
			{"symlink", func() error { return os.Symlink("a", d.path("s")) }},
			{"mkdir", func() error { return os.Mkdir(d.path("dir/e"), 0755) }},
			{"rmdir", func() error { return unix.Rmdir(d.path("dir/e")) }},
		} {
			if _, got := d.requests(func() { must(t, step.do()) }); got != drains {
				t.Errorf("option %q, %s: %d drains, want %d", options, step.name, got, drains)
			}
		}
	}
}

func TestFsyncDir(t *testing.T) {
	d := mount(t, "")
	dir, err := os.Open(d.point)
	must(t, err)
	defer dir.Close()
	must(t, os.WriteFile(d.path("file"), nil, 0644))
	cost, drains := d.requests(func() { must(t, dir.Sync()) })
	if cost[OpFsyncDir] != 1 || drains != 1 {
		t.Errorf("fsync of a directory with a new name: %v, %d drains", cost, drains)
	}
	if _, drains := d.requests(func() { must(t, dir.Sync()) }); drains != 0 {
		t.Errorf("a second fsync: %d drains", drains)
	}
}

func TestOpenByHandle(t *testing.T) {
	d := mount(t, "")
	must(t, os.WriteFile(d.path("file"), []byte("content"), 0644))
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, d.path("file"), 0)
	must(t, err)
	must(t, os.Rename(d.path("file"), d.path("moved")))
	mnt, err := unix.Open(d.point, unix.O_RDONLY, 0)
	must(t, err)
	defer unix.Close(mnt)
	fd, err := unix.OpenByHandleAt(mnt, handle, unix.O_RDONLY)
	must(t, err)
	defer unix.Close(fd)
	buf := make([]byte, 10)
	if n, err := unix.Read(fd, buf); err != nil || string(buf[:n]) != "content" {
		t.Errorf("read %q, %v", buf[:max(n, 0)], err)
	}
}
