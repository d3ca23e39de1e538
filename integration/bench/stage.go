package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// contestant is one mounted file system.
type contestant struct{ name, dir string }

// newStage makes a directory on tmpfs, where all daemons, pools and mounts of the run are.
func newStage() (*stage.Stage, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("run it as root: it mounts file systems")
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-bench-")
	if err != nil {
		return nil, err
	}
	return &stage.Stage{Dir: dir, Bin: bin, Durability: "memory", PoolSize: "1G"}, nil
}

func mountAll(s *stage.Stage) ([]contestant, error) {
	target, err := s.StartTarget("replicas")
	if err != nil {
		return nil, err
	}
	if _, err := target.AddSet("replica.set", s.Path("replica.pool")); err != nil {
		return nil, err
	}
	floor, err := mountFloor(s)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	contestants := []contestant{floor}
	for name, replicas := range map[string][]stage.Replica{"local": nil, "target": {{Target: target, Set: "replica.set"}}} {
		p, err := s.NewPool(name, s.Path(name+".pool"), replicas)
		if err == nil {
			err = p.Make()
		}
		if err == nil {
			err = p.Mount()
		}
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", name, err)
		}
		contestants = append(contestants, contestant{name, p.Mountpoint})
	}
	return contestants, nil
}

func mountFloor(s *stage.Stage) (contestant, error) {
	c := contestant{"floor", s.Path("mnt-floor")}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return c, err
	}
	if _, err := stage.Run("go", "build", "-o", s.Path("floor"), "./integration/bench/floor"); err != nil {
		return c, err
	}
	s.Later(func() { _ = syscall.Unmount(c.dir, syscall.MNT_DETACH) })
	if _, err := s.Daemon("floor.log", s.Path("floor"), c.dir); err != nil {
		return c, err
	}
	return c, stage.WaitFor(10*time.Second, "floor mounted", func() bool {
		var st syscall.Statfs_t
		return syscall.Statfs(c.dir, &st) == nil && st.Blocks == 1<<22
	})
}
