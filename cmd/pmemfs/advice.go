package main

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// advise adds to an error that tells of a damaged pool what can be done about it. Config names the pool on the command line.
func advise(err error, config string) error {
	if !damaged(err) {
		return err
	}
	return fmt.Errorf("%w; nothing was repaired: run `pmemfs fsck %s` to see what is damaged, or promote a replica on its target", err, config)
}

// adviseLost does so for damage that leaves nothing to check.
func adviseLost(err error) error {
	if !damaged(err) {
		return err
	}
	return fmt.Errorf("%w; nothing can be taken from this copy: go on with another one, by pmemfs promote where that is", err)
}

// adviseRepair does so for damage that a repair leaves alone.
func adviseRepair(err error, config string) error {
	if !damaged(err) {
		return err
	}
	return fmt.Errorf("%w; that cannot be repaired: promote a replica on its target, or take what is left with `pmemfs export --salvage %s DIR`", err, config)
}

func damaged(err error) bool {
	_, block0 := errors.AsType[*poolset.CorruptError](err)
	return block0 || errors.Is(err, volume.ErrCorrupt)
}
