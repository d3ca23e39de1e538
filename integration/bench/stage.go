package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// contestant is one mounted file system.
type contestant struct{ name, dir string }

// stage holds the daemons and mounts of a run, all below one directory on tmpfs.
type stage struct {
	dir     string
	daemons []*exec.Cmd
	mounts  []string
}

const poolSize = "1G"

func newStage() (*stage, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("run it as root: it mounts file systems")
	}
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir}
	if out, err := exec.Command("go", "build", "-o", s.path("floor"), "./integration/bench/floor").CombinedOutput(); err != nil {
		s.close()
		return nil, fmt.Errorf("build the floor: %w\n%s", err, out)
	}
	return s, nil
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) close() {
	for _, m := range s.mounts {
		_ = exec.Command("umount", "-i", m).Run()
		_ = syscall.Unmount(m, syscall.MNT_DETACH)
	}
	for _, d := range s.daemons {
		_ = d.Process.Signal(syscall.SIGTERM)
		_ = d.Wait()
	}
	os.RemoveAll(s.dir)
}

func (s *stage) mountAll() ([]contestant, error) {
	addr, err := s.startTarget()
	if err != nil {
		return nil, err
	}
	if err := s.mountPool("target", "REPLICA 127.0.0.1 replica.set\n", fmt.Sprintf("[target.\"127.0.0.1\"]\naddress = %q\n", addr)); err != nil {
		return nil, fmt.Errorf("pool with a target: %w", err)
	}
	if err := s.mountPool("local", "", ""); err != nil {
		return nil, fmt.Errorf("pool without a target: %w", err)
	}
	if err := s.mountFloor(); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	return []contestant{{"floor", s.path("mnt-floor")}, {"local", s.path("mnt-local")}, {"target", s.path("mnt-target")}}, nil
}

func (s *stage) startTarget() (string, error) {
	dir := s.path("pools")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	addr, err := freePort()
	if err != nil {
		return "", err
	}
	fabric, err := freePort()
	if err != nil {
		return "", err
	}
	conf := fmt.Sprintf("listen = %q\nfabric = %q\npool_dir = %q\nsocket = %q\ndurability = \"memory\"\n", addr, fabric, dir, s.path("target.sock"))
	set := fmt.Sprintf("PMEMPOOLSET\n%s %s\n", poolSize, s.path("replica.pool"))
	if err := errors.Join(os.WriteFile(s.path("target.toml"), []byte(conf), 0o644), os.WriteFile(filepath.Join(dir, "replica.set"), []byte(set), 0o644)); err != nil {
		return "", err
	}
	return addr, s.daemon(func() bool { return answers(addr) }, "bin/pmemfs-target", "--config", s.path("target.toml"))
}

func (s *stage) mountPool(name, replica, targetConf string) error {
	set := fmt.Sprintf("PMEMPOOLSET\n%s %s\n%s", poolSize, s.path(name+".pool"), replica)
	conf := fmt.Sprintf("pool = %q\ndurability = \"memory\"\n%s", s.path(name+".set"), targetConf)
	mnt := s.path("mnt-" + name)
	err := errors.Join(os.WriteFile(s.path(name+".set"), []byte(set), 0o644), os.WriteFile(s.path(name+".toml"), []byte(conf), 0o644), os.Mkdir(mnt, 0o755))
	if err != nil {
		return err
	}
	s.mounts = append(s.mounts, mnt)
	for _, args := range [][]string{{"mkpool", s.path(name + ".toml")}, {"mount", "--log-file", s.path(name + ".log"), s.path(name + ".toml"), mnt}} {
		if out, err := exec.Command("bin/pmemfs", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("pmemfs %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func (s *stage) mountFloor() error {
	mnt := s.path("mnt-floor")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		return err
	}
	s.mounts = append(s.mounts, mnt)
	return s.daemon(func() bool {
		var st syscall.Statfs_t
		return syscall.Statfs(mnt, &st) == nil && st.Blocks == 1<<22
	}, s.path("floor"), mnt)
}

// daemon starts a program and waits until ready says so.
func (s *stage) daemon(ready func() bool, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.daemons = append(s.daemons, cmd)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ready() {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready after 10 s", name)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
