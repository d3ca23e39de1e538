package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/internal/control"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/mountinfo"
	"github.com/pmemfs/pmemfs/internal/version"
)

type syncCmd struct {
	Path string `arg:"" help:"The mount point or anything below it."`
}

// Run does what sync(2) and syncfs(2) cannot do: they do not reach a FUSE server.
func (c *syncCmd) Run() error {
	mount, err := mountOf(c.Path)
	if err != nil {
		return err
	}
	_, err = ask(mount, control.OpSync, syncTimeout)
	return err
}

type growCmd struct {
	Path string `arg:"" help:"The mount point or anything below it."`
}

// Run has the daemon read the pool set file anew and make every copy as large as it says.
func (c *growCmd) Run() error {
	mount, err := mountOf(c.Path)
	if errors.Is(err, errNotMounted) {
		return fmt.Errorf("%w: a pool grows while it is mounted, together with its copies: mount it first", err)
	}
	if err != nil {
		return err
	}
	reply, err := ask(mount, control.OpGrow, initiator.GrowTimeout+askTimeout)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("the pool has %d bytes on every copy\n", reply.PoolSize)
	return err
}

type statusCmd struct {
	Path string `arg:"" help:"A mount point or a path below it, or the CONFIG or pool set file of a pool."`
	JSON bool   `name:"json" help:"One JSON object."`
}

// Run prints the status and exits with its verdict: 0 healthy, read-only or offline, 1 degraded, 2 failed, 3 unknown.
func (c *statusCmd) Run() error {
	st, err := c.status()
	if err != nil {
		return &exitError{3, err}
	}
	if c.JSON {
		err = json.NewEncoder(os.Stdout).Encode(st)
	} else {
		_, err = fmt.Print(st.Text())
	}
	if err != nil {
		return &exitError{3, err}
	}
	if code := st.Verdict.ExitCode(); code != 0 {
		return &exitError{code, errors.New("")}
	}
	return nil
}

// status asks the daemon if the path lies in a mount, and else reads the pool's header. It never touches the mount itself.
func (c *statusCmd) status() (*control.Status, error) {
	mount, err := mountOf(c.Path)
	if err == nil {
		reply, err := ask(mount, control.OpStatus, askTimeout)
		return reply.Status, err
	}
	if !errors.Is(err, errNotMounted) {
		return nil, err
	}
	if fi, statErr := os.Stat(c.Path); statErr == nil && fi.IsDir() {
		return nil, err
	}
	cfg, set, err := initiator.Load(c.Path)
	if err != nil {
		return nil, err
	}
	st, err := initiator.OfflineStatus(cfg, set)
	return st, advise(err, c.Path)
}

var errNotMounted = errors.New("no pmemfs is mounted there")

// mountOf finds the pmemfs mount that path lies in.
func mountOf(path string) (*mountinfo.Entry, error) {
	real, err := mountinfo.Resolve(path)
	if err != nil {
		return nil, err
	}
	entry, err := mountinfo.Find(real)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		return nil, fmt.Errorf("%s: %w", path, errNotMounted)
	}
	return entry, nil
}

// ask sends one request to the daemon of a mount. A bind mount has the daemon of the place where the pool was mounted.
func ask(mount *mountinfo.Entry, op string, d time.Duration) (reply control.Reply, err error) {
	places, err := mountinfo.Places(mount.Dev)
	if err != nil {
		return reply, err
	}
	err = control.ErrNoDaemon // the mount is gone
	for _, place := range places {
		if reply, err = control.Call(place, control.Request{Op: op}, d); !errors.Is(err, control.ErrNoDaemon) {
			break
		}
	}
	return reply, err
}

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Println("pmemfs", version.Version)
	return err
}
