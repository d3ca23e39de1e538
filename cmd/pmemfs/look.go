package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/pmemfs/pmemfs/fs/inspect"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/initiator"
)

// exitPartly: something could not be read, and all else was done.
const exitPartly = 1

// look is what the commands have in common that read a pool which is not mounted.
type look struct {
	Inconsistent bool `help:"Look at a copy that is marked Inconsistent too. It may hold bytes of different moments."`
	Salvage      bool `help:"If the pool is too damaged to be mounted, take what is left of its last checkpoint."`

	failed int
}

// report says what cannot be read.
func (l *look) report(err error) {
	l.failed++
	fmt.Fprintln(os.Stderr, "pmemfs:", err)
}

// at calls fn with the volume of the pool. Standard output is buffered meanwhile.
func (l *look) at(config, role string, fn func(v *volume.Volume, out *bufio.Writer) error) error {
	_, set, err := initiator.Load(config)
	if err != nil {
		return err
	}
	p, err := initiator.OpenPrivate(set, role, l.Inconsistent)
	if err != nil {
		return err
	}
	var salvage func(volume.Finding)
	if l.Salvage {
		salvage = func(f volume.Finding) { l.report(fmt.Errorf("%v", f)) }
	}
	v, _, err := volume.OpenReadOnly(p.Region(), p.Header().PoolUUID, salvage)
	if err != nil {
		next := "see pmemfs fsck, or take what is left with --salvage"
		if l.Salvage {
			next = "nothing is left that could be taken: look at a replica"
		}
		return errors.Join(fmt.Errorf("%s: %w; %s", set.File, err, next), p.Close())
	}
	out := bufio.NewWriter(os.Stdout)
	err = errors.Join(flush(out, fn(v, out)), p.Close())
	if err == nil && l.failed > 0 {
		err = &exitError{exitPartly, fmt.Errorf("%s: %d things could not be read", set.File, l.failed)}
	}
	return err
}

// flush writes the rest of out, after an error too. A buffer says once more what went wrong before, which is told once.
func flush(out *bufio.Writer, err error) error {
	if failed := out.Flush(); !errors.Is(err, failed) {
		return errors.Join(err, failed)
	}
	return err
}

type lsCmd struct {
	look
	Long      bool   `short:"l" help:"Mode, links, owner, group, size, time of the last change (UTC)."`
	Recursive bool   `short:"R" help:"Below directories too."`
	Config    string `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
	Path      string `arg:"" optional:"" help:"Path in the pool." default:"/"`
}

func (c *lsCmd) Run() error {
	return c.at(c.Config, "ls", func(v *volume.Volume, out *bufio.Writer) error {
		l := inspect.Lister{Volume: v, Out: out, Long: c.Long, Recursive: c.Recursive, Report: c.report}
		return l.List(c.Path)
	})
}

type catCmd struct {
	look
	Config string `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
	Path   string `arg:"" help:"Path in the pool. No symbolic link is followed."`
}

func (c *catCmd) Run() error {
	return c.at(c.Config, "cat", func(v *volume.Volume, out *bufio.Writer) error { return inspect.Cat(v, c.Path, out) })
}

type exportCmd struct {
	look
	Config string `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
	Dir    string `arg:"" help:"Where to: a directory that is empty, or does not exist yet."`
}

func (c *exportCmd) Run() error {
	return c.at(c.Config, "export", func(v *volume.Volume, out *bufio.Writer) error {
		e := inspect.Exporter{Volume: v, Report: c.report}
		if err := e.Export(c.Dir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "exported %d files and %d directories to %s\n", e.Files, e.Dirs, c.Dir)
		return err
	})
}
