//go:build mutants

package crash

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// workload makes the configuration of a seed.
type workload func(seed uint64) Config

func bare(seed uint64) Config { return Random(seed, 100) }

func mirrored(seed uint64) Config { return mirror(Random(seed, 100)) }

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

func bounced(seed uint64) Config { return Bounced(seed, 100) }

func disks(seed uint64) Config { return Disks(seed, 60) }

// shrinking and punching run out of room, a request later with each seed.
func shrinking(seed uint64) Config { return starve(seed, Op{Kind: Truncate, Len: 100}) }

func punching(seed uint64) Config { return starve(seed, Op{Kind: Punch, Off: 100, Len: 8500}) }

func starve(seed uint64, o Op) Config {
	cfg := sequenceConfig(seed, slices.Concat(stage, []Op{o}, after), light)
	cfg.Scarce = Scarce{Step: len(stage), Request: int(seed)}
	return cfg
}

// tight is the profile in which space is short.
func tight(seed uint64) Config { return mirror(profiles[2].config(seed, 200)) }

// apm, apmEADR and flush judge the target alone, with a method that leaves its CPU out.
func apm(seed uint64) Config { return mirrored(seed).silent(0) }

func apmEADR(seed uint64) Config { return mirrored(seed).silent(1) }

func flush(seed uint64) Config { return mirrored(seed).silent(2) }

// caching lets a target choose whose device stores into a cache.
func caching(seed uint64) Config {
	c := remote(seed)
	c.Mode, c.Device = pmemtest.Lines, Caching
	return c
}

// overwrites are fsyncs of the same bytes, one behind the other, at a target whose device places Writes in any order.
func overwrites(seed uint64) Config {
	c := remote(seed)
	c.Unordered, c.Ops = true, []Op{{Kind: Create}, {Kind: Write, Len: 40000}, {Kind: Sync}, {Kind: Deliver}}
	for range 10 {
		for i := range uint32(20) {
			c.Ops = append(c.Ops, Op{Kind: Write, Off: 2000 * i, Len: 100})
		}
		c.Ops = append(c.Ops, Op{Kind: Fsync})
	}
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
	{mutant.SyncRetried, []workload{disks}},
	{mutant.ShortLate, []workload{shrinking}},
	{mutant.ZeroTorn, []workload{punching}},
	{mutant.SealInRange, []workload{remote}},
	{mutant.EarlyReuse, []workload{Refill}},
	{mutant.NodesEarly, []workload{mirrored}},
	{mutant.RootBeforeNodes, []workload{local, remote}},
	{mutant.TreeInPlace, []workload{bare}},
	{mutant.ContentAtWrite, []workload{bare}},
	{mutant.SizeBeforeData, []workload{bare}},
	{mutant.OrphanForgotten, []workload{bare}},
	{mutant.OnePassReplay, []workload{bare}},
	{mutant.FreesForgotten, []workload{bare}},
	{mutant.GrowEarly, []workload{tight}},
	{mutant.UnflushedSeals, []workload{bareLives}},
	{mutant.FsyncSeesNothing, []workload{mirrored}},
	{mutant.RenameNotWhole, []workload{bare}},
	{mutant.OldSnapshot, []workload{bare, lives}},
	{mutant.AckBeforeTarget, []workload{mirrored}},
	{mutant.TargetSealFirst, []workload{remote}},
	{mutant.APMNoFence, []workload{apm, apmEADR}},
	{mutant.APMNoRead, []workload{apm, apmEADR}},
	{mutant.APMNoLastRead, []workload{apm, apmEADR}},
	{mutant.APMCaching, []workload{caching}},
	{mutant.FlushVisible, []workload{flush}},
	{mutant.FlushEarly, []workload{flush}},
	{mutant.FlushNoSeal, []workload{flush}},
	{mutant.Overlap, []workload{overwrites}},
	{mutant.StagedLate, []workload{bounced}},
	{mutant.NoInconsistent, []workload{lives}},
	{mutant.NoFencing, []workload{lives}},
	{mutant.StateInPlace, []workload{lives}},
	{mutant.UnflushedOpen, []workload{Restarts}},
}

// unreachable are faults that no crash can show as things are, since something else stands in the way too. The tests of their own package
// see them.
var unreachable = []struct {
	fault     mutant.Name
	pkg, test string
}{
	// At most four groups are under way, and a checkpoint is due at a quarter of the log.
	{mutant.LogEarly, "./fs/volume", "TestLogIsNotReusedBeforeTheSuper"},
	// The drain of the local copy ends before the pipeline hears of the super.
	{mutant.SuperAhead, "./fs/commit", "TestPipeline"},
	// The buffers are larger than what is under way.
	{mutant.BounceReused, "./replicate", "TestBounce_WaitsForTheAnswer"},
	// A claim with an old term comes from a connection that is gone, or from a copy of another generation.
	{mutant.AnyTerm, "./target", "TestMachine"},
}

func TestMutants_Unreachable(t *testing.T) {
	for _, m := range unreachable {
		t.Run(string(m.fault), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", "test", "-tags", "mutants", "-count=1", "-run", m.test, m.pkg)
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "PMEMFS_MUTANT="+string(m.fault))
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: "+m.test)) {
				t.Errorf("%s in %s: %v: the test is blind for this fault:\n%s", m.test, m.pkg, err, out)
			}
		})
	}
}

// TestReduce: a failure is shortened, and still is one.
func TestReduce(t *testing.T) {
	mutant.Set(mutant.SizeBeforeData)
	defer mutant.Set("")
	f := Run(bare(1), new(Counts))
	if f == nil {
		t.Fatal("nothing to shorten")
	}
	short := Reduce(f, 200, time.Minute)
	n := 0
	for _, k := range short.Config.Keep {
		if k {
			n++
		}
	}
	if n == 0 || n > 6 {
		t.Errorf("%d operations are left: %s", n, short.Config.Kept())
	}
	if Run(short.Config, new(Counts)) == nil {
		t.Error("what is left does not fail")
	}
}

// TestMutants_NoneIsOn: what the workloads made for one fault show is that fault.
func TestMutants_NoneIsOn(t *testing.T) {
	for name, w := range map[string]workload{"apm": apm, "apmEADR": apmEADR, "flush": flush, "caching": caching, "overwrites": overwrites} {
		for seed := uint64(1); seed <= 3; seed++ {
			if f := Run(w(seed), new(Counts)); f != nil {
				t.Errorf("%s, seed %d: %v", name, seed, f)
			}
		}
	}
}

// seeds is how many are tried before a mutant counts as a survivor.
const seeds = 40

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
