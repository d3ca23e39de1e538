package integration

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPriority: all threads of the daemon go before the programs that wait for it, those started under load too.
func TestPriority(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for i := range 50 {
		r.must(writeSync(r.path(fmt.Sprint(i)), []byte("content")))
	}
	pid := r.status().PID
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	r.must(err)
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		r.must(err)
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err == unix.ESRCH {
			continue
		}
		r.must(err)
		if nice := 20 - raw; nice != -10 { // the system call's own result is 20 - niceness: getpriority(2)
			t.Errorf("thread %d of %d has niceness %d, expected -10", tid, len(threads), nice)
		}
	}
}
