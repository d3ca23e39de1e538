package control

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve listens on the socket of a mount point that no test but this one uses.
func serve(t *testing.T, handle func(Request) Reply) string {
	t.Helper()
	mountpoint := filepath.Join(t.TempDir(), "mnt")
	if os.Geteuid() != 0 {
		t.Fatal("needs root: the sockets are in " + RunDir)
	}
	s, err := Listen(SocketPath(mountpoint), handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return mountpoint
}

func TestCall_ReplyAndError(t *testing.T) {
	mnt := serve(t, func(r Request) Reply {
		if r.Op == OpSync {
			return Reply{Error: "target lost"}
		}
		return Reply{Status: &Status{SchemaVersion: 1, Verdict: Healthy, Term: 7}}
	})
	reply, err := Call(mnt, Request{Op: OpStatus}, time.Second)
	if err != nil || reply.Status == nil || reply.Status.Term != 7 {
		t.Fatalf("status: %+v, %v", reply, err)
	}
	if _, err := Call(mnt, Request{Op: OpSync}, time.Second); err == nil {
		t.Fatal("sync: the daemon's error was lost")
	}
}

func TestCall_BoundedWhenTheDaemonHangs(t *testing.T) {
	release := make(chan struct{})
	mnt := serve(t, func(Request) Reply { <-release; return Reply{} })
	defer close(release)
	begin := time.Now()
	if _, err := Call(mnt, Request{Op: OpStatus}, 200*time.Millisecond); err == nil {
		t.Fatal("no error from a daemon that does not answer")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestListen_RefusesASecondDaemon(t *testing.T) {
	mnt := serve(t, func(Request) Reply { return Reply{} })
	if _, err := Listen(SocketPath(mnt), nil); err == nil {
		t.Fatal("two daemons on one socket")
	}
}

func TestCall_NoDaemon(t *testing.T) {
	if _, err := Call("/nowhere/at/all", Request{Op: OpStatus}, time.Second); !errors.Is(err, ErrNoDaemon) {
		t.Fatalf("got %v, want ErrNoDaemon", err)
	}
}

// Somebody else than root must not be told that the daemon is dead.
func TestCall_NotAllowed(t *testing.T) {
	mnt := serve(t, func(Request) Reply { return Reply{} })
	err := asNobody(t, func() error {
		_, err := Call(mnt, Request{Op: OpStatus}, time.Second)
		return err
	})
	if !errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrNoDaemon) {
		t.Fatalf("got %v, want ErrNotAllowed", err)
	}
}

// asNobody runs f on a thread with another user's rights; the thread ends with it.
func asNobody(t *testing.T, f func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			result <- errno
			return
		}
		result <- f()
	}()
	return <-result
}

func TestVerdict_ExitCode(t *testing.T) {
	for v, want := range map[Verdict]int{Healthy: 0, Offline: 0, Degraded: 1, Failed: 2} {
		if got := v.ExitCode(); got != want {
			t.Errorf("%s: %d, want %d", v, got, want)
		}
	}
}

// TestCall_TriesAgainWhenTheConnectionEnds: a daemon that has too many clients, or is dying, ends connections unanswered.
func TestCall_TriesAgainWhenTheConnectionEnds(t *testing.T) {
	mnt := filepath.Join(t.TempDir(), "mnt")
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", SocketPath(mnt))
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		var err error
		for range 2 {
			var c net.Conn
			if c, err = l.Accept(); err == nil {
				err = c.Close()
			}
		}
		refused <- errors.Join(err, l.Close())
	}()
	_, err = Call(mnt, Request{Op: OpStatus}, 10*time.Second)
	if !errors.Is(err, ErrNoDaemon) {
		t.Errorf("got %v, want ErrNoDaemon once nobody listens any more", err)
	}
	if err := <-refused; err != nil {
		t.Error(err)
	}
}
