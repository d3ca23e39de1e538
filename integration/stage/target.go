package stage

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Target is a target daemon with its pool directory.
type Target struct {
	Addr   string // control connection
	Config string // configuration file
	Dir    string // pool directory

	stage *Stage
	name  string
	cmd   *exec.Cmd
}

// StartTarget starts a daemon. Its pool directory is NAME below the stage's directory.
func (s *Stage) StartTarget(name string) (*Target, error) {
	addr, err := FreePort()
	if err != nil {
		return nil, err
	}
	fabric, err := FreePort()
	if err != nil {
		return nil, err
	}
	t := &Target{Addr: addr, Dir: s.Path(name), stage: s, name: name}
	if _, err := s.write(name+"/.keep", ""); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("listen = %q\nfabric = %q\npool_dir = %q\nsocket = %q\ndurability = %q\n", addr, fabric, t.Dir, s.Path(name+".sock"), s.Durability)
	if t.Config, err = s.write(name+"-target.toml", conf); err != nil {
		return nil, err
	}
	return t, t.Start()
}

// Start starts the daemon, again if it has ended.
func (t *Target) Start() (err error) {
	t.cmd, err = t.stage.Daemon(t.name+"-target.log", t.stage.program("pmemfs-target"), "--config", t.Config)
	if err != nil {
		return err
	}
	return WaitFor(10*time.Second, "pmemfs-target listening on "+t.Addr, func() bool { return listening(t.Addr) })
}

// Kill ends the daemon with SIGKILL.
func (t *Target) Kill() error { return t.end(syscall.SIGKILL) }

// Terminate ends it with SIGTERM; it must exit with 0, within commandTimeout.
func (t *Target) Terminate() error { return t.end(syscall.SIGTERM) }

func (t *Target) end(sig syscall.Signal) error {
	if err := t.cmd.Process.Signal(sig); err != nil {
		return err
	}
	late := time.AfterFunc(commandTimeout, func() { _ = t.cmd.Process.Kill() })
	defer late.Stop()
	err := t.cmd.Wait()
	if sig == syscall.SIGKILL {
		return nil
	}
	return err
}

// Pause stops the daemon without closing its connections: a silent peer. When it returns, every thread stands still.
func (t *Target) Pause() error {
	if err := t.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return WaitFor(10*time.Second, "stop of the daemon", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", t.cmd.Process.Pid))
		for _, path := range stats {
			text, _ := os.ReadFile(path) // a thread may end meanwhile
			if _, fields, ok := bytes.Cut(text, []byte(") ")); ok && fields[0] != 'T' {
				return false
			}
		}
		return err == nil && len(stats) > 0
	})
}

// Resume lets a paused daemon go on.
func (t *Target) Resume() error { return t.cmd.Process.Signal(syscall.SIGCONT) }

// AddSet writes the pool set file NAME into the pool directory, with one part, and returns the file's path.
func (t *Target) AddSet(name, part string) (string, error) {
	return t.stage.write(t.name+"/"+name, fmt.Sprintf("PMEMPOOLSET\n%s %s\n", t.stage.PoolSize, part))
}

// Promote runs pmemfs promote.
func (t *Target) Promote(set string, flags ...string) (string, error) {
	return t.stage.Pmemfs(append([]string{"promote", "--config", t.Config, set}, flags...)...)
}
