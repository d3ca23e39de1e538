package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/internal/poolset"
	"golang.org/x/sys/unix"
)

// Holder is the process that a lock file names.
type Holder struct {
	PID  int
	Role string // what it does with the pool: "mount", "target" and so on

	// A process id is used again. The start time (clock ticks since boot, proc_pid_stat(5)) and the boot tell two apart.
	start uint64
	boot  poolset.UUID
}

// pollStep bounds how late a wait for a process notices that its context ended.
const pollStep = 50 * time.Millisecond

// bootID identifies this boot of the machine (random(4)).
var bootID = sync.OnceValues(func() (poolset.UUID, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return poolset.UUID{}, fmt.Errorf("id of this boot: %w", err)
	}
	return poolset.ParseUUID(strings.TrimSpace(string(b)))
})

// self describes this process as a holder.
func self(role string) (Holder, error) {
	boot, err := bootID()
	if err != nil {
		return Holder{}, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return Holder{}, fmt.Errorf("start time of this process: %w", err)
	}
	return Holder{PID: os.Getpid(), Role: role, start: start, boot: boot}, nil
}

// startTime reads field 22 of /proc/PID/stat. Field 2 is a name in parentheses and may hold anything.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name, expected at least 20", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

func (h Holder) encode() []byte {
	return fmt.Appendf(nil, "%d %d %v %s\n", h.PID, h.start, h.boot, h.Role)
}

// decodeHolder reports whether text names a holder. A holder writes its line before it opens a part, so a line cut short
// by its death stands for a process that never had the pool.
func decodeHolder(text []byte) (Holder, bool) {
	line, whole := strings.CutSuffix(string(text), "\n")
	w := strings.SplitN(line, " ", 4)
	if !whole || len(w) != 4 {
		return Holder{}, false
	}
	pid, errPID := strconv.Atoi(w[0])
	start, errStart := strconv.ParseUint(w[1], 10, 64)
	boot, errBoot := poolset.ParseUUID(w[2])
	if errors.Join(errPID, errStart, errBoot) != nil || pid <= 0 {
		return Holder{}, false
	}
	return Holder{PID: pid, Role: w[3], start: start, boot: boot}, true
}

// pidfd opens the process of h; ok is false if it is gone.
func (h Holder) pidfd() (fd int, ok bool, err error) {
	boot, err := bootID()
	if err != nil || boot != h.boot {
		return 0, false, err
	}
	fd, err = unix.PidfdOpen(h.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("pidfd_open of process %d: %w", h.PID, err)
	}
	// Only now does the id stay with the process, so only now does its start time count.
	start, err := startTime(h.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && start != h.start {
		unix.Close(fd)
		return 0, false, nil
	}
	return fd, true, nil
}

// alive says whether the process of h still exists, in whatever state of dying.
func (h Holder) alive() bool {
	fd, ok, err := h.pidfd()
	if err != nil || !ok {
		return false
	}
	defer unix.Close(fd)
	gone, err := exited(fd, 0)
	return err == nil && !gone
}

// waitGone returns when the process of h has exited: its threads are dead, its descriptors closed, its memory unmapped.
func (h Holder) waitGone(ctx context.Context) error {
	fd, ok, err := h.pidfd()
	if err != nil || !ok {
		return err
	}
	defer unix.Close(fd)
	for {
		gone, err := exited(fd, pollStep)
		if err != nil || gone {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// exited waits up to d until the process behind the pidfd has exited (pidfd_open(2)).
func exited(fd int, d time.Duration) (bool, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(d.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}
