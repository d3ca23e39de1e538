// Package integration tests pmemfs as its users meet it: real daemons, real mounts, real programs, kill -9. It needs root
// and /dev/fuse, and fails without them.
package integration

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// bin is the directory of pmemfs, pmemfs-target and workload, built from these sources.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := ready(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	var err error
	if bin, err = os.MkdirTemp("", "pmemfs-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer os.RemoveAll(bin)
	// The race detector would let every program sleep for a second before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return m.Run()
}

func ready() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run these tests as root: they mount file systems")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("%w: load the fuse module, or give the container the device", err)
	}
	return nil
}

// build makes the programs, under the race detector if the tests are. It is called by tests, not before them: only then does the
// go command note what stage.Build looks at.
var build = sync.OnceValue(func() error {
	args := []string{"./cmd/pmemfs", "./cmd/pmemfs-target", "./integration/workload"}
	if race {
		args = append([]string{"-race"}, args...)
	}
	return stage.Build("..", bin, args...)
})
