package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// step is what crash images taken at one event of an fsync recover to.
type step struct {
	event    pmemtest.Event
	old, new bool
}

func (s step) String() string {
	return fmt.Sprintf("%v:%s", s.event, map[[2]bool]string{{true, false}: "old", {false, true}: "new", {true, true}: "either"}[[2]bool{s.old, s.new}])
}

// steps runs one fsync of a file with new content and tells what a crash of copy leaves, event by event, beginning with the
// drain. Equal neighbours count once.
func steps(t *testing.T, setup Setup, mode pmemtest.Mode, copy string) (out []string) {
	t.Helper()
	a := Path{0, 0}
	ops := append(slices.Clone(prelude), Op{Kind: Write, A: a, Off: 5000, Len: 4000}, Op{Kind: Fsync, A: a}, Op{Kind: Deliver})
	effort := Full
	if share > 1 {
		effort = Quick
	}
	w := newWorld(Config{Setup: setup, Mode: mode, Size: 1 << 20, Effort: effort, Ops: ops, Volume: sequenceConfig(0, nil, effort).Volume}, new(Counts))
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
			all = append(all, step{event: c.event})
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

// TestFsync_StateAtEachStep is the table of docs/durability.md: what each copy recovers to after a crash at step k of an fsync.
func TestFsync_StateAtEachStep(t *testing.T) {
	dax := []string{"flush:old", "fence:old", "seal store:either", "flush:either", "fence:new"}
	for _, c := range []struct {
		what  string
		setup Setup
		mode  pmemtest.Mode
		copy  string
		want  []string
	}{
		{"local copy, DAX", Bare, pmemtest.Lines, "local copy", dax},
		{"local copy, ordinary file", Bare, pmemtest.Pages, "local copy", []string{"flush:old", "fence:old", "seal store:either", "flush:new", "fence:new"}},
		{"target, GPSPM", Mirrored, pmemtest.Lines, "target", append([]string{"observation:old"}, append(slices.Clone(dax), "observation:new")...)},
	} {
		if got := steps(t, c.setup, c.mode, c.copy); !slices.Equal(got, c.want) {
			t.Errorf("%s:\nfound    %q\nexpected %q", c.what, got, c.want)
		}
	}
}
