package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// parallelBoots is how many boots go on at a time: one more than a machine with two processors could feed, for jobs wait a good deal.
const parallelBoots = 3

// prepareTimeout bounds everything before the first boot, with an empty cache.
const prepareTimeout = 15 * time.Minute

// Options of a run of the rig.
type Options struct {
	Source   string         // top of the source tree
	Cache    string         // directory for what is fetched and made
	Only     *regexp.Regexp // which runs, by their names; nil: all
	Fallback bool           // take the older kernel at once
	Keep     bool           // keep the directory with all output
	Verbose  bool           // print the output of runs that are ok, too
	Require  bool           // a guest without siw is a failure
	Out      io.Writer
}

// DefaultCache is PMEMFS_RIG_CACHE, or pmemfs-rig in the user's cache directory.
func DefaultCache() (string, error) {
	if dir := os.Getenv("PMEMFS_RIG_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "pmemfs-rig"), err
}

// List prints all runs of all jobs.
func List(w io.Writer) error {
	jobs, err := loadJobs(jobFiles)
	if err != nil {
		return err
	}
	for _, t := range tasks(jobs, newest.devices, func(string) bool { return true }) {
		fmt.Fprintf(w, "%-40s %s\n", t, t.job.about)
	}
	return nil
}

// Run prepares and runs the jobs, and prints a table. The error is an UnavailableError if nothing could be run on this machine.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("run it as root: it unpacks packages and compiles in a root of its own")
	}
	for _, p := range []string{"apt-get", "dpkg-deb", "depmod", "strip", "xz", "zstd", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			return &UnavailableError{fmt.Errorf("%w: run \"make deps-rdma\"", err)}
		}
	}
	jobs, err := loadJobs(jobFiles)
	if err != nil {
		return err
	}
	start := time.Now()
	g, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	all := tasks(o.choose(jobs), g.devices, func(name string) bool { return o.Only == nil || o.Only.MatchString(name) })
	if len(all) == 0 {
		return errors.New("no run has such a name: -list prints them")
	}
	work, err := os.MkdirTemp("/var/tmp", "pmemfs-rig-")
	if err != nil {
		return err
	}
	if o.Keep {
		fmt.Fprintln(o.Out, "output is kept in", work)
	} else {
		defer os.RemoveAll(work)
	}
	results, err := g.play(ctx, o, work, all)
	if err != nil {
		return err
	}
	return summary(o.Out, results, time.Since(start))
}

// choose leaves out the jobs that measure, unless runs are asked for by name: their figures want a machine that does nothing else.
func (o *Options) choose(jobs []job) []job {
	if o.Only != nil {
		return jobs
	}
	return slices.DeleteFunc(jobs, func(j job) bool { return j.measures })
}

// play builds what the tasks need, and boots.
func (g *guest) play(ctx context.Context, o Options, work string, all []task) ([]result, error) {
	s := share{work: filepath.Join(work, "host"), programs: filepath.Join(work, "programs"), source: o.Source}
	if err := writeJobs(s); err != nil {
		return nil, err
	}
	step := time.Now()
	image := filepath.Join(work, "initramfs")
	written := make(chan error, 1)
	go func() { written <- writeImage(ctx, image, g.root, g.kernel, g.drivers) }()
	if err := errors.Join(buildPrograms(ctx, o.Source, s.programs, g.root, all), <-written); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Out, "built programs and guest in %.1f s\n", time.Since(step).Seconds())
	var results []result
	for _, t := range all {
		if t.missing != "" {
			results = append(results, result{task: t})
		}
	}
	var mu sync.Mutex // guards results and the output
	report := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		results = append(results, r)
		printResult(o.Out, r, o.Verbose)
	}
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(o.Out, text)
	}
	list := boots(all)
	errs := make([]error, len(list))
	places := make(chan struct{}, parallelBoots)
	var wg sync.WaitGroup
	for i, b := range list {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			ms, err := b.machines(g.qemu, filepath.Join(g.kernel.dir, "vmlinux"), image, s)
			if err == nil {
				err = b.run(ctx, ms, report, note)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

// writeJobs puts the scripts where the guests find them.
func writeJobs(s share) error {
	if err := errors.Join(os.MkdirAll(filepath.Join(s.work, "jobs"), 0o755), os.MkdirAll(s.programs, 0o755)); err != nil {
		return err
	}
	names, err := fs.Glob(jobFiles, "jobs/*.sh")
	if err != nil {
		return err
	}
	for _, n := range names {
		text, err := jobFiles.ReadFile(n)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.work, n), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// guest is what all guests are made of.
type guest struct {
	kernel  *kernel
	root    string // of the userland
	qemu    []string
	drivers drivers
	devices []string // types of RDMA device that it has
}

// prepare fills the cache. If the newest kernel cannot be had, it takes the older one.
func prepare(ctx context.Context, o Options) (*guest, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	logf := func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }
	c, err := openCache(ctx, o.Cache, logf)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.prune(); err != nil {
		return nil, err
	}
	g, err := assemble(ctx, c, o, o.Fallback)
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && !o.Fallback {
		logf("no kernel of %s, hence that of %s: %v", newest.name, fallback.name, err)
		g, err = assemble(ctx, c, o, true)
	}
	if err == nil {
		logf("kernel %s, devices %v", g.kernel.name, g.devices)
	}
	return g, err
}

// assemble gets userland, kernel and drivers. To compile the drivers takes as long as to fetch all that is fetched, so qemu and the userland are made beside it.
func assemble(ctx context.Context, c *cache, o Options, old bool) (*guest, error) {
	main, security, err := mirrors(ctx)
	if err != nil {
		return nil, err
	}
	trixie, err := newApt(filepath.Join(c.dir, "apt-"+newest.name), newest.sources(main, security))
	if err != nil {
		return nil, err
	}
	from, r := trixie, newest
	if old {
		r = fallback
		if from, err = newApt(filepath.Join(c.dir, "apt-"+fallback.name), fallback.sources(main, security)); err != nil {
			return nil, err
		}
	}
	g := &guest{devices: r.devices}
	made := make(chan error, 1)
	go func() {
		made <- withLists(ctx, trixie, func() (err error) {
			if g.qemu, err = findQEMU(ctx, c, trixie); err == nil {
				g.root, err = userland(ctx, c, trixie)
			}
			return err
		})
	}()
	err = g.getKernel(ctx, c, o, from, r)
	return g, errors.Join(err, <-made)
}

// getKernel gets the kernel and its drivers.
func (g *guest) getKernel(ctx context.Context, c *cache, o Options, from *apt, r release) error {
	err := withLists(ctx, from, func() (err error) {
		g.kernel, err = findKernel(ctx, c, from, r)
		return err
	})
	if err != nil {
		return err
	}
	err = withLists(ctx, from, func() (err error) {
		g.drivers, err = buildDrivers(ctx, c, from, g.kernel)
		return err
	})
	if err != nil && !o.Require && r.name == newest.name {
		c.log("siw could not be built: %v", err)
		g.devices, err = []string{"rxe"}, nil
	}
	return err
}

// withLists does something that needs the package lists. Lists that name what the mirror no longer has are fetched again, once.
func withLists(ctx context.Context, a *apt, do func() error) error {
	if err := a.update(ctx, false); err != nil {
		return err
	}
	err := do()
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || a.isFresh() {
		return err
	}
	if err := a.update(ctx, true); err != nil {
		return err
	}
	return do()
}
