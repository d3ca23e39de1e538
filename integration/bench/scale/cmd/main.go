// Scale measures what very many files cost: it fills a pool, mounts it beside an empty one and one of 10,000 files, and compares. It
// exits with 1 if a bound is broken. Run it as root from the top of the checkout (make bench-scale).
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pmemfs/pmemfs/integration/bench/scale"
	"github.com/pmemfs/pmemfs/integration/stage"
	"github.com/pmemfs/pmemfs/internal/pauses"
)

func main() {
	files := flag.Int("files", 10_000_000, "files of the large pool")
	sample := flag.Int("sample", 1_000_000, "files looked at, in each of two pools")
	dir := flag.String("dir", "", "where the pools are made, a file system in memory; none: a tmpfs with pages of 2 MiB is mounted for them")
	flag.Parse()
	r := &run{files: *files, sample: *sample, seed: uint64(time.Now().UnixNano())}
	r.rnd = rand.New(rand.NewPCG(r.seed, 0))
	if err := r.all(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
	if r.broken > 0 {
		fmt.Fprintf(os.Stderr, "bench-scale: %d bounds are broken\n", r.broken)
		os.Exit(1)
	}
}

// run is one run of all measurements.
type run struct {
	files, sample int
	seed          uint64
	rnd           *rand.Rand
	stage         *stage.Stage
	loaded        pauses.Histogram // of the daemon with all files, while it had work to do
	broken        int
}

func (r *run) all(parent string) error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	kind := parent
	if parent == "" {
		memory, unmount, err := mountMemory()
		if err != nil {
			return err
		}
		defer unmount()
		parent, kind = memory, "a tmpfs with pages of 2 MiB"
	}
	dir, err := os.MkdirTemp(parent, "pmemfs-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.stage = &stage.Stage{Dir: dir, Bin: bin, Durability: "memory"}
	defer r.stage.Close()
	fmt.Printf("%s; %d files; pools in %s; seed %d\n\n", machine(), r.files, kind, r.seed)
	if err := r.measure(); err != nil {
		return fmt.Errorf("%w\n%s", err, r.stage.Logs())
	}
	return nil
}

// machine says in words what this runs on.
func machine() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("?")
	}
	var one string
	_, _ = fmt.Sscan(string(load), &one)
	return fmt.Sprintf("%d processors (%s), load %s before the start", runtime.NumCPU(), runtime.GOARCH, one)
}

// pool is a pool with its plan.
type pool struct {
	*stage.Pool
	scale.Mount
}

// make makes a pool for so many files, and the files.
func (r *run) make(name string, files int) (*pool, error) {
	plan := scale.DefaultPlan(files)
	r.stage.PoolSize = fmt.Sprintf("%dM", plan.PoolSize()>>20)
	p, err := r.stage.NewPool(name, r.stage.Path(name+".pool"), nil)
	if err == nil {
		err = p.Make()
	}
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := scale.Fill(p.Config, plan); err != nil {
		return nil, err
	}
	if files > 0 {
		fmt.Printf("made %d files in a pool of %d MiB in %.1f s\n", files, plan.PoolSize()>>20, time.Since(begin).Seconds())
	}
	return &pool{p, scale.Mount{Dir: p.Mountpoint, Plan: plan}}, nil
}

// report prints one figure and its bound, and notes whether it is kept.
func (r *run) report(what string, value, bound float64, unit string) {
	verdict := "ok"
	if !(value < bound) {
		verdict = "BROKEN"
		r.broken++
	}
	fmt.Printf("%-62s %10.3f %-5s (below %.4g)  %s\n", what, value, unit, bound, verdict)
}
