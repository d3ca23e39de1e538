package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// step is what crash images taken at one event of an fsync recover to.
type step struct {
	event    string
	old, new bool
}

func (s step) String() string {
	return fmt.Sprintf("%v:%s", s.event, map[[2]bool]string{{true, false}: "old", {false, true}: "new", {true, true}: "either"}[[2]bool{s.old, s.new}])
}

// steps runs one fsync of a file with new content on the machines of cfg and tells what a crash of copy leaves, event by event, beginning with the
// drain. Equal neighbours count once.
func steps(t *testing.T, cfg Config, copy string) (out []string) {
	t.Helper()
	a := Path{0, 0}
	ops := append(slices.Clone(prelude), Op{Kind: Write, A: a, Off: 5000, Len: 4000}, Op{Kind: Fsync, A: a}, Op{Kind: Deliver})
	effort := Full
	if share > 1 {
		effort = Quick
	}
	cfg.Size, cfg.Effort, cfg.Ops, cfg.Volume = 1<<20, effort, ops, sequenceConfig(0, nil, effort).Volume
	w := newWorld(cfg, new(Counts))
	var all []step
	noted := 0
	var before uint64 // group that was there before the fsync
	w.observe = func(c *copyUnderTest, s seen) {
		if !w.mounted || w.step < len(ops)-2 || w.step >= len(ops) {
			return
		}
		if before == 0 {
			before = s.lsn
		}
		if c.name != copy {
			return
		}
		last := len(all) - 1
		if last < 0 || c.events != noted {
			noted = c.events
			all = append(all, step{event: w.what(c)})
			last++
		}
		if s.lsn == before {
			all[last].old = true
		} else {
			all[last].new = true
		}
	}
	if f := w.outcome(); f != nil {
		t.Fatal(f)
	}
	for _, s := range all {
		out = append(out, s.String())
	}
	return slices.Compact(out)
}

// what names the present event of c: what the target sees of the fabric is the work request that was carried out.
func (w *World) what(c *copyUnderTest) string {
	if c.event == pmemtest.Observed && w.fabric != nil {
		return w.fabric.Last().String()
	}
	return c.event.String()
}

// TestFsync_StateAtEachStep is the table of docs/durability.md: what each copy recovers to after a crash at step k of an fsync.
func TestFsync_StateAtEachStep(t *testing.T) {
	dax := []string{"flush:old", "fence:old", "seal store:either", "flush:either", "fence:new"}
	gpspm := append([]string{"WRITE:old", "SEND:old"}, append(slices.Clone(dax), "SEND:new")...)
	apm := []string{"WRITE:old", "READ:old", "WRITE:either", "READ:new"}
	for _, c := range []struct {
		what string
		cfg  Config
		copy string
		want []string
	}{
		{"local copy, DAX", Config{}, "local copy", dax},
		{"local copy, eADR", Config{Mode: pmemtest.EADR}, "local copy", dax},
		{"local copy, ordinary file", Config{Mode: pmemtest.Pages}, "local copy", []string{"flush:old", "fence:old", "seal store:either", "flush:new", "fence:new"}},
		{"target, GPSPM", Config{Setup: Mirrored}, "target", gpspm},
		{"target, GPSPM, a device that stores into the cache", Config{Setup: Mirrored, Device: Caching}, "target", gpspm},
		{"target, APM past the cache", mirror(Config{}.by(0)), "target", apm},
		{"target, APM with eADR", mirror(Config{}.by(1)), "target", apm},
		{"target, FLUSH", mirror(Config{}.by(2)), "target", []string{"WRITE:old", "FLUSH:old", "ATOMIC_WRITE:either", "FLUSH:new"}},
	} {
		if got := steps(t, c.cfg, c.copy); !slices.Equal(got, c.want) {
			t.Errorf("%s:\nfound    %q\nexpected %q", c.what, got, c.want)
		}
	}
}
