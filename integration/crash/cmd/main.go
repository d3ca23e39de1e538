// Command cmd hunts for crash images that violate an invariant, until a time, and repeats single runs. See docs/testing.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/integration/crash"
)

func main() {
	duration := flag.Duration("duration", 20*time.Minute, "how long to hunt")
	seed := flag.Uint64("seed", 1, "first seed")
	cursor := flag.Uint64("cursor", 0, "first sequence of length 3")
	run := flag.String("run", "", "repeat one run, KIND:SEED")
	flag.Parse()
	if err := start(*run, *duration, *seed, *cursor); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(run string, d time.Duration, seed, cursor uint64) error {
	if run != "" {
		return repeat(run)
	}
	return hunt(d, seed, cursor)
}

// repeat does one run, and shortens it if it fails.
func repeat(text string) error {
	spec, err := crash.ParseSpec(text)
	if err != nil {
		return err
	}
	cfg, err := spec.Config()
	if err != nil {
		return err
	}
	var counts crash.Counts
	f := crash.Run(cfg, &counts)
	if f == nil {
		fmt.Printf("%v: %d images, no violation\n", spec, counts.Images.Load())
		return nil
	}
	return report(spec, f)
}

func report(spec crash.Spec, f *crash.Failure) error {
	fmt.Println(crash.Report(spec, f))
	short := crash.Reduce(f, 200, time.Minute)
	return fmt.Errorf("with fewer operations: %s\n%v", short.Config.Kept(), short)
}

// hunt shows every minute how far it is.
func hunt(d time.Duration, seed, cursor uint64) error {
	begun := time.Now()
	h := &crash.Hunt{Until: begun.Add(d), First: seed, Cursor: cursor}
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	done := make(chan error, 1)
	go func() {
		spec, f := h.Run()
		if f == nil {
			done <- nil
			return
		}
		done <- report(spec, f)
	}()
	for {
		select {
		case <-tick.C:
			fmt.Println(h.Summary(time.Since(begun)))
		case err := <-done:
			fmt.Println(h.Summary(time.Since(begun)))
			return err
		}
	}
}
