// Fabric compares `pmemfs bench fabric` with perftest's programs on the same pair of RDMA devices: round by round, in alternation, so that both see the
// same noise. It prints the ratios, and fails if one is out of its bound. Each side is a network namespace, A with 10.8.0.1 and B
// with 10.8.0.2, and has a processor of its own; the programs are in the PATH. integration/rig runs it in a virtual machine (jobs/perftest.sh).
//
// Both do the same, as far as perftest lets itself be told: connections of rdma_cm, the same number of round trips, of which the percentiles are taken here
// from the list of all of them, the same bytes and window of work requests, each device's own inline size, pinned memory, and in latency tests two sides that
// poll without ever sleeping. What differs: pmemfs sleeps between the completions of a bandwidth test, as it does in daily work, and ends it with a READ, which
// proves that all is placed, and its server sleeps then, where perftest's polls all the time; it signals a quarter of the work requests of a
// window and posts what the window has room for as one batch.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pmemfs/pmemfs/verbs/perf"
)

func main() {
	var o options
	flag.StringVar(&o.provider, "provider", "ibverbs", "of pmemfs")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds of each test")
	flag.IntVar(&o.iterations, "iterations", 1000, "round trips of a latency test in each round")
	flag.IntVar(&o.bytes, "bytes", 32<<20, "size of the file that sendfile sends in each round")
	flag.Float64Var(&o.latency, "latency", 0, "fail if a latency is above so many times perftest's, both in their best round (0: no bound)")
	flag.Float64Var(&o.bandwidth, "bandwidth", 0, "fail if a bandwidth is below so much of perftest's, both in their best round (0: no bound)")
	flag.BoolVar(&o.sendfile, "sendfile", false, "compare examples/sendfile with ib_write_bw, too")
	only := flag.String("only", "", "make only the tests with these names, separated by commas")
	flag.Parse()
	for _, name := range strings.Split(*only, ",") {
		if name != "" {
			o.only = append(o.only, name)
		}
	}
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "fabric:", err)
		os.Exit(1)
	}
}

type options struct {
	provider           string
	rounds             int
	iterations, bytes  int
	latency, bandwidth float64
	sendfile           bool
	only               []string
}

// tests are those that perftest has as well.
func (o *options) tests() (tests []perf.Test) {
	for _, name := range []string{perf.WriteLatency, perf.ReadLatency, perf.WriteBandwidth, perf.ReadBandwidth} {
		if len(o.only) > 0 && !slices.Contains(o.only, name) {
			continue
		}
		for _, size := range perf.Sizes(name) {
			tests = append(tests, perf.Test{Name: name, Size: size})
		}
	}
	return tests
}

func (o *options) run() error {
	stop, err := startServer(o.provider)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%-13s %8s %12s %12s %7s %7s %7s %7s\n", "test", "bytes", "perftest", "pmemfs", "ratio", "p10", "p50", "p90")
	var broken []string
	for _, t := range o.tests() {
		lines, err := o.compare(t)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", t.Name, t.Size, err)
		}
		for _, s := range lines {
			fmt.Println(s.line())
			broken = append(broken, o.judge(s)...)
		}
	}
	if o.sendfile {
		s, err := o.compareSendfile()
		if err != nil {
			return fmt.Errorf("sendfile: %w", err)
		}
		fmt.Println(s.line())
	}
	fmt.Printf("\nThe best of %d rounds of each (latencies in us: the median and the 10th percentile of a round; bandwidths in MiB/s) and the ratio of the two, then percentiles of the ratios of all rounds.\n", o.rounds)
	if len(broken) > 0 {
		return fmt.Errorf("out of bounds: %s", strings.Join(broken, "; "))
	}
	return nil
}

// judge names what is out of its bound. The best round of either side has the least noise in it. WRITE latency is not judged: both sides look at memory
// without a pause, so it is that of the connection only while both have a processor; where they share one, it is a time slice.
func (o *options) judge(s *series) (broken []string) {
	if s.Name == perf.WriteLatency {
		return nil
	}
	ratio := s.ratio()
	if s.latency() && o.latency > 0 && ratio > o.latency {
		broken = append(broken, fmt.Sprintf("%s of %d bytes takes %.2f times perftest's, more than %.2f", s.Name, s.Size, ratio, o.latency))
	}
	if !s.latency() && o.bandwidth > 0 && ratio < o.bandwidth {
		broken = append(broken, fmt.Sprintf("%s of %d bytes has %.2f of perftest's, less than %.2f", s.Name, s.Size, ratio, o.bandwidth))
	}
	return broken
}

// series is the rounds of one test.
type series struct {
	perf.Test
	label        string
	theirs, ours []float64
}

func (s *series) add(theirs, ours float64) {
	s.theirs, s.ours = append(s.theirs, theirs), append(s.ours, ours)
}

func (s *series) latency() bool { return (&perf.Result{Test: s.Test}).Latency() }

// best is the shortest latency or the highest bandwidth.
func (s *series) best(rounds []float64) float64 {
	if s.latency() {
		return slices.Min(rounds)
	}
	return slices.Max(rounds)
}

func (s *series) ratio() float64 { return s.best(s.ours) / s.best(s.theirs) }

func (s *series) percentile(p int) float64 {
	ratios := make([]float64, len(s.ours))
	for i := range ratios {
		ratios[i] = s.ours[i] / s.theirs[i]
	}
	return percentile(ratios, p)
}

// percentile sorts values. Of few of them it takes the nearest.
func percentile(values []float64, p int) float64 {
	slices.Sort(values)
	return values[((len(values)-1)*p+50)/100]
}

func (s *series) line() string {
	return fmt.Sprintf("%-13s %8d %12.1f %12.1f %7.2f %7.2f %7.2f %7.2f", s.label, s.Size, s.best(s.theirs), s.best(s.ours), s.ratio(),
		s.percentile(10), s.percentile(50), s.percentile(90))
}

// figure is what one round of one program gives: a latency in us by two percentiles, of which p10 has less of the noise of a busy machine, or a bandwidth
// in MiB/s, p50 alone.
type figure struct{ p10, p50 float64 }

// compare makes the rounds of one test. Who goes first changes.
func (o *options) compare(t perf.Test) ([]*series, error) {
	p50, p10 := &series{Test: t, label: t.Name}, &series{Test: t, label: t.Name + " p10"}
	for round := range o.rounds {
		var theirs, ours figure
		steps := []func() error{
			func() (err error) { theirs, err = o.perftest(t); return err },
			func() (err error) { ours, err = o.pmemfs(t); return err },
		}
		if round%2 == 1 {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return nil, err
			}
		}
		p50.add(theirs.p50, ours.p50)
		p10.add(theirs.p10, ours.p10)
	}
	if !p50.latency() {
		return []*series{p50}, nil
	}
	return []*series{p50, p10}, nil
}
