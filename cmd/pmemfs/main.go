// Pmemfs makes, mounts and looks after pools: see `pmemfs --help`.
//
// It is also the mount and umount helper: mount(8) runs it as /sbin/mount.fuse.pmemfs, umount(8) as /sbin/umount.fuse.pmemfs,
// and mount.fuse3 as `pmemfs SOURCE MOUNTPOINT -o OPTIONS`.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
)

// Exit codes. Those of a mount are mount(8)'s, those of fsck are fsck(8)'s; those of status are the verdict's.
const (
	exitFailed      = 2
	exitMountUsage  = 1
	exitMountFailed = 32
	exitUsage       = 64
)

type cli struct {
	MkPool  mkPoolCmd  `cmd:"" name:"mkpool" help:"Make a new pool, and its replicas on the targets."`
	RmPool  rmPoolCmd  `cmd:"" name:"rmpool" help:"Remove one copy of a pool: files are deleted, devices erased."`
	Mount   mountCmd   `cmd:"" help:"Mount a pool."`
	Umount  umountCmd  `cmd:"" help:"Unmount: sync, unmount, wait until the daemon has ended, say what is not replicated."`
	Sync    syncCmd    `cmd:"" help:"Make everything written so far durable on every copy."`
	Grow    growCmd    `cmd:"" help:"Make a mounted pool as large as its pool set file says by now, on every copy."`
	Status  statusCmd  `cmd:"" help:"Show the state of a mount or of an unmounted pool."`
	Promote promoteCmd `cmd:"" help:"On a target: make a replica mountable here, and fence its initiator."`
	Fsck    fsckCmd    `cmd:"" help:"Check the file system in an unmounted pool."`
	Dump    dumpCmd    `cmd:"" help:"Show the structure of an unmounted pool: header, super slots, log, tree nodes."`
	Ls      lsCmd      `cmd:"" help:"List files of an unmounted pool."`
	Cat     catCmd     `cmd:"" help:"Write the content of a file of an unmounted pool to standard output."`
	Export  exportCmd  `cmd:"" help:"Copy all files of an unmounted pool out of it, with their attributes."`
	Bench   benchCmd   `cmd:"" help:"Measure the way to a target."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

const description = `A file system whose files live in a persistent-memory pool and whose fsync returns only when the bytes are durable on remote targets as well.

CONFIG is a TOML file that names the pool set, or the pool set file itself. It can also be mounted with mount(8): "mount -t fuse.pmemfs CONFIG MOUNTPOINT".`

// exitError ends the program with its own code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	err := dispatch(filepath.Base(os.Args[0]), os.Args[1:])
	if err == nil {
		return
	}
	code := exitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "pmemfs:", text)
	}
	os.Exit(code)
}

func dispatch(name string, args []string) error {
	switch {
	case name == "umount.fuse.pmemfs":
		return umountHelper(args)
	case name == "mount.fuse.pmemfs":
		return mountHelper(args, true)
	case isHelperForm(args):
		return mountHelper(args, false)
	}
	return runCommand(args)
}

func runCommand(args []string) error {
	var c cli
	parser, err := kong.New(&c, kong.Name("pmemfs"), kong.Description(description), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		return err
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("%w; see pmemfs --help", err)}
	}
	return ctx.Run()
}
