package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Exit codes of fsck, as fsck(8) has them.
const (
	exitCorrected   = 1
	exitErrorsLeft  = 4
	exitOperational = 8
)

type fsckCmd struct {
	Config string `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
	Repair bool   `help:"Put right what can be proven; needs a primary. Without it nothing is changed."`
	From   string `placeholder:"POOLSET" help:"With --repair: take damaged tree nodes from this copy of the pool, by default from the replicas."`
}

// Run exits with 0 when the pool is clean, 1 when all errors were corrected, 4 when there are errors, 8 when it could not be
// checked or repaired, 64 for a wrong use.
func (c *fsckCmd) Run() error {
	if c.From != "" && !c.Repair {
		return &exitError{exitUsage, errors.New("--from needs --repair")}
	}
	cfg, set, err := initiator.Load(c.Config)
	if err != nil {
		return &exitError{exitOperational, err}
	}
	found, notes, err := c.check(set)
	if err == nil && c.Repair && found+notes > 0 {
		if err := c.repair(cfg, set); err != nil {
			return &exitError{exitOperational, adviseRepair(err, c.Config)}
		}
		fmt.Println("check again")
		var left int
		if left, _, err = c.check(set); err == nil && left == 0 && found > 0 {
			return &exitError{exitCorrected, errors.New("errors corrected")}
		}
		found = left
	}
	switch {
	case err != nil:
		return &exitError{exitOperational, adviseLost(err)}
	case found > 0:
		return &exitError{exitErrorsLeft, fmt.Errorf("%s: %d errors; %s", set.File, found, c.next())}
	}
	return nil
}

// next is what can be done about errors.
func (c *fsckCmd) next() string {
	if c.Repair {
		return fmt.Sprintf("they cannot be repaired: promote a replica on its target, or take what is left with `pmemfs export --salvage %s DIR`", c.Config)
	}
	return fmt.Sprintf("`pmemfs fsck --repair %s` puts right what can be proven", c.Config)
}

// check prints what is wrong, without a change, and counts it.
func (c *fsckCmd) check(set *poolset.Set) (found, notes int, err error) {
	p, err := initiator.OpenPrivate(set, "fsck", true)
	if err != nil {
		return 0, 0, err
	}
	err = initiator.Fsck(p, func(f volume.Finding) {
		if f.Note {
			notes++
			fmt.Println("note:", describe(p, &f))
			return
		}
		found++
		fmt.Println(describe(p, &f))
	})
	if err = errors.Join(err, p.Close()); err == nil && found == 0 {
		fmt.Println("clean")
	}
	return found, notes, err
}

// describe says what a finding is, and in which part it stands.
func describe(p *pool.Pool, f *volume.Finding) string {
	if f.Off == 0 {
		return f.String()
	}
	return fmt.Sprintf("%s (%s): %s", f.Where, p.Place(f.Off), f.What)
}

func (c *fsckCmd) repair(cfg *config.Mount, set *poolset.Set) (err error) {
	rc := initiator.RepairConfig{
		Config: cfg, Set: set, Log: stderrLog(),
		Say:     func(f volume.Finding, action string) { fmt.Printf("repair: %v: %s\n", f, action) },
		Refused: func(f volume.Finding) { fmt.Printf("not repaired: %v\n", f) },
	}
	if c.From != "" {
		if rc.From, err = poolset.ParseFile(c.From); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return initiator.Repair(ctx, rc)
}
