package integration

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/integration/stage"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// buildTree makes one of everything that a file system holds.
func (r *rig) buildTree() {
	r.t.Helper()
	r.must(os.MkdirAll(r.path("dir/deep/er"), 0o750))
	r.must(writeSync(r.path("dir/plain"), []byte(strings.Repeat("content ", 5000))))
	r.must(os.Lchown(r.path("dir/plain"), 123, 456))
	r.must(unix.Chmod(r.path("dir/plain"), 0o4711))
	r.must(os.Link(r.path("dir/plain"), r.path("second name")))
	r.must(os.Symlink("dir/plain", r.path("link")))
	r.must(os.Lchown(r.path("link"), 7, 8))
	r.must(unix.Mkfifo(r.path("fifo"), 0o640))
	r.must(unix.Mknod(r.path("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(259, 70000))))
	r.must(unix.Mknod(r.path("socket"), unix.S_IFSOCK|0o700, 0))
	sparse, err := os.Create(r.path("dir/sparse"))
	r.must(err)
	defer sparse.Close()
	_, err = sparse.WriteAt([]byte("in the middle"), 3<<20)
	r.must(err)
	r.must(sparse.Truncate(64 << 20))
	r.must(unix.Setxattr(r.path("dir/sparse"), "user.note", []byte("small"), 0))
	r.must(unix.Setxattr(r.path("dir/sparse"), "trusted.large", []byte(strings.Repeat("x", 20000)), 0))
	_, err = stage.Run("setfacl", "-m", "u:77:rw,d:g:88:rx", r.path("dir/deep"))
	r.must(err)
	for i := range 300 {
		r.must(os.WriteFile(r.path(fmt.Sprintf("dir/deep/name %d \n\x01\xff", i)), fmt.Appendf(nil, "%d", i), 0o600))
	}
	when := []unix.Timespec{{Sec: 1_000_000_000, Nsec: 123_456_789}, {Sec: -5, Nsec: 1}}
	for _, path := range []string{r.path("link"), r.path("dir/plain"), r.path("dir/deep"), r.path("dir")} {
		r.must(unix.UtimesNanoAt(unix.AT_FDCWD, path, when, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// treeRig is mounted and has such a tree, synced, and what it looks like. Looking at it changes no access time.
func treeRig(t *testing.T) (r *rig, want []string) {
	t.Helper()
	return treeRigOf(t, setup{})
}

func treeRigOf(t *testing.T, s setup) (r *rig, want []string) {
	t.Helper()
	r = newStage(t, s)
	r.must(r.pool.Make())
	r.must(r.pool.Mount("-o", "noatime"))
	r.buildTree()
	r.must(r.pool.Sync())
	return r, describeTree(t, r.pool.Mountpoint)
}

// describeTree is a line per file below root: all that an export must keep.
func describeTree(t *testing.T, root string) (lines []string) {
	t.Helper()
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		line := fmt.Sprintf("%q mode %o links %d owner %d:%d mtime %d.%d device %#x", name, st.Mode, st.Nlink, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		if first, ok := inodes[st.Ino]; ok {
			line += " is " + first
		} else { // the content has been read by the first name
			line += fmt.Sprintf(" atime %d.%d", st.Atim.Sec, st.Atim.Nsec)
		}
		inodes[st.Ino] = name
		if !d.IsDir() {
			line += fmt.Sprintf(" size %d", st.Size)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" content %x holes %v", sha256.Sum256(content), dataRuns(t, path))
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " to " + target
		}
		lines = append(lines, line+xattrLine(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// dataRuns are the ends of data and holes of a file.
func dataRuns(t *testing.T, path string) (at []int64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off := int64(0); ; {
		data, err := f.Seek(off, unix.SEEK_DATA)
		if err != nil {
			return at
		}
		if off, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		at = append(at, data, off)
	}
}

func xattrLine(t *testing.T, path string) (line string) {
	t.Helper()
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(string(buf[:n]), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if name == "" || name == "security.selinux" {
			continue
		}
		n, err := unix.Lgetxattr(path, name, buf)
		if err != nil {
			t.Fatal(err)
		}
		line += fmt.Sprintf(" %s=%x", name, sha256.Sum256(buf[:n]))
	}
	return line
}

// TestOffline_Replica: the initiator dies; its replica, which nobody serves and nobody promoted, shows everything that was synced,
// and not one byte of it changes.
func TestOffline_Replica(t *testing.T) {
	t.Parallel()
	r, want := treeRig(t)
	r.must(r.pool.Kill())
	r.must(r.targets[0].Kill())
	part := r.replicaPart(0)
	before := checksum(t, part)
	replica := filepath.Join(r.targets[0].Dir, set)

	out, err := r.Pmemfs("fsck", replica)
	if err != nil || !strings.HasSuffix(out, "clean") {
		t.Errorf("fsck: %v, %s", err, out)
	}
	dir := r.Path("export")
	out, err = r.Pmemfs("export", replica, dir)
	if err != nil {
		t.Errorf("export: %v, %s", err, out)
	}
	if diff := cmp.Diff(want, describeTree(t, dir)); diff != "" {
		t.Errorf("the export differs (-mounted +exported):\n%s", diff)
	}
	_, err = r.Pmemfs("export", replica, dir)
	wantText(t, "export into a directory that is not empty", err, "not empty")
	r.exportTooLarge(replica)
	out, err = r.Pmemfs("cat", replica, "dir/plain")
	if err != nil || out != strings.TrimSpace(strings.Repeat("content ", 5000)) {
		t.Errorf("cat: %v, %d bytes", err, len(out))
	}
	out, err = r.Pmemfs("ls", "-l", replica, "/")
	if err != nil || !strings.Contains(out, "lrwxrwxrwx     1     7     8            9 1969-12-31 23:59:55.000000001 link -> dir/plain") ||
		!strings.Contains(out, "-rws--x--x     2   123   456        40000 1969-12-31 23:59:55.000000001 second name") || !strings.Contains(out, "259,70000") {
		t.Errorf("ls -l: %v\n%s", err, out)
	}
	out, err = r.Pmemfs("ls", "-R", replica)
	if err != nil || strings.Count(out, "\n") < 300 || !strings.Contains(out, `"name 7 \n\x01\xff"`) {
		t.Errorf("ls -R: %v\n%s", err, out)
	}
	_, err = r.Pmemfs("ls", replica, "no/such")
	wantText(t, "ls of nothing", err, "no/such")
	out, err = r.Pmemfs("dump", "--super", "--header", "--inode", "0x1", replica)
	if err != nil || !strings.Contains(out, "super slot at 0x1000: seal") || !strings.Contains(out, "state slot 0") || !strings.Contains(out, "\"link\" is inode") {
		t.Errorf("dump: %v\n%s", err, out)
	}
	out, err = r.Pmemfs("dump", "--inode", "0", replica)
	if err != nil || out != "" {
		t.Errorf("dump of inode 0, the orphans: %v\n%s", err, out)
	}
	if out, err = r.Pmemfs("dump", replica); err != nil || !strings.Contains(out, "node at 0x") || !strings.Contains(out, "log: ") {
		t.Errorf("dump of everything: %v, %d bytes", err, len(out))
	}
	if checksum(t, part) != before {
		t.Error("looking at the replica changed it")
	}
}

// TestReadOnly_Replica: a replica that nobody promoted is mounted with ro, beside the export. Not one byte of it changes, and the
// initiator goes on afterwards as if nothing had been.
func TestReadOnly_Replica(t *testing.T) {
	t.Parallel()
	r, want := treeRig(t)
	r.must(r.pool.Kill())
	r.must(r.targets[0].Kill())
	part := r.replicaPart(0)
	before := checksum(t, part)
	replica := r.replicaPool(0)
	r.must(replica.Mount("-o", "ro"))
	if diff := cmp.Diff(want, describeTree(t, replica.Mountpoint)); diff != "" {
		t.Errorf("the read-only mount differs (-initiator +replica):\n%s", diff)
	}
	wantErrno(t, "create on a mount with ro", os.WriteFile(filepath.Join(replica.Mountpoint, "new"), nil, 0o644), unix.EROFS)
	_, err := stage.Run("mount", "-i", "-o", "remount,rw", replica.Mountpoint)
	r.must(err)
	wantErrno(t, "create after a remount with rw", os.WriteFile(filepath.Join(replica.Mountpoint, "new"), nil, 0o644), unix.EROFS)
	st, err := replica.Status()
	if err != nil || st.Verdict != "READ-ONLY" || !strings.HasPrefix(st.Copies[0].State, "replica") || st.SealedLSN == 0 {
		t.Errorf("status: %v, %+v", err, st)
	}
	_, err = r.Pmemfs("fsck", replica.Config)
	wantText(t, "fsck of a mounted pool", err, "in use by process", "unmount")
	r.must(replica.Umount())
	if checksum(t, part) != before {
		t.Error("the read-only mount changed the replica")
	}
	r.must(r.targets[0].Start())
	r.must(r.pool.Mount())
	r.must(writeSync(r.path("goes on"), []byte("x")))
}

// TestReadOnly_Primary: a primary is mounted with ro while its target is away, also after a crash, and stays as it is.
func TestReadOnly_Primary(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("synced")))
	r.must(r.pool.Kill())
	r.must(r.targets[0].Kill())
	before := checksum(t, r.pool.Part)
	r.must(r.pool.Mount("-o", "ro"))
	r.wantContent(r.path("f"), "synced")
	r.must(r.pool.Umount())
	if checksum(t, r.pool.Part) != before {
		t.Error("the read-only mount changed the pool")
	}
}

// TestReadOnly_Inconsistent: half a copy is shown to whoever asks for it by name.
func TestReadOnly_Inconsistent(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("synced")))
	r.must(r.pool.Umount())
	r.must(r.targets[0].Kill())
	r.markInconsistent(r.replicaPart(0))
	replica := r.replicaPool(0)
	wantText(t, "ro of an inconsistent copy", replica.Mount("-o", "ro"), "Inconsistent")
	_, err := r.Pmemfs("ls", replica.Config)
	wantText(t, "ls of an inconsistent copy", err, "Inconsistent")
	wantText(t, "the option without ro", replica.Mount("-o", "inconsistent"), "needs", "ro")
	r.must(replica.Mount("-o", "ro,inconsistent"))
	r.must(replica.Umount())
	if out, err := r.Pmemfs("ls", "--inconsistent", replica.Config); err != nil || out != "f" {
		t.Errorf("ls --inconsistent: %q, %v", out, err)
	}
}

// exportTooLarge: a directory without room is said to be so once, and nothing more is tried.
func (r *rig) exportTooLarge(config string) {
	r.t.Helper()
	dir := r.Path("small")
	r.must(os.Mkdir(dir, 0o700))
	r.must(unix.Mount("none", dir, "tmpfs", 0, "size=16k"))
	defer func() { r.must(unix.Unmount(dir, 0)) }()
	out, err := r.Pmemfs("export", config, dir)
	wantText(r.t, "export without room", err, dir+" is not whole", "no space left on device", "make room")
	if text := fmt.Sprint(err); strings.Count(text, "no space left") != 1 || strings.Contains(text, "could not be read") || strings.Contains(out, "exported") {
		r.t.Errorf("export without room: %v\n%s", err, out)
	}
}

// markInconsistent sets the flag in both state slots of a part, as a copy that is under way does.
func (r *rig) markInconsistent(part string) {
	r.t.Helper()
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	block, h := r.header(f)
	s, slot, err := poolset.CurrentState(block, h.PoolUUID)
	r.must(err)
	s.Flags |= poolset.Inconsistent
	var b [poolset.StateLen]byte
	s.Encode(b[:], h.PoolUUID)
	_, err = f.WriteAt(b[:], int64(poolset.StateOff+slot*poolset.StateLen))
	r.must(err)
}
