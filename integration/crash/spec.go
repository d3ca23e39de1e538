package crash

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// Spec names a run: the kind of workload and its seed. It is all that is needed to repeat it.
type Spec struct {
	Kind string
	Seed uint64
}

// Quick is the effort of the tests.
var Quick = pmemtest.Effort{Subsets: 5, Singles: 6, Random: 6}

// Full is the whole enumeration: all subsets of up to 12 units; beyond, each unit lost alone and kept alone, pairs, and 200 at random.
var Full = pmemtest.Effort{Subsets: 12, Singles: 1 << 20, Pairs: 24, Random: 200}

// kindsOfRuns are the workloads by name. The seed of a sequence is its number.
var kindsOfRuns = map[string]func(seed uint64) Config{
	"bare":         func(s uint64) Config { return Random(s, 100) },
	"mirrored":     func(s uint64) Config { return mirror(Random(s, 100)) },
	"bare-lives":   func(s uint64) Config { return BareLives(s, 100) },
	"lives":        func(s uint64) Config { return Lives(s, 100) },
	"bounced":      func(s uint64) Config { return Bounced(s, 100) },
	"restarts":     Restarts,
	"refill":       Refill,
	"methods":      func(s uint64) Config { return Methods(s, 100) },
	"repeats":      func(s uint64) Config { return Repeats(s, 100) },
	"disks":        func(s uint64) Config { return Disks(s, 100) },
	"long":         func(s uint64) Config { return mirror(Random(s, 1000)) },
	"long-lives":   func(s uint64) Config { return Lives(s, 1000) },
	"full":         func(s uint64) Config { return thorough(mirror(Random(s, 12))) },
	"full-lives":   func(s uint64) Config { return thorough(Lives(s, 24)) },
	"pair":         func(s uint64) Config { return nth(s, 2, false, Quick) },
	"pair-methods": func(s uint64) Config { return nth(s, 2, false, Quick).silent(s) },
	"triple":       func(s uint64) Config { return nth(s, 3, true, Quick) },
}

func mirror(c Config) Config {
	c.Setup = Mirrored
	return c
}

func thorough(c Config) Config {
	c.Effort = Full
	return c
}

// nth is sequence number n, from 0.
func nth(n uint64, length int, canonical bool, e pmemtest.Effort) Config {
	i := uint64(0)
	for ops := range sequences(length, canonical) {
		if i == n {
			return sequenceConfig(n, ops, e)
		}
		i++
	}
	return Config{}
}

// Config of the run that s names.
func (s Spec) Config() (Config, error) {
	make := kindsOfRuns[s.Kind]
	if make == nil {
		return Config{}, fmt.Errorf("there is no kind of run called %q", s.Kind)
	}
	c := make(s.Seed)
	if c.Size == 0 {
		return Config{}, fmt.Errorf("there is no %s number %d", s.Kind, s.Seed)
	}
	return c, nil
}

func (s Spec) String() string { return fmt.Sprintf("%s:%d", s.Kind, s.Seed) }

// ParseSpec reads what String writes.
func ParseSpec(text string) (Spec, error) {
	kind, number, ok := strings.Cut(text, ":")
	seed, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return Spec{}, fmt.Errorf("%q is no run: write KIND:SEED, such as lives:17", text)
	}
	return Spec{kind, seed}, nil
}

// Report is what a failure says to those who must understand it.
func Report(s Spec, f *Failure) string {
	return fmt.Sprintf("%v\nrepeat: go run ./integration/crash/cmd -run %v\n", f, s)
}
