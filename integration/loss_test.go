package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/integration/stage"
	"github.com/pmemfs/pmemfs/internal/control"
)

const (
	lossTimeout = time.Second
	// lossLimit is the timeout and what a busy machine may add.
	lossLimit = lossTimeout + 6*time.Second
)

func TestTargetLost_Killed(t *testing.T) {
	t.Parallel()
	targetLost(t, (*stage.Target).Kill, (*stage.Target).Start)
}

// TestTargetLost_Silent: the connections stay, but nobody answers.
func TestTargetLost_Silent(t *testing.T) {
	t.Parallel()
	targetLost(t, (*stage.Target).Pause, (*stage.Target).Resume)
}

// files are those that the test holds open while the target goes.
type files struct{ synced, dsync, dirty *os.File }

func (r *rig) openFiles() files {
	r.t.Helper()
	var f files
	var err error
	f.synced, err = os.Create(r.path("synced"))
	r.must(err)
	f.dsync, err = os.OpenFile(r.path("dsync"), os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644)
	r.must(err)
	f.dirty, err = os.Create(r.path("dirty"))
	r.must(err)
	r.t.Cleanup(func() { f.synced.Close(); f.dsync.Close(); f.dirty.Close() })
	return f
}

// dirtyMapping maps a file and changes it through the mapping.
func (r *rig) dirtyMapping() []byte {
	r.t.Helper()
	f, err := os.Create(r.path("mapped"))
	r.must(err)
	defer f.Close()
	r.must(f.Truncate(4096))
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	r.must(err)
	m[0] = 1
	return m
}

func targetLost(t *testing.T, lose, bringBack func(*stage.Target) error) {
	r := newRig(t, setup{config: []string{fmt.Sprintf("timeout = %q", lossTimeout), `commit_interval = "1h"`}})
	r.must(os.Mkdir(r.path("dir"), 0o755))
	r.must(writeSync(r.path("kept"), []byte("kept")))
	f := r.openFiles()
	mapped := r.dirtyMapping()
	_, err := f.dirty.WriteString("never synced")
	r.must(err)
	r.must(lose(r.targets[0]))

	_, err = f.synced.WriteString("lost")
	r.must(err)
	wantErrno(t, "fsync", within(t, lossLimit, "fsync", f.synced.Sync), syscall.EIO)
	r.afterLoss(f)
	wantErrno(t, "msync", within(t, soon, "msync", func() error { return unix.Msync(mapped, unix.MS_SYNC) }), syscall.EIO)
	r.must(unix.Munmap(mapped))
	r.boundedAfterLoss()
	wantErrno(t, "umount while files are open", within(t, lossLimit, "umount", func() error { return unix.Unmount(r.pool.Mountpoint, 0) }), syscall.EBUSY)
	wantErrno(t, "close after a failed fsync", f.synced.Close(), syscall.EIO)
	f.dsync.Close()
	wantText(t, "umount", within(t, lossLimit, "umount", r.pool.Umount), "not everything is replicated")

	r.must(bringBack(r.targets[0]))
	r.must(r.pool.Mount())
	r.wantContent(r.path("kept"), "kept")
	r.must(writeSync(r.path("again"), []byte("again")))
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	r.wantContent(filepath.Join(replica.Mountpoint, "kept"), "kept")
	r.wantContent(filepath.Join(replica.Mountpoint, "again"), "again")
}

// afterLoss checks what a program sees from the first failure on.
func (r *rig) afterLoss(f files) {
	t := r.t
	t.Helper()
	for range 2 {
		wantErrno(t, "fsync again", within(t, soon, "fsync", f.synced.Sync), syscall.EIO)
		wantErrno(t, "O_SYNC write", within(t, soon, "O_SYNC write", func() error { _, err := f.dsync.WriteString("x"); return err }), syscall.EIO)
	}
	wantErrno(t, "close of a file with unsynced content", within(t, soon, "close", f.dirty.Close), syscall.EIO)
	for what, fn := range map[string]func() error{
		"write":     func() error { _, err := f.synced.WriteString("x"); return err },
		"create":    func() error { return os.WriteFile(r.path("new"), nil, 0o644) },
		"mkdir":     func() error { return os.Mkdir(r.path("newdir"), 0o755) },
		"unlink":    func() error { return os.Remove(r.path("kept")) },
		"rmdir":     func() error { return unix.Rmdir(r.path("dir")) },
		"rename":    func() error { return os.Rename(r.path("kept"), r.path("moved")) },
		"link":      func() error { return os.Link(r.path("kept"), r.path("link")) },
		"symlink":   func() error { return os.Symlink("kept", r.path("symlink")) },
		"chmod":     func() error { return os.Chmod(r.path("kept"), 0o600) },
		"truncate":  func() error { return os.Truncate(r.path("kept"), 1) },
		"setxattr":  func() error { return unix.Setxattr(r.path("kept"), "user.x", []byte("x"), 0) },
		"fallocate": func() error { return unix.Fallocate(int(f.synced.Fd()), 0, 0, 1<<20) },
	} {
		wantErrno(t, what, within(t, soon, what, fn), syscall.EROFS)
	}
	r.wantContent(r.path("kept"), "kept")
	if _, err := os.ReadDir(r.pool.Mountpoint); err != nil {
		t.Errorf("readdir after the loss: %v", err)
	}
}

// boundedAfterLoss checks that df and status neither hang nor paint a rosy picture.
func (r *rig) boundedAfterLoss() {
	t := r.t
	t.Helper()
	err := within(t, soon, "df", func() error { _, err := stage.Run("df", r.pool.Mountpoint); return err })
	if err != nil {
		t.Errorf("df after the loss: %v", err)
	}
	err = within(t, soon, "status", func() error { _, err := r.Pmemfs("status", r.pool.Mountpoint); return err })
	wantText(t, "status", err, "exit status 2", string(control.Failed))
	wantText(t, "sync", within(t, soon, "sync", r.pool.Sync), "target")
}

// TestTargetLost_StatusIsDegradedUntilTheTimeout looks while a drain still waits.
func TestTargetLost_StatusIsDegradedUntilTheTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: patient})
	f, err := os.Create(r.path("f"))
	r.must(err)
	defer f.Close()
	_, err = f.WriteString("waits")
	r.must(err)
	r.must(r.targets[0].Kill())
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	var out string
	r.must(stage.WaitFor(soon, "status DEGRADED", func() bool {
		out, err = r.Pmemfs("status", r.pool.Mountpoint)
		return err != nil
	}))
	wantText(t, "status", err, "exit status 1", string(control.Degraded))
	select {
	case err := <-synced:
		t.Errorf("fsync returned %v while the target was away\n%s", err, out)
	default:
	}
	r.must(r.targets[0].Start())
	r.must(within(t, 30*time.Second, "fsync", func() error { return <-synced }))
	if v := r.status().Verdict; v != control.Healthy {
		t.Errorf("verdict %s after the target came back, want %s", v, control.Healthy)
	}
}

func (r *rig) wantContent(path, want string) {
	r.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		r.t.Errorf("%s: read %q, %v, want %q", path, got, err, want)
	}
}

// TestInitiatorKilled_ProgramsFail: whoever works in a mount whose daemon died gets an error and does not hang.
func TestInitiatorKilled_ProgramsFail(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	f, err := os.Create(r.path("f"))
	r.must(err)
	defer f.Close()
	r.must(r.pool.Kill())
	err = within(t, soon, "write", func() error { _, err := f.WriteString("x"); return err })
	if !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("write after the daemon's death: %v", err)
	}
}
