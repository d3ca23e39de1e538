package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceness of the daemon. All programs on the mount wait for it, so that its threads go first where processors are short. A pause for the
// garbage collector ends when the last of them got a processor: without this it lasts as long as the time slice of a client.
const niceness = -10

// goFirst gives all threads of this process, and so those that they start, the daemon's niceness. Linux keeps it per thread
// (setpriority(2), "C library/kernel differences"); a thread that was started meanwhile is found in the second round.
func goFirst() error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, niceness); err != nil && err != unix.ESRCH {
				return fmt.Errorf("niceness %d: %w", niceness, err)
			}
		}
	}
	return nil
}
