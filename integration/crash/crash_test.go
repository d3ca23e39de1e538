package crash

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// light is what leaves time for all sequences.
var light = pmemtest.Effort{Subsets: 3, Singles: 2, Random: 2}

// batch is a list of runs.
type batch struct {
	specs  []Spec
	config func(Spec) Config
}

// each runs the batches on all processors, in one queue: while the last run of a batch goes on, the next batch begins.
func each(t *testing.T, c *Counts, batches []batch) {
	t.Helper()
	type run struct {
		Spec
		config func(Spec) Config
	}
	work := make(chan run)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for r := range work {
				if f := Run(r.config(r.Spec), c); f != nil {
					t.Error(Report(r.Spec, f))
				}
			}
		})
	}
	for _, b := range batches {
		for i, s := range b.specs {
			if i%share == 0 && !t.Failed() {
				work <- run{s, b.config}
			}
		}
	}
	close(work)
	wg.Wait()
}

// specsOf are runs of these lists, by their numbers.
func specsOf(kind string, lists [][]Op) (specs []Spec) {
	for i := range lists {
		specs = append(specs, Spec{kind, uint64(i)})
	}
	return specs
}

// random are n runs of a kind.
func random(kind string, n uint64) (specs []Spec) {
	for seed := range n {
		specs = append(specs, Spec{kind, seed + 1})
	}
	return specs
}

// TestCrash judges at least 200,000 different images: of all workloads of one and two operations, and of random ones with one
// or two copies and one or many lives.
func TestCrash(t *testing.T) {
	var c Counts
	named := func(s Spec) Config {
		cfg, err := s.Config()
		if err != nil {
			t.Error(err)
		}
		return cfg
	}
	var batches []batch
	for _, k := range []struct {
		kind string
		n    uint64
	}{
		{"long-lives", 2}, // the longest runs come first
		{"bare", 24}, {"mirrored", 24}, {"bare-lives", 24}, {"lives", 48}, {"disks", 12}, {"bounced", 12}, {"restarts", 8}, {"repeats", 12}, {"methods", 24}, {"refill", 4},
	} {
		if share > 1 && k.kind == "long-lives" {
			continue
		}
		batches = append(batches, batch{random(k.kind, k.n), named})
	}
	lists := slices.Collect(sequences(2, false))
	batches = append(batches,
		batch{specsOf("pair", lists), func(s Spec) Config { return sequenceConfig(s.Seed, lists[s.Seed], light) }},
		batch{specsOf("pair-methods", lists), func(s Spec) Config { return sequenceConfig(s.Seed, lists[s.Seed], light).silent(s.Seed) }})
	each(t, &c, batches)
	t.Logf("%d images (digest %016x), %d equal ones, %d events, %d runs, %d mounts, %d of them cut short, %d full copies, %d promotions, %d losses of a target, %d of a disk, %d frames that came twice, "+
		"%d acknowledged fsyncs, %d operations without space", c.Images.Load(), c.Digest.Load(), c.Same.Load(), c.Events.Load(), c.Sequences.Load(), c.Mounts.Load(),
		c.Cut.Load(), c.Copies.Load(), c.Promoted.Load(), c.Losses.Load(), c.Disks.Load(), c.Repeated.Load(), c.Acks.Load(), c.Full.Load())
	if n := c.Images.Load(); share == 1 && n < 200_000 {
		t.Errorf("only %d images were judged", n)
	}
	for what, n := range map[string]uint64{"operations without space": c.Full.Load(), "acknowledged fsyncs": c.Acks.Load(), "mounts cut short": c.Cut.Load(),
		"full copies": c.Copies.Load(), "promotions": c.Promoted.Load(), "losses of a target": c.Losses.Load(), "losses of a disk": c.Disks.Load(), "frames that came twice": c.Repeated.Load()} {
		if share == 1 && n < 10 {
			t.Errorf("only %d %s: the workloads do not reach what they are for", n, what)
		}
	}
}

// TestReplay: a seed gives the same run, bit for bit.
func TestReplay(t *testing.T) {
	specs := []Spec{{"lives", 4}, {"mirrored", 5}, {"bare-lives", 6}}
	for _, s := range specs[:max(1, len(specs)/share)] {
		cfg, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		var first, second Counts
		Run(cfg, &first)
		Run(cfg, &second)
		if first.Images.Load() == 0 || first.Images.Load() != second.Images.Load() || first.Digest.Load() != second.Digest.Load() || first.Events.Load() != second.Events.Load() {
			t.Errorf("%v: %d images %x, and then %d images %x", s, first.Images.Load(), first.Digest.Load(), second.Images.Load(), second.Digest.Load())
		}
	}
}

// Fewer names mean fewer sequences, and every one is found once.
func TestSequences_AllOnce(t *testing.T) {
	count := func(length int, canonical bool) int {
		seen := make(map[string]bool)
		n := 0
		for ops := range sequences(length, canonical) {
			seen[list(ops)] = true
			n++
		}
		if len(seen) != n {
			t.Errorf("length %d: %d sequences, %d different ones", length, n, len(seen))
		}
		return n
	}
	one, two, canonical := count(1, false), count(2, false), count(2, true)
	if one != 42 || two <= canonical || canonical <= one {
		t.Errorf("%d, %d, %d sequences", one, two, canonical)
	}
}

func TestSpec(t *testing.T) {
	for _, text := range []string{"lives", "lives:", "lives:x", ":3"} {
		if s, err := ParseSpec(text); err == nil {
			if _, err = s.Config(); err == nil {
				t.Errorf("%q was taken", text)
			}
		}
	}
	for _, text := range []string{"nothing:1", "pair:999999"} {
		s, err := ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Config(); err == nil {
			t.Errorf("%q has a configuration", text)
		}
	}
	s, err := ParseSpec("lives:17")
	if err != nil || s.String() != "lives:17" {
		t.Error(s, err)
	}
}
