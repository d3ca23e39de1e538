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
	"time"
)

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
	for _, p := range []string{qemu, "apt-get", "dpkg-deb", "depmod", "xz", "zstd", "unshare"} {
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
	all := tasks(jobs, g.kernel.release.devices, func(name string) bool { return o.Only == nil || o.Only.MatchString(name) })
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

// play builds what the tasks need, and boots.
func (g *guest) play(ctx context.Context, o Options, work string, all []task) ([]result, error) {
	s := share{work: filepath.Join(work, "host"), programs: filepath.Join(work, "programs"), source: o.Source}
	if err := writeJobs(s); err != nil {
		return nil, err
	}
	step := time.Now()
	if err := buildPrograms(ctx, o.Source, s.programs, g.root, all); err != nil {
		return nil, err
	}
	image := filepath.Join(work, "initramfs")
	if err := writeImage(ctx, image, g.root, g.kernel, g.siw); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Out, "built programs and guest in %.1f s\n", time.Since(step).Seconds())
	var results []result
	for _, t := range all {
		if t.missing != "" {
			results = append(results, result{task: t})
		}
	}
	report := func(r result) {
		results = append(results, r)
		printResult(o.Out, r, o.Verbose)
	}
	for _, b := range boots(all) {
		ms, err := b.machines(filepath.Join(g.kernel.dir, "vmlinux"), image, s)
		if err != nil {
			return nil, err
		}
		if err := b.run(ctx, ms, report); err != nil {
			return nil, err
		}
	}
	return results, nil
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
	kernel *kernel
	root   string // of the userland
	siw    string // siw.ko
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
	g, err := assemble(ctx, c, o.Fallback)
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && !o.Fallback {
		logf("no kernel of %s, hence that of %s: %v", newest.name, fallback.name, err)
		g, err = assemble(ctx, c, true)
	}
	if err == nil {
		logf("kernel %s, devices %v", g.kernel.name, g.kernel.release.devices)
	}
	return g, err
}

// assemble gets kernel, siw and userland. Lists that name what the mirror no longer has are fetched again once.
func assemble(ctx context.Context, c *cache, old bool) (*guest, error) {
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
	g := &guest{}
	get := func() (err error) {
		if g.kernel, err = findKernel(ctx, c, from, r); err != nil {
			return err
		}
		if g.siw, err = buildSiw(ctx, c, from, g.kernel); err != nil {
			return err
		}
		g.root, err = userland(ctx, c, trixie)
		return err
	}
	if err := errors.Join(trixie.update(ctx, false), from.update(ctx, false)); err != nil {
		return nil, err
	}
	err = get()
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && !(trixie.fresh && from.fresh) {
		if err := errors.Join(trixie.update(ctx, true), from.update(ctx, true)); err != nil {
			return nil, err
		}
		err = get()
	}
	return g, err
}
