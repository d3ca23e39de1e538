package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/target"
)

type mkPoolCmd struct {
	Config   string `arg:"" help:"Configuration or pool set file."`
	Sparse   bool   `help:"Do not allocate the parts now. A full host file system then shows up as I/O errors later."`
	Force    bool   `help:"Erase a Device DAX of the local pool that holds data. All of it is lost. Files are never erased, and neither are devices of a target."`
	NodeSize uint32 `help:"Bytes of a tree node: 1024, 2048 or 4096." default:"4096"`
	LogSize  string `help:"Size of the log ring (default: 64M, at most an eighth of the pool)."`
	Chunk    string `help:"Size of a chunk of tree nodes (default by pool size)."`
	Reserve  uint32 `help:"Chunks held back for commits and deletions (default by pool size)."`
	Local    bool   `help:"Make only the local pool, for replicas that exist already or come later."`
	Replicas bool   `help:"Make only the replicas of an existing pool; its next mount fills them."`
}

func (c *mkPoolCmd) Run() error {
	cfg, set, err := initiator.Load(c.Config)
	if err != nil {
		return err
	}
	p := initiator.PoolParams{Sparse: c.Sparse, Erase: c.Force, Params: volume.Params{NodeSize: c.NodeSize, Reserve: c.Reserve}}
	if c.LogSize != "" {
		if p.Params.LogLen, err = poolset.ParseSize(c.LogSize); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--log-size %s: %w: want a size such as 64M", c.LogSize, err)}
		}
	}
	if c.Chunk != "" {
		n, err := poolset.ParseSize(c.Chunk)
		if err != nil || n > 1<<30 {
			return &exitError{exitUsage, fmt.Errorf("--chunk %s: want a size of at most 1G, such as 2M", c.Chunk)}
		}
		p.Params.Chunk = uint32(n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch {
	case c.Local && c.Replicas:
		return &exitError{exitUsage, errors.New("--local and --replicas exclude each other")}
	case c.Replicas:
		return initiator.MakeReplicas(ctx, cfg, set)
	case c.Local:
		set.Replicas = nil
	}
	return initiator.MakePool(ctx, cfg, set, p)
}

type rmPoolCmd struct {
	Config string `arg:"" help:"Configuration or pool set file; on a target that of its pool directory. Replicas elsewhere are left alone."`
	Force  bool   `help:"Do it. Without it the parts are only named."`
}

// Run removes the parts of a pool that no process has.
func (c *rmPoolCmd) Run() error {
	_, set, err := initiator.Load(c.Config)
	if err != nil {
		return err
	}
	if !c.Force {
		return &exitError{exitUsage, fmt.Errorf("everything in %s would be lost: repeat it with --force", strings.Join(paths(set), ", "))}
	}
	return pool.Remove(set)
}

func paths(set *poolset.Set) []string {
	var all []string
	for _, p := range set.Parts {
		all = append(all, p.Path)
	}
	return all
}

type promoteCmd struct {
	Name   string `arg:"" help:"The replica: name of its pool set file in the target's pool directory."`
	Config string `help:"Configuration of pmemfs-target." default:"/etc/pmemfs/target.toml"`
	Force  bool   `help:"Promote even an Inconsistent replica. Its content may be a mixture of old and new; run pmemfs fsck."`
}

// Run asks the daemon that serves the replica; if none runs, it does the work itself under the pool's lock.
func (c *promoteCmd) Run() error {
	cfg, err := config.LoadTarget(c.Config)
	if err != nil {
		return err
	}
	term, err := target.PromoteVia(cfg.Socket, c.Name, c.Force)
	if errors.Is(err, target.ErrNoDaemon) {
		term, err = target.Promote(cfg, c.Name, c.Force, stderrLog())
	}
	if err != nil {
		return advise(err, cfg.PoolDir+"/"+c.Name)
	}
	_, err = fmt.Printf("promoted %s at term %d; mount it with its pool set file %s\n", c.Name, term, cfg.PoolDir+"/"+c.Name)
	return err
}
