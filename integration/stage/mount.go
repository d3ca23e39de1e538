package stage

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/internal/pauses"
)

// Pool describes one initiator: NAME.toml, NAME.set and a mount point mnt-NAME below the stage's directory.
type Pool struct {
	Config, Part, Mountpoint string

	stage *Stage
	name  string
}

// Replica names a set file on a target.
type Replica struct {
	Target *Target
	Set    string
	Config []string // lines of its table in the configuration
}

// NewPool writes configuration and pool set; part is the path of the one part file. Extra lines go to the top of the configuration.
func (s *Stage) NewPool(name, part string, replicas []Replica, extra ...string) (*Pool, error) {
	set := fmt.Sprintf("PMEMPOOLSET\n%s %s\n", s.PoolSize, part)
	conf := fmt.Sprintf("pool = %q\ndurability = %q\n%s\n", s.Path(name+".set"), s.Durability, strings.Join(extra, "\n"))
	for _, r := range replicas {
		set += fmt.Sprintf("REPLICA %s %s\n", r.Target.Addr, r.Set)
		conf += fmt.Sprintf("[target.%q]\naddress = %q\n%s\n", r.Target.Addr, r.Target.Addr, strings.Join(r.Config, "\n"))
	}
	p := &Pool{Part: part, Mountpoint: s.Path("mnt-" + name), stage: s, name: name}
	if _, err := s.write(name+".set", set); err != nil {
		return nil, err
	}
	var err error
	if p.Config, err = s.write(name+".toml", conf); err != nil {
		return nil, err
	}
	s.Later(func() { detach(p.Mountpoint) })
	return p, os.MkdirAll(p.Mountpoint, 0o755)
}

// Make runs pmemfs mkpool.
func (p *Pool) Make(flags ...string) error {
	_, err := p.stage.Pmemfs(append([]string{"mkpool", p.Config}, flags...)...)
	return err
}

// Mount runs pmemfs mount.
func (p *Pool) Mount(flags ...string) error {
	args := append([]string{"mount", "--log-file", p.stage.Path(p.name + ".log")}, flags...)
	if _, err := p.stage.Pmemfs(append(args, p.Config, p.Mountpoint)...); err != nil {
		return err
	}
	return p.Check()
}

// SystemMount runs mount(8) with args and the mount point.
func (p *Pool) SystemMount(args ...string) error {
	if _, err := Run("mount", append(args, p.Mountpoint)...); err != nil {
		return err
	}
	return p.Check()
}

// Check makes sure that a pmemfs is mounted.
func (p *Pool) Check() error {
	kind, err := Run("findmnt", "-n", "-o", "FSTYPE", p.Mountpoint)
	if err == nil && kind != "fuse.pmemfs" {
		err = fmt.Errorf("%s is of type %q, not fuse.pmemfs", p.Mountpoint, kind)
	}
	return err
}

// Umount runs pmemfs umount. While a caller starts another program, that one holds copies of the caller's descriptors for a
// moment, those of closed files too, so a busy mount is tried again.
func (p *Pool) Umount() error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := p.stage.Pmemfs("umount", p.Mountpoint)
		if err == nil || !strings.Contains(out, syscall.EBUSY.Error()) || time.Now().After(end) {
			return err
		}
	}
}

// Sync runs pmemfs sync.
func (p *Pool) Sync() error {
	_, err := p.stage.Pmemfs("sync", p.Mountpoint)
	return err
}

// Status is what the callers here read of `pmemfs status --json`.
type Status struct {
	Verdict string `json:"verdict"`
	Error   string `json:"error"`
	PID     int    `json:"pid"`
	Term    uint64 `json:"term"`

	SealedLSN uint64 `json:"sealed_lsn"`

	Drains   uint64            `json:"drains"`
	Pauses   pauses.Histogram  `json:"pauses"`
	Requests map[string]uint64 `json:"requests"`
	Copies   []struct {
		Role       string `json:"role"`
		State      string `json:"state"`
		Durability string `json:"durability"`
	} `json:"copies"`
}

// Status runs pmemfs status --json. A verdict other than healthy is no error here.
func (p *Pool) Status() (Status, error) { return p.StatusOf(p.Mountpoint) }

// StatusOf is Status for another path: p.Config is the pool while it is not mounted.
func (p *Pool) StatusOf(path string) (Status, error) {
	var st Status
	text, err := p.stage.Pmemfs("status", "--json", path)
	if jsonErr := json.Unmarshal([]byte(text), &st); jsonErr != nil {
		return st, fmt.Errorf("pmemfs status --json: %w in %q (%w)", jsonErr, text, err)
	}
	return st, nil
}

// Kill ends the daemon with SIGKILL and removes the dead mount.
func (p *Pool) Kill() error {
	err := p.KillDaemon()
	detach(p.Mountpoint)
	return err
}

// KillDaemon ends the daemon with SIGKILL and leaves its mount behind.
func (p *Pool) KillDaemon() error {
	st, err := p.Status()
	if err != nil {
		return err
	}
	if st.PID <= 1 {
		return fmt.Errorf("pmemfs status names no daemon: %+v", st)
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		return err
	}
	return WaitFor(10*time.Second, "end of the daemon", func() bool { return Gone(st.PID) })
}

// Gone tells whether a process has ended; nobody may have taken note of it yet.
func Gone(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // gone for a zombie too
	return err != nil
}
