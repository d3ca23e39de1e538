//go:build mutants

package crash

import (
	"testing"

	"github.com/pmemfs/pmemfs/internal/mutant"
)

// workload makes the configuration of a seed.
type workload func(seed uint64) Config

func bare(seed uint64) Config { return Random(seed, 100) }

func mirrored(seed uint64) Config {
	c := Random(seed, 100)
	c.Setup = Mirrored
	return c
}

// local and remote judge one copy only: a fault of the commit primitive must be seen on each of both.
func local(seed uint64) Config {
	c := mirrored(seed)
	c.Blind = "target"
	return c
}

func remote(seed uint64) Config {
	c := mirrored(seed)
	c.Blind = "local copy"
	return c
}

func bareLives(seed uint64) Config { return BareLives(seed, 100) }

func lives(seed uint64) Config { return Lives(seed, 100) }

// tight and storm are the profiles in which space and log are short.
func tight(seed uint64) Config { return profiled(seed, &profiles[2]) }
func storm(seed uint64) Config { return profiled(seed, &profiles[3]) }

func profiled(seed uint64, p *profile) Config {
	c := p.config(seed, 200)
	c.Setup = Mirrored
	return c
}

// mutants are the faults, with the workloads each of which must see them.
var mutants = []struct {
	fault     mutant.Name
	workloads []workload
}{
	{mutant.NoDataFlush, []workload{local, remote}},
	{mutant.NoDataFence, []workload{local, remote}},
	{mutant.NoSealFlush, []workload{local, remote}},
	{mutant.NoSealFence, []workload{local, remote}},
	{mutant.SealWithData, []workload{local, remote}},
	{mutant.SealInRange, []workload{remote}},
	{mutant.EarlyReuse, []workload{tight}},
	{mutant.NodesEarly, []workload{mirrored}},
	{mutant.LogEarly, []workload{storm}},
	{mutant.RootBeforeNodes, []workload{local, remote}},
	{mutant.TreeInPlace, []workload{bare}},
	{mutant.ContentAtWrite, []workload{bare}},
	{mutant.SizeBeforeData, []workload{bare}},
	{mutant.OrphanForgotten, []workload{bare}},
	{mutant.OnePassReplay, []workload{bare}},
	{mutant.FreesForgotten, []workload{bare}},
	{mutant.UnflushedSeals, []workload{bareLives}},
	{mutant.FsyncSeesNothing, []workload{mirrored}},
	{mutant.RenameNotWhole, []workload{bare}},
	{mutant.SuperAhead, []workload{mirrored}},
	{mutant.AckBeforeTarget, []workload{mirrored}},
	{mutant.TargetSealFirst, []workload{remote}},
	{mutant.NoInconsistent, []workload{lives}},
	{mutant.AnyTerm, []workload{lives}},
	{mutant.NoFencing, []workload{lives}},
	{mutant.StateInPlace, []workload{lives}},
	{mutant.UnflushedOpen, []workload{lives}},
}

// seeds is how many are tried before a mutant counts as a survivor.
const seeds = 60

func TestMutants(t *testing.T) {
	defer mutant.Set("")
	for _, m := range mutants {
		t.Run(string(m.fault), func(t *testing.T) {
			mutant.Set(m.fault)
			for _, w := range m.workloads {
				kill(t, w)
			}
		})
	}
}

// kill fails the test if no seed of the workload shows the fault that is switched on.
func kill(t *testing.T, w workload) {
	var c Counts
	for seed := uint64(1); seed <= seeds; seed++ {
		if f := Run(w(seed), &c); f != nil {
			t.Logf("seen by seed %d after %d images: %.400v", seed, c.Images.Load(), f)
			return
		}
	}
	t.Errorf("survives %d images of %d seeds: the simulation is blind for this fault", c.Images.Load(), seeds)
}
