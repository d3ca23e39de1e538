// Package integration tests pmemfs as its users meet it: real daemons, real mounts, real programs, kill -9. It needs root
// and /dev/fuse, and fails without them.
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin holds pmemfs, pmemfs-target and workload, built from these sources.
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
	if err := build(); err != nil {
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

// build makes the programs, under the race detector if the tests are.
func build() error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	args := []string{"build"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "-o", bin+"/", "./cmd/pmemfs", "./cmd/pmemfs-target", "./integration/workload")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
