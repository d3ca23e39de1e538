package main

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// advise adds to an error that tells of a damaged pool what can be done about it. Config names the pool on the command line.
func advise(err error, config string) error {
	_, block0 := errors.AsType[*poolset.CorruptError](err)
	if !block0 && !errors.Is(err, volume.ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; nothing was repaired: run `pmemfs fsck %s` to see what is damaged, or promote a replica on its target", err, config)
}
