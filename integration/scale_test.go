package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/bench/scale"
	"github.com/pmemfs/pmemfs/integration/stage"
)

// filled is a pool without targets that was filled after a plan and is not mounted.
func (r *rig) filled(name string, plan scale.Plan) scale.Mount {
	r.t.Helper()
	r.PoolSize = fmt.Sprintf("%dM", plan.PoolSize()>>20)
	p, err := r.NewPool(name, r.Path(name+".pool"), nil)
	r.must(err)
	r.must(p.Make("--sparse"))
	r.must(scale.Fill(p.Config, plan))
	r.pool = p
	return scale.Mount{Dir: p.Mountpoint, Plan: plan}
}

// timedMount mounts r.pool and says how long it took.
func (r *rig) timedMount() time.Duration {
	r.t.Helper()
	begin := time.Now()
	r.must(r.pool.Mount())
	return time.Since(begin)
}

// TestScale is a small `make bench-scale`, with bounds that a busy machine does not break: what is in proportion to the number
// of files would break them.
func TestScale(t *testing.T) {
	files, few := 100_000, 1000
	if race {
		files = 20_000
	}
	r := newBareStage(t, setup{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	small := r.filled("small", scale.DefaultPlan(few))
	r.must(r.pool.Mount())
	large := r.filled("large", scale.DefaultPlan(files))
	clean := r.timedMount()
	pid := r.status().PID
	var stats, p10s [2][]time.Duration
	for range 5 {
		for i, m := range []scale.Mount{large, small} {
			d, err := m.Stat(few, rnd)
			r.must(err)
			stats[i] = append(stats[i], d)
			d, err = m.Fsync(200, rnd)
			r.must(err)
			p10s[i] = append(p10s[i], d)
		}
	}
	_, err := large.Stat(files/4, rnd)
	r.must(err)
	anon, err := scale.RssAnon(pid)
	r.must(err)
	r.must(r.pool.Kill())
	killed := r.timedMount()
	st := r.status()
	t.Logf("mount %v, after a kill %v; RssAnon %d MiB; stat %v and %v for %d files; fsync %v and %v; pauses %.3f ms", clean, killed, anon>>20,
		scale.Median(stats[0]), scale.Median(stats[1]), few, scale.Median(p10s[0]), scale.Median(p10s[1]), st.Pauses.P99()*1000)
	log, err := os.ReadFile(r.Path("large.log"))
	r.must(err)
	if n := strings.Count(string(log), "snapshot=true"); n != 2 && !race {
		t.Errorf("%d of 2 mounts used a snapshot:\n%s", n, log)
	}
	if limit := soon; clean > limit || killed > limit {
		t.Errorf("mount %v, after a kill %v: more than %v", clean, killed, limit)
	}
	if limit := uint64(100 << 20); !race && anon > limit {
		t.Errorf("RssAnon %d: more than %d bytes", anon, limit)
	}
	if l, s := scale.Median(stats[0]), scale.Median(stats[1]); l > 4*s {
		t.Errorf("a stat takes %v with %d files, %v with %d", l/time.Duration(few), files, s/time.Duration(few), few)
	}
	if l, s := scale.Median(p10s[0]), scale.Median(p10s[1]); l > 4*s {
		t.Errorf("write and fsync take %v with %d files, %v with %d", l, files, s, few)
	}
}

// TestReaddir reads a directory with very many entries again and again while another process makes and removes names in it.
// Each entry that stays is met exactly once.
func TestReaddir(t *testing.T) {
	plan := scale.Plan{Files: 400_000, Big: 400_000, PerDir: 1000, DataEvery: 1 << 30}
	if race {
		plan.Files, plan.Big = 40_000, 40_000
	}
	r := newBareStage(t, setup{})
	m := r.filled("a", plan)
	r.must(r.pool.Mount())
	dir := filepath.Join(m.Dir, plan.Dir(0))
	cmd := exec.Command(filepath.Join(bin, "workload"), "churn", dir, "500")
	stdin, err := cmd.StdinPipe()
	r.must(err)
	r.must(cmd.Start())
	var passing int
	for range 3 {
		passing += readAll(t, dir, plan)
	}
	r.must(stdin.Close())
	r.must(cmd.Wait())
	if passing == 0 {
		t.Error("no reader met a name of the other process: nothing was shown")
	}
}

// readAll reads dir, in which every file of the plan must be met once, and returns how many other names it met.
func readAll(t *testing.T, dir string, plan scale.Plan) (others int) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	met := make(map[string]int, plan.Files)
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			met[name]++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range plan.Files {
		name := filepath.Base(plan.Path(i))
		if met[name] != 1 {
			t.Fatalf("%q was met %d times", name, met[name])
		}
	}
	return len(met) - plan.Files
}

// TestDf: what df shows is the same, to the byte, after each cycle of filling and removing.
func TestDf(t *testing.T) {
	r := newBareStage(t, setup{})
	m := r.filled("a", scale.DefaultPlan(3000))
	r.must(r.pool.Mount())
	before := r.df(m.Dir)
	for cycle := range 3 {
		work := filepath.Join(m.Dir, fmt.Sprint("cycle", cycle))
		for d := range 20 {
			dir := filepath.Join(work, fmt.Sprint(d))
			r.must(os.MkdirAll(dir, 0o755))
			for f := range 20 {
				r.must(os.WriteFile(filepath.Join(dir, fmt.Sprint("file", f)), make([]byte, 1000*f), 0o644))
			}
			if st := r.df(m.Dir); st.Bfree > st.Blocks || st.Bavail > st.Bfree || st.Bfree > before.Bfree {
				t.Fatalf("while files are made: %+v, before %+v", st, before)
			}
		}
		if st := r.df(m.Dir); st.Bfree >= before.Bfree {
			t.Errorf("400 files take nothing: %+v, before %+v", st, before)
		}
		r.must(os.RemoveAll(work))
		r.must(stage.WaitFor(soon, "df as before", func() bool {
			r.must(r.pool.Sync())
			return r.df(m.Dir) == before
		}))
	}
}

func (r *rig) df(dir string) (st syscall.Statfs_t) {
	r.t.Helper()
	r.must(syscall.Statfs(dir, &st))
	return st
}
