// Cmd runs the jobs of integration/rig in virtual machines. It must run as root on a Debian machine, at the top of the source tree.
//
// Exit codes: 0 all runs are ok, or the machine cannot have the packages that the guests are made of, which is then printed; 1 a run failed. With
// PMEMFS_REQUIRE_PROGRAMS=1, as in CI, missing packages are a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/pmemfs/pmemfs/integration/rig"
)

func main() {
	o := rig.Options{Out: os.Stdout, Require: os.Getenv("PMEMFS_REQUIRE_PROGRAMS") != ""}
	only := flag.String("run", "", "only the runs whose names match this regular expression")
	list := flag.Bool("list", false, "list all runs")
	arm64 := flag.String("arm64", "", "no jobs: run the tests of internal/pmem, built for arm64 in this file, in emulated processors")
	flag.StringVar(&o.Cache, "cache", "", "directory for packages and what is made of them (default $PMEMFS_RIG_CACHE, or pmemfs-rig in the user's cache directory)")
	flag.BoolVar(&o.Fallback, "fallback", false, "take the older kernel, which only has siw")
	flag.BoolVar(&o.Keep, "keep", false, "keep the directory with the output of all guests")
	flag.BoolVar(&o.Verbose, "v", false, "print the output of runs that are ok, too")
	flag.Parse()
	if err := run(o, *only, *list, *arm64); err != nil {
		fmt.Fprintf(os.Stderr, "rig: %v\n", err)
		os.Exit(1)
	}
}

func run(o rig.Options, only string, list bool, arm64 string) (err error) {
	if list {
		return rig.List(o.Out)
	}
	if only != "" { // no name at all leaves out the runs that only a name selects
		if o.Only, err = regexp.Compile(only); err != nil {
			return err
		}
	}
	if o.Cache == "" {
		if o.Cache, err = rig.DefaultCache(); err != nil {
			return err
		}
	}
	if o.Source, err = os.Getwd(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if arm64 != "" {
		err = rig.RunARM64(ctx, o, arm64)
	} else {
		err = rig.Run(ctx, o)
	}
	var unavailable *rig.UnavailableError
	if errors.As(err, &unavailable) && !o.Require {
		fmt.Printf("SKIPPED, nothing was run: %v\n", err)
		return nil
	}
	return err
}
