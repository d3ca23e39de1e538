package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// locker is a process that takes locks of one kind on one file.
type locker struct {
	*speaker
	t *testing.T
}

func (r *rig) locker(file, kind string) *locker {
	r.t.Helper()
	return &locker{r.speak(filepath.Join(bin, "workload"), "lock", file, kind), r.t}
}

// does fails the test unless the answer is want, soon.
func (l *locker) does(what, want string) {
	l.t.Helper()
	var got string
	err := within(l.t, soon, what, func() (err error) {
		got, err = l.ask(what)
		return err
	})
	if err != nil || got != want {
		l.t.Errorf("%s: %q, %v, want %q", what, got, err, want)
	}
}

// die ends the process by SIGKILL.
func (l *locker) die() {
	l.t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		l.t.Error(err)
	}
	_ = l.end() // by the signal
}

// TestLocks: flock, POSIX and OFD locks exclude other processes, and a killed holder's lock goes to whoever waits for it. The
// daemon has no part in it: all goes on while it is stopped.
func TestLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	daemon := r.status().PID
	for _, kind := range []string{"flock", "posix", "ofd"} {
		file := r.path(kind)
		r.must(writeSync(file, []byte("content")))
		a, b, c := r.locker(file, kind), r.locker(file, kind), r.locker(file, kind)
		c.does("free", "ok") // each has opened the file
		b.does("free", "ok")
		a.does("try", "ok")
		r.must(syscall.Kill(daemon, syscall.SIGSTOP))
		b.does("try", "busy")
		b.does("share", "busy")
		a.does("free", "ok")
		b.does("share", "ok")
		c.does("share", "ok")
		a.does("try", "busy")
		c.does("free", "ok")
		b.does("try", "ok")
		r.must(syscall.Kill(daemon, syscall.SIGCONT))
		waits := make(chan string, 1)
		go func() {
			got, err := c.ask("wait")
			waits <- fmt.Sprint(got, err)
		}()
		b.die()
		got := ""
		_ = within(t, soon, "the lock of a killed process", func() error { got = <-waits; return nil })
		if got != "ok<nil>" {
			t.Errorf("%s: waiting for the lock of a killed process: %s", kind, got)
		}
		a.does("try", "busy")
		c.die()
		a.does("wait", "ok")
		r.must(a.end())
		if t.Failed() {
			t.Fatal(kind)
		}
	}
}

// TestRenameOver_ReadersSeeOldOrNew: processes that open a file while others rename new versions over it read a whole version
// each time, and never miss it.
func TestRenameOver_ReadersSeeOldOrNew(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	file, count := r.path("config"), strconv.Itoa(scaled(1500))
	workload := filepath.Join(bin, "workload")
	_, err := stage.Run(workload, "replace", file, "1")
	r.must(err)
	errs := make(chan error)
	commands := []string{"replace", "watch", "watch", "replace"}
	for _, c := range commands {
		go func() {
			out, err := exec.Command(workload, c, file, count).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", c, err, out)
			}
			errs <- err
		}()
	}
	for range commands {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
