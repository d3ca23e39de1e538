// Bench runs the same loops on a pmemfs with one target, on a pmemfs without a target and on a FUSE floor, alternating round by
// round, and prints p10, p50 and the ratio to the floor. Pools lie on tmpfs, with durability "memory". Run it as root from the top of the
// checkout (make bench).
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "alternating rounds")
	n := flag.Int("n", 1000, "operations per loop and round")
	only := flag.String("only", "", "run one loop")
	limit := flag.Float64("limit", 0, "exit with 1 if w4k_fsync with a target takes more than this times the floor at p10 (0: no limit)")
	flag.Parse()
	if err := bench(*rounds, *n, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// result holds all times of one loop on one contestant, over all rounds, and each round's p10.
type result struct {
	times []time.Duration
	p10s  []time.Duration
}

func bench(rounds, n int, only string, limit float64) error {
	s, err := newStage()
	if err != nil {
		return err
	}
	defer os.RemoveAll(s.Dir)
	defer s.Close()
	contestants, err := mountAll(s)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	seed := uint64(time.Now().UnixNano())
	fmt.Printf("rounds %d, operations per round %d, seed %d\n", rounds, n, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	results := map[string]map[string]*result{}
	for range rounds {
		for _, l := range loops {
			if only != "" && l.name != only {
				continue
			}
			for _, c := range contestants {
				times, err := l.run(c.dir, n, rnd)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, c.name, err)
				}
				record(results, l.name, c.name, times)
			}
		}
	}
	return report(results, contestants, limit)
}

func record(results map[string]map[string]*result, loop, contestant string, times []time.Duration) {
	if results[loop] == nil {
		results[loop] = map[string]*result{}
	}
	r := results[loop][contestant]
	if r == nil {
		r = &result{}
		results[loop][contestant] = r
	}
	slices.Sort(times)
	r.times = append(r.times, times...)
	r.p10s = append(r.p10s, percentile(times, 10))
}

// percentile of sorted times.
func percentile(times []time.Duration, p int) time.Duration { return times[(len(times)-1)*p/100] }

func median(times []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(times))
	return s[len(s)/2]
}

func report(results map[string]map[string]*result, contestants []contestant, limit float64) error {
	fmt.Printf("\n%-15s %-10s %9s %9s %9s %9s\n", "loop", "on", "p10 us", "p50 us", "p10/floor", "p50/floor")
	for _, l := range loops {
		byName := results[l.name]
		if byName == nil {
			continue
		}
		floor := byName["floor"]
		slices.Sort(floor.times)
		for _, c := range contestants {
			r := byName[c.name]
			slices.Sort(r.times)
			p10, p50 := median(r.p10s), percentile(r.times, 50)
			ratio := float64(p10) / float64(median(floor.p10s))
			fmt.Printf("%-15s %-10s %9.1f %9.1f %9.2f %9.2f\n", l.name, c.name, micros(p10), micros(p50), ratio, float64(p50)/float64(percentile(floor.times, 50)))
			if limit > 0 && l.name == "w4k_fsync" && c.name == "target" && ratio > limit {
				return fmt.Errorf("w4k_fsync with a target takes %.2f times the floor at p10, more than %.2f", ratio, limit)
			}
		}
	}
	fmt.Println()
	for _, l := range loops {
		fmt.Printf("%-15s %s\n", l.name, l.what)
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
