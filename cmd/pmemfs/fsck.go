package main

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/initiator"
)

// Exit codes of fsck, as fsck(8) has them.
const (
	exitErrorsLeft  = 4
	exitOperational = 8
)

type fsckCmd struct {
	Config string `arg:"" help:"Configuration or pool set file of a pool that is not mounted; also that of a replica."`
}

// Run exits with 0 when the pool is clean, 4 when there are errors, 8 when it could not be checked.
func (c *fsckCmd) Run() error {
	_, set, err := initiator.Load(c.Config)
	if err != nil {
		return &exitError{exitOperational, err}
	}
	p, err := initiator.OpenPrivate(set, "fsck", true)
	if err != nil {
		return &exitError{exitOperational, err}
	}
	found := 0
	err = initiator.Fsck(p, func(f volume.Finding) {
		kind := ""
		if f.Note {
			kind = "note: "
		} else {
			found++
		}
		place := ""
		if f.Off > 0 {
			place = " (" + p.Place(f.Off) + ")"
		}
		fmt.Printf("%s%s%s: %s\n", kind, f.Where, place, f.What)
	})
	if err = errors.Join(err, p.Close()); err != nil {
		return &exitError{exitOperational, err}
	}
	if found > 0 {
		return &exitError{exitErrorsLeft, fmt.Errorf("%s: %d errors", set.File, found)}
	}
	_, err = fmt.Println("clean")
	return err
}
