package integration

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/internal/control"
)

// quiet keeps the background commit away while messages are counted.
var quiet = []string{`commit_interval = "1h"`}

// cost is what happened between two statuses.
type cost struct {
	answered []uint64 // per target
	writes   []uint64
	requests map[string]uint64
}

func targetsOf(s *control.Status) (out []control.Copy) {
	for _, c := range s.Copies {
		if c.Role == "target" {
			out = append(out, c)
		}
	}
	return out
}

// costOf runs fn and says what it cost.
func (r *rig) costOf(fn func() error) cost {
	r.t.Helper()
	before := r.status()
	r.must(fn())
	after := r.status()
	c := cost{requests: after.Requests}
	for name, n := range before.Requests {
		if c.requests[name] -= n; c.requests[name] == 0 {
			delete(c.requests, name)
		}
	}
	was, is := targetsOf(before), targetsOf(after)
	for i := range is {
		if d := is[i].Sends - was[i].Sends; d != is[i].AnsweredSends-was[i].AnsweredSends {
			r.t.Errorf("target %d: %d Sends, %d of them answered", i, d, is[i].AnsweredSends-was[i].AnsweredSends)
		}
		c.answered = append(c.answered, is[i].AnsweredSends-was[i].AnsweredSends)
		c.writes = append(c.writes, is[i].Writes-was[i].Writes)
	}
	return c
}

// TestFsync_OneAnsweredSendPerTarget counts at the lanes of two targets. It runs alone: a program that another test starts holds
// the descriptors of this one for a moment, and closing them sends requests.
func TestFsync_OneAnsweredSendPerTarget(t *testing.T) {
	r := newRig(t, setup{targets: 2, config: quiet})
	r.must(writeSync(r.path("old"), make([]byte, 64<<10)))
	f, err := os.OpenFile(r.path("old"), os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	dsync, err := os.OpenFile(r.path("old"), os.O_WRONLY|syscall.O_DSYNC, 0)
	r.must(err)
	defer dsync.Close()
	dir, err := os.Open(r.pool.Mountpoint)
	r.must(err)
	defer dir.Close()
	block := make([]byte, 4096)
	at := func(f *os.File, off int64) func() error {
		return func() error { _, err := f.WriteAt(block, off); return err }
	}
	then := func(steps ...func() error) func() error {
		return func() error {
			for _, s := range steps {
				if err := s(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name     string
		fn       func() error
		want     uint64
		requests map[string]uint64 // nil: not compared
	}{
		{"overwrite", then(at(f, 8192), f.Sync), 1, map[string]uint64{"WRITE": 1, "FSYNC": 1}},
		{"nothing unsealed", f.Sync, 0, map[string]uint64{"FSYNC": 1}},
		{"append", then(at(f, 64<<10), f.Sync), 1, map[string]uint64{"WRITE": 1, "FSYNC": 1}},
		{"O_DSYNC write", at(dsync, 4096), 1, map[string]uint64{"WRITE": 1}},
		{"create, write, fsync", func() error { return writeSync(r.path("new"), block) }, 1, nil},
		{"rename over, fsync of the directory", then(
			func() error { return store(r.path("tmp"), block, false) },
			func() error { return os.Rename(r.path("tmp"), r.path("new")) }, dir.Sync), 1, nil},
		{"mkdir, fsync of the directory", then(func() error { return os.Mkdir(r.path("d"), 0o755) }, dir.Sync), 1, nil},
	} {
		c := r.costOf(tc.fn)
		for i, got := range c.answered {
			if got != tc.want {
				t.Errorf("%s: %d answered Sends to target %d, want %d", tc.name, got, i, tc.want)
			}
		}
		if tc.requests != nil && !maps.Equal(c.requests, tc.requests) {
			t.Errorf("%s: requests %v, want %v", tc.name, c.requests, tc.requests)
		}
	}
}

func TestFsync_AtMostNSendsForNConcurrent(t *testing.T) {
	r := newRig(t, setup{config: quiet})
	const n = 16
	var files [n]*os.File
	for i := range files {
		f, err := os.Create(r.path(fmt.Sprintf("f%d", i)))
		r.must(err)
		defer f.Close()
		files[i] = f
	}
	c := r.costOf(func() error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i, f := range files {
			wg.Go(func() {
				if _, errs[i] = f.Write(make([]byte, 4096)); errs[i] == nil {
					errs[i] = f.Sync()
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if got := c.answered[0]; got < 1 || got > n {
		t.Errorf("%d answered Sends for %d concurrent fsyncs, want 1 to %d", got, n, n)
	}
	if c.requests["WRITE"] != n || c.requests["FSYNC"] != n {
		t.Errorf("requests %v, want %d of WRITE and of FSYNC", c.requests, n)
	}
	t.Logf("%d answered Sends, %d WRITEs for %d concurrent write+fsync", c.answered[0], c.writes[0], n)
}
