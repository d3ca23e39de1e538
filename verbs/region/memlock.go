package region

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// LimitError: the process may not pin as much memory as it would have to.
type LimitError struct {
	Need, Pinned, Limit uint64 // bytes: wanted, pinned already, and RLIMIT_MEMLOCK (getrlimit(2))
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d bytes have to be pinned, %d are already, and the limit of this process is %d (RLIMIT_MEMLOCK): set LimitMEMLOCK=infinity in "+
		"its systemd unit, or run `ulimit -l unlimited` before it is started", e.Need, e.Pinned, e.Limit)
}

// checkPin refuses to pin need bytes more where the kernel would. It does so for a process without CAP_IPC_LOCK, for all of its registrations together.
func checkPin(need uint64) error {
	free, err := unlimited()
	if err != nil || free {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("limit of pinned memory: %w", err)
	}
	pinned, err := pinnedBytes()
	if err != nil {
		return err
	}
	if limit.Cur == unix.RLIM_INFINITY || pinned <= limit.Cur && need <= limit.Cur-pinned {
		return nil
	}
	return &LimitError{need, pinned, limit.Cur}
}

// unlimited tells whether the calling thread has CAP_IPC_LOCK (capabilities(7)).
func unlimited() (bool, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return false, fmt.Errorf("capabilities of this process: %w", err)
	}
	return d[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0, nil
}

// pinnedBytes is what this process has pinned (VmPin in proc_pid_status(5)).
func pinnedBytes() (uint64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("pinned memory: %w", err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "VmPin:"); ok {
			var kib uint64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("pinned memory: VmPin is %q: %w", rest, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("pinned memory: /proc/self/status has no VmPin")
}
