// Package stage sets up what demo, benchmark and tests play on: target daemons on loopback, pools, mounts, all as real
// processes below one directory.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// commandTimeout bounds every command: nothing here may hang.
const commandTimeout = 2 * time.Minute

// Stage owns daemons and mounts; Close ends them all.
type Stage struct {
	Dir        string // absolute
	Bin        string // directory of pmemfs and pmemfs-target; empty: found in PATH
	Durability string // of all copies: "media" or "memory"
	PoolSize   string // as in a pool set file

	undo []func() // last one first
}

// Close ends daemons and mounts. The directory stays.
func (s *Stage) Close() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = nil
}

// Later registers fn for Close.
func (s *Stage) Later(fn func()) { s.undo = append(s.undo, fn) }

// Path joins names to the stage's directory.
func (s *Stage) Path(names ...string) string {
	return filepath.Join(append([]string{s.Dir}, names...)...)
}

func (s *Stage) program(name string) string {
	if s.Bin == "" {
		return name
	}
	return filepath.Join(s.Bin, name)
}

// Pmemfs runs a pmemfs command and returns its output.
func (s *Stage) Pmemfs(args ...string) (string, error) { return Run(s.program("pmemfs"), args...) }

// write makes a file below the stage's directory.
func (s *Stage) write(name, text string) (string, error) {
	path := s.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// Run executes a command and returns its output; an error carries the output.
func Run(name string, args ...string) (string, error) { return RunIn("", name, args...) }

// RunIn is Run in a directory.
func RunIn(dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // a daemon may have inherited the pipe
	err := cmd.Run()
	text := strings.TrimSpace(out.String())
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return text, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// Daemon starts a program whose output goes to the file log. Close kills it.
func (s *Stage) Daemon(log, name string, args ...string) (*exec.Cmd, error) {
	f, err := os.OpenFile(s.Path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.Later(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, nil
}

// WaitFor polls until cond holds.
func WaitFor(d time.Duration, what string, cond func() bool) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if cond() {
			return nil
		}
	}
	return fmt.Errorf("%s: not within %v", what, d)
}

// FreePort is a loopback address that nothing listens on now. It lies below the ports that the kernel gives to outgoing
// connections: none of those takes it meanwhile, and whoever dials it before a daemon listens never meets itself.
func FreePort() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("no free port on 127.0.0.1")
}

func listening(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Logs returns the end of every log of the stage, for whoever has to find out what went wrong.
func (s *Stage) Logs() string {
	var b strings.Builder
	logs, _ := filepath.Glob(s.Path("*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			continue
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(path), text[max(0, len(text)-3000):])
	}
	return b.String()
}

// detach removes a mount from sight, whatever its state.
func detach(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
