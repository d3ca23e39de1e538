package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountMemory mounts a file system in memory for the pools, in pages of 2 MiB: so persistent memory is mapped too (fs-DAX and Device DAX), and
// what a stat waits for is then the tree and not the tables of pages. Unmount removes it, with all that is in it.
func mountMemory() (dir string, unmount func(), err error) {
	if dir, err = os.MkdirTemp("", "pmemfs-scale-"); err != nil {
		return "", nil, err
	}
	if err := unix.Mount("pmemfs-scale", dir, "tmpfs", 0, "huge=always,size=90%"); err != nil {
		_ = os.Remove(dir) // the error of the mount counts
		return "", nil, fmt.Errorf("mount a tmpfs with huge=always at %s: %w; run as root, or name a directory with -dir (make: DIR=)", dir, err)
	}
	return dir, func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			fmt.Fprintf(os.Stderr, "bench-scale: %s stays mounted: %v; unmount it\n", dir, err)
			return
		}
		_ = os.Remove(dir)
	}, nil
}
