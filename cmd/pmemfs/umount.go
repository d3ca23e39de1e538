package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/control"
	"github.com/pmemfs/pmemfs/internal/mountinfo"
)

const (
	// askTimeout bounds a status request: longer than the daemon may be held up by a network that takes nothing.
	askTimeout = 5 * time.Second
	// syncTimeout bounds a sync: longer than any sensible loss timeout, for bulk data on slow targets.
	syncTimeout = 5 * time.Minute
	// endTimeout bounds the wait for the daemon's end after the unmount.
	endTimeout = time.Minute
)

type umountCmd struct {
	Mountpoint string `arg:"" help:"Where the pool is mounted."`
	Lazy       bool   `short:"l" help:"Detach now, even if files are open; the daemon ends when the last one is closed."`
	Force      bool   `help:"Abort requests under way."`
}

// umountHelper is what umount(8) runs: DIR [-f] [-l] [-n] [-r] [-v] [-N NS] [-t TYPE].
func umountHelper(args []string) error {
	var c umountCmd
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-t" || a == "-N":
			i++
		case a == "-l":
			c.Lazy = true
		case a == "-f":
			c.Force = true
		case strings.HasPrefix(a, "-"):
		case c.Mountpoint == "":
			c.Mountpoint = a
		}
	}
	if c.Mountpoint == "" {
		return &exitError{exitMountUsage, errors.New("umount: no mount point given")}
	}
	return c.Run()
}

// Run syncs, unmounts, waits for the daemon's end and says what is not replicated. It unmounts even if the sync failed: a
// lost target must not keep a machine from shutting down.
func (c *umountCmd) Run() error {
	mnt, err := mountinfo.Resolve(c.Mountpoint)
	if err != nil {
		return err
	}
	entry, err := mountinfo.Find(mnt)
	if err != nil {
		return err
	}
	if entry == nil || entry.Mountpoint != mnt {
		return &exitError{exitMountUsage, fmt.Errorf("%s: %w", c.Mountpoint, errNotMounted)}
	}
	reply, syncErr := ask(entry, control.OpSync, syncTimeout)
	if errors.Is(syncErr, control.ErrNotAllowed) {
		return &exitError{exitMountFailed, fmt.Errorf("unmount %s: %w", mnt, unix.EPERM)}
	}
	if errors.Is(syncErr, control.ErrNoDaemon) {
		fmt.Fprintf(os.Stderr, "pmemfs: %s: the daemon is gone; what was not synced before it died is in the local pool only\n", mnt)
		syncErr = nil
	}
	flags := unix.UMOUNT_NOFOLLOW
	if c.Lazy {
		flags |= unix.MNT_DETACH
	}
	if c.Force {
		flags |= unix.MNT_FORCE
	}
	if err := unix.Unmount(mnt, flags); err != nil {
		return &exitError{exitMountFailed, fmt.Errorf("unmount %s: %w%s", mnt, err, hint(err))}
	}
	left, err := mountinfo.Places(entry.Dev) // a bind mount keeps the daemon
	if err != nil {
		return err
	}
	if reply.Status != nil && !c.Lazy && len(left) == 0 {
		if err := waitGone(reply.Status.PID, endTimeout); err != nil {
			return &exitError{exitMountFailed, fmt.Errorf("%s: %w", mnt, err)}
		}
	}
	if syncErr != nil {
		return &exitError{exitMountFailed, fmt.Errorf("unmounted, but not everything is replicated: %w", syncErr)}
	}
	return nil
}

func hint(err error) string {
	if errors.Is(err, unix.EBUSY) {
		return "; see who uses it with `fuser -vm`, or unmount with -l"
	}
	return ""
}

// waitGone waits until process pid has ended.
func waitGone(pid int, d time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("unmounted, but the daemon %d still runs after %v; its log says what it waits for", pid, d)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}
