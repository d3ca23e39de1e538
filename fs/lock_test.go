package fs

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Locks exclude other processes and end with their holder, whatever their kind.
func TestLocks(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	for _, tc := range []struct {
		name string
		cmd  int
	}{{"POSIX", unix.F_SETLK}, {"OFD", unix.F_OFD_SETLK}} {
		free := func() bool {
			c := client("trylock", d.path("file"), tc.cmd)
			c.Stderr = nil
			return c.Run() == nil
		}
		lock := &syscall.Flock_t{Type: syscall.F_WRLCK}
		must(t, syscall.FcntlFlock(uintptr(fd), tc.cmd, lock))
		if free() {
			t.Errorf("%s: two processes hold a write lock", tc.name)
		}
		lock.Type = syscall.F_UNLCK
		must(t, syscall.FcntlFlock(uintptr(fd), tc.cmd, lock))
		if !free() {
			t.Errorf("%s: the lock stays after its release", tc.name)
		}
		if !free() {
			t.Errorf("%s: the lock stays after the end of its holder", tc.name)
		}
	}
	must(t, unix.Flock(fd, unix.LOCK_EX))
	if out, err := shell(t, 0, d.point, "flock -n file true"); err == nil {
		t.Errorf("flock: two processes hold it: %s", out)
	}
	must(t, unix.Flock(fd, unix.LOCK_UN))
	mustShell(t, 0, d.point, "flock -n file true && flock -s -n file true")
}
