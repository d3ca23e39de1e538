package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/perf"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

type benchCmd struct {
	Fabric benchFabricCmd `cmd:"" help:"Latency and bandwidth of the way to a target, measured as perftest does."`
}

type benchFabricCmd struct {
	Addr       string        `arg:"" optional:"" help:"host:port of the other side, where this command runs with --listen."`
	Listen     string        `placeholder:"ADDR" help:"Be the other side, at host:port. There is no authentication."`
	Provider   string        `default:"iwarp" enum:"iwarp,ibverbs" help:"iwarp or ibverbs."`
	Device     string        `help:"RDMA device of ibverbs; by default the one that leads to the address."`
	GID        int           `name:"gid" default:"-1" help:"Index of the local GID of ibverbs; -1: choose."`
	Only       []string      `help:"Make only these tests: write_lat, read_lat, write_read_lat, write_bw, read_bw."`
	Size       []int         `help:"Bytes of a work request, in place of 8 and 4096 for latency, 65536 and 1048576 for bandwidth."`
	Iterations int           `default:"2000" help:"Round trips of each latency test."`
	Time       time.Duration `default:"1s" help:"Length of each bandwidth test."`
	Window     int           `default:"16" help:"Work requests in flight in a bandwidth test."`
	Busy       bool          `help:"Never sleep in a latency test, as perftest does."`
	JSON       bool          `name:"json" help:"One JSON object."`
}

// Run measures, or serves until it is stopped.
func (c *benchFabricCmd) Run() (err error) {
	if (c.Addr == "") == (c.Listen == "") {
		return &exitError{exitUsage, errors.New("give either the address of the other side, or --listen; see pmemfs bench fabric --help")}
	}
	tests := c.tests()
	opt := perf.Options{Iterations: c.Iterations, Time: c.Time, Window: c.Window, Busy: c.Busy}
	if err := opt.Check(tests); err != nil {
		return &exitError{exitUsage, fmt.Errorf("%w; see pmemfs bench fabric --help", err)}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dev, err := provider.Open(provider.Options{Name: c.Provider, Device: c.Device, GID: c.GID, Addr: c.Addr + c.Listen})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if c.Listen != "" {
		return c.serve(ctx, dev)
	}
	return c.measure(ctx, dev, opt, tests)
}

func (c *benchFabricCmd) serve(ctx context.Context, dev verbs.Device) error {
	listener, err := dev.Listen(c.Listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on %v\n", listener.Addr())
	return perf.Serve(ctx, dev, listener, func(client net.Addr, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n", client, err)
		}
	})
}

// tests are those that the flags ask for.
func (c *benchFabricCmd) tests() (tests []perf.Test) {
	names := c.Only
	if len(names) == 0 {
		names = perf.Names()
	}
	for _, name := range names {
		sizes := c.Size
		if len(sizes) == 0 {
			sizes = perf.Sizes(name)
		}
		if len(sizes) == 0 {
			sizes = []int{perf.MinSize} // there is no such test, which Check says
		}
		for _, size := range sizes {
			tests = append(tests, perf.Test{Name: name, Size: size})
		}
	}
	return tests
}

// measure prints the head of the table with its first line: before that the other side may not be there.
func (c *benchFabricCmd) measure(ctx context.Context, dev verbs.Device, opt perf.Options, tests []perf.Test) error {
	var results []perf.Result
	err := perf.Run(ctx, dev, c.Addr, opt, tests, func(r perf.Result) {
		if len(results) == 0 && !c.JSON {
			c.printHead(dev)
		}
		if results = append(results, r); !c.JSON {
			printResult(r)
		}
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(dev.Name(), results)
	}
	_, err = fmt.Print("\nwrite_lat is half of a round trip of WRITEs that both sides find in memory, read_lat and write_read_lat are round trips.\n" +
		"Bandwidths are those of rounds of 32 MiB, each up to its last completion.\n")
	return err
}

func (c *benchFabricCmd) printHead(dev verbs.Device) {
	fmt.Printf("%s to %s; %d round trips each; %v of transfers each, %d work requests in flight\n\n", dev.Name(), c.Addr, c.Iterations, c.Time, c.Window)
	fmt.Printf("%-15s %9s %12s %12s %12s\n", "test", "bytes", "p10", "p50", "p99")
}

func printResult(r perf.Result) {
	unit, scale := "us", 1e6
	if !r.Latency() {
		unit, scale = "MiB/s", 1.0/(1<<20)
	}
	fmt.Printf("%-15s %9d %9.1f %s %9.1f %s %9.1f %s\n", r.Name, r.Size, r.P10*scale, unit, r.P50*scale, unit, r.P99*scale, unit)
}

// jsonResult has its values in seconds or bytes per second.
type jsonResult struct {
	Test  string  `json:"test"`
	Bytes int     `json:"bytes"`
	Unit  string  `json:"unit"`
	P10   float64 `json:"p10"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

func printJSON(device string, results []perf.Result) error {
	out := struct {
		Device  string       `json:"device"`
		Results []jsonResult `json:"results"`
	}{Device: device}
	for _, r := range results {
		unit := "s"
		if !r.Latency() {
			unit = "bytes/s"
		}
		out.Results = append(out.Results, jsonResult{r.Name, r.Size, unit, r.P10, r.P50, r.P99})
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
