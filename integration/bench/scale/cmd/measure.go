package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/integration/bench/scale"
	"github.com/pmemfs/pmemfs/internal/pauses"
)

const (
	smallFiles  = 10_000
	statRound   = 10_000
	fsyncRounds = 20
	fsyncRound  = 1000
)

func (r *run) measure() error {
	large, err := r.make("large", r.files)
	if err != nil {
		return err
	}
	small, err := r.make("small", smallFiles)
	if err != nil {
		return err
	}
	empty, err := r.make("empty", 0)
	if err != nil {
		return err
	}
	fmt.Println()
	for _, step := range []func() error{
		func() error { return r.mount("clean mount", large, 1) },
		func() error { return small.Pool.Mount() },
		func() error { return empty.Pool.Mount() },
		func() error {
			return r.load("stats of files at random", large, func() error { return r.stats(large, small) })
		},
		func() error { return r.memory(large) },
		func() error { return r.load("write+fsync", large, func() error { return r.fsyncs(large, empty) }) },
		func() error { return r.pauses(large) },
		func() error { return r.kill(large) },
		r.sparse,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mount measures how long `pmemfs mount` takes, its start and that of the daemon included.
func (r *run) mount(what string, p *pool, bound float64) error {
	begin := time.Now()
	if err := p.Pool.Mount(); err != nil {
		return err
	}
	r.report(what, time.Since(begin).Seconds(), bound, "s")
	return nil
}

// stats compares how fast two pools answer for files that the kernel does not know, round by round in turn.
func (r *run) stats(large, small *pool) error {
	n := min(statRound, r.files)
	var times [2][]time.Duration
	for range max(r.sample/n, 1) {
		for i, p := range []*pool{large, small} {
			d, err := p.Stat(n, r.rnd)
			if err != nil {
				return err
			}
			times[i] = append(times[i], d)
		}
	}
	l, s := scale.Median(times[0]), scale.Median(times[1])
	fmt.Printf("stat: %.1f us each with %d files, %.1f us with %d (medians of %d rounds of %d)\n",
		micros(l, n), r.files, micros(s, n), smallFiles, len(times[0]), n)
	r.report("stat rate with 10,000 files, divided by that with all", l.Seconds()/s.Seconds(), 1/0.7, "")
	return nil
}

func micros(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }

const mib = 1 << 20

// memory lets the kernel hold very many inodes, and then drop them.
func (r *run) memory(p *pool) error {
	n := min(r.files, 1_000_000)
	err := r.load(fmt.Sprintf("stats of %d files", n), p, func() error {
		_, err := p.Stat(n, r.rnd)
		return err
	})
	if err != nil {
		return err
	}
	st, err := p.Status()
	if err != nil {
		return err
	}
	held, err := scale.RssAnon(st.PID)
	if err != nil {
		return err
	}
	r.report(fmt.Sprintf("RssAnon while the kernel holds %d inodes", n), float64(held)/mib, 512, "MiB")
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
		return err
	}
	after := held
	for end := time.Now().Add(4 * time.Minute); after >= held && time.Now().Before(end); time.Sleep(time.Second) {
		if after, err = scale.RssAnon(st.PID); err != nil {
			return err
		}
	}
	r.report("the same after echo 2 > drop_caches", float64(after)/mib, float64(held)/mib, "MiB")
	return nil
}

// fsyncs compares write and fsync of 4 KiB.
func (r *run) fsyncs(large, empty *pool) error {
	var p10s [2][]time.Duration
	for range fsyncRounds {
		for i, p := range []*pool{large, empty} {
			d, err := p.Fsync(fsyncRound, r.rnd)
			if err != nil {
				return err
			}
			p10s[i] = append(p10s[i], d)
		}
	}
	l, e := scale.Median(p10s[0]), scale.Median(p10s[1])
	fmt.Printf("4 KiB write+fsync: p10 %.1f us with %d files, %.1f us in an empty pool (medians of %d rounds of %d)\n",
		micros(l, 1), r.files, micros(e, 1), fsyncRounds, fsyncRound)
	r.report("p10 of write+fsync with all files, divided by that of none", l.Seconds()/e.Seconds(), 1.15, "")
	return nil
}

// load makes the daemon work, and notes its pauses meanwhile.
func (r *run) load(what string, p *pool, work func() error) error {
	before, err := p.Status()
	if err == nil {
		err = work()
	}
	if err != nil {
		return err
	}
	after, err := p.Status()
	if err != nil {
		return err
	}
	pauses := after.Pauses.Since(before.Pauses)
	r.loaded = r.loaded.Plus(pauses)
	fmt.Printf("%d pauses of the daemon in %s: p99 %.3f ms\n", pauses.Count(), what, pauses.P99()*1000)
	return nil
}

func (r *run) pauses(p *pool) error {
	st, err := p.Status()
	if err != nil {
		return err
	}
	if st.Pauses.Count() == 0 {
		return errors.New("pmemfs status tells no pauses: are bin/pmemfs and this program of one version?")
	}
	// This program has the same runtime and processors, and collects when the daemons are idle: the machine, not the daemon, makes the pauses that it sees too.
	own := pauses.Read()
	fmt.Printf("all %d pauses of the daemon, idle times and drop_caches included: p99 %.3f ms; all %d of this program: %.3f ms\n",
		st.Pauses.Count(), st.Pauses.P99()*1000, own.Count(), own.P99()*1000)
	r.report(fmt.Sprintf("p99 of the daemon's %d pauses under load", r.loaded.Count()), r.loaded.P99()*1000, 1, "ms")
	return nil
}

// kill kills the daemon under a load that never ends, and mounts again.
func (r *run) kill(p *pool) error {
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := p.Fsync(fsyncRound, r.rnd); err != nil {
				done <- err
				return
			}
		}
	}()
	time.Sleep(time.Second)
	if err := p.Kill(); err != nil {
		return err
	}
	<-done // the error that the dead mount gives
	return r.mount("mount after kill -9 under load", p, 3)
}

// sparse mounts a pool of 1 TiB in a file without blocks.
func (r *run) sparse() error {
	r.stage.PoolSize = "1T"
	s, err := r.stage.NewPool("sparse", r.stage.Path("sparse.pool"), nil)
	if err == nil {
		err = s.Make("--sparse")
	}
	if err != nil {
		return err
	}
	return r.mount("mount of a sparse pool of 1 TiB", &pool{Pool: s}, 1)
}
