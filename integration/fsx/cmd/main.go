// Command cmd plays a number of random operations on a real mount with a real target, and compares the replica at the end. See
// docs/testing.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/integration/fsx"
	"github.com/pmemfs/pmemfs/integration/stage"
)

func main() {
	ops := flag.Uint64("ops", 1_000_000, "number of operations")
	seed := flag.Uint64("seed", rand.Uint64(), "what the operations are drawn from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *seed, *ops); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays until it is done or ctx is; in any case the daemons and mounts are gone afterwards.
func run(ctx context.Context, seed, ops uint64) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("run it as root: it mounts file systems")
	}
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-fsx-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &stage.Stage{Dir: dir, Bin: dir, Durability: "memory", PoolSize: "64M"}
	defer s.Close()
	if err := stage.Build(".", dir, "./cmd/pmemfs", "./cmd/pmemfs-target"); err != nil {
		return err
	}
	fmt.Printf("seed %d\n", seed)
	m, err := fsx.Start(s, seed)
	if err != nil {
		return err
	}
	begun, next := time.Now(), time.Now().Add(time.Minute)
	err = m.Play(func() bool {
		if m.Done%1000 == 0 && time.Now().After(next) {
			next = next.Add(time.Minute)
			fmt.Printf("%d operations\n", m.Done)
		}
		return m.Done < ops && ctx.Err() == nil
	}, time.Minute)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	took := time.Since(begun)
	if err := m.Finish(); err != nil {
		return err
	}
	fmt.Printf("seed %d: %d operations in %.0f s, %.0f per second; mount and promoted replica agree with the model\n",
		seed, m.Done, took.Seconds(), float64(m.Done)/took.Seconds())
	return nil
}
