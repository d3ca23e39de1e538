package integration

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// signalled sends a signal to the first initiator's daemon.
func (r *rig) signalled(sig syscall.Signal) (pid int) {
	r.t.Helper()
	pid = r.status().PID
	r.must(syscall.Kill(pid, sig))
	return pid
}

// TestInitiatorTerminated_EverythingIsReplicated: SIGTERM is an unmount, of content without fsync too.
func TestInitiatorTerminated_EverythingIsReplicated(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: quiet})
	newStorm(t, r.pool.Mountpoint).run(150)
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	pid := r.signalled(syscall.SIGTERM)
	r.must(stage.WaitFor(soon, "end of the daemon", func() bool { return stage.Gone(pid) }))
	if lines := mountLines(t, r.pool.Mountpoint); len(lines) > 0 {
		t.Errorf("SIGTERM left the mount: %v", lines)
	}
	r.must(r.targets[0].Kill())
	sameTree(t, r.promoted(0), sums)
}

// TestInitiatorTerminated_BusyMountTakesTwo: the first SIGTERM must not tear a mount from under open files, the second does.
func TestInitiatorTerminated_BusyMountTakesTwo(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: quiet})
	f, err := os.Create(r.path("open"))
	r.must(err)
	defer f.Close()
	_, err = f.WriteString("before")
	r.must(err)
	pid := r.signalled(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	if _, err = f.WriteString(" and after"); err != nil {
		t.Fatalf("write after the first SIGTERM, with the file open: %v", err)
	}
	r.signalled(syscall.SIGTERM)
	r.must(stage.WaitFor(soon, "end of the daemon", func() bool { return stage.Gone(pid) }))
	r.wantContent(filepath.Join(r.promoted(0).Mountpoint, "open"), "before and after")
}

// TestInitiatorTerminated_UnmountsWhenTheLastFileIsClosed: one SIGTERM is enough.
func TestInitiatorTerminated_UnmountsWhenTheLastFileIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: quiet})
	f, err := os.Create(r.path("open"))
	r.must(err)
	pid := r.signalled(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	_, err = f.WriteString("to the end")
	r.must(errors.Join(err, f.Close()))
	r.must(stage.WaitFor(soon, "end of the daemon", func() bool { return stage.Gone(pid) }))
	r.wantContent(filepath.Join(r.promoted(0).Mountpoint, "open"), "to the end")
}

// TestUmount_DeadDaemon: pmemfs umount removes the mount of a daemon that was killed, and says so.
func TestUmount_DeadDaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(r.pool.KillDaemon())
	out, err := r.Pmemfs("umount", r.pool.Mountpoint)
	if err != nil {
		t.Errorf("umount: %v", err)
	}
	wantWords(t, "umount", out, "daemon is gone")
	if lines := mountLines(t, r.pool.Mountpoint); len(lines) > 0 {
		t.Errorf("the mount is still there: %v", lines)
	}
	_, err = r.Pmemfs("umount", r.pool.Mountpoint)
	wantText(t, "umount of what is not mounted", err, "no pmemfs is mounted there")
}

// TestUmount_TargetDiesMeanwhile: whatever the moment, umount ends, and a remount brings both copies together again.
func TestUmount_TargetDiesMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: []string{`timeout = "1s"`, quiet[0]}})
	for i := range 3 {
		newStorm(t, r.pool.Mountpoint).run(60)
		sums, err := treeSums(r.pool.Mountpoint)
		r.must(err)
		killed := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 15 * time.Millisecond)
			killed <- r.targets[0].Kill()
		}()
		_ = within(t, lossLimit+soon, "umount", r.pool.Umount) // it may have been faster than the kill
		r.must(<-killed)
		r.must(r.targets[0].Start())
		r.must(r.pool.Mount())
		sameTree(t, r.pool, sums)
	}
	r.must(r.pool.Umount())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
}
