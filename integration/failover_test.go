package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// patient gives a target time to come back on a busy machine.
var patient = []string{`timeout = "30s"`}

// treeSums is all that a tree holds: type, mode, owner, size, time and content by path.
func treeSums(dir string) (map[string]string, error) {
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprintf("%o %d:%d %d links %d.%09d", st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
		switch {
		case e.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d bytes %x", len(b), sha256.Sum256(b))
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " -> " + to
		}
		rel, err := filepath.Rel(dir, path)
		sums[rel] = text
		return err
	})
	return sums, err
}

// sameTree fails the test where p does not hold just what sums says.
func sameTree(t *testing.T, p *stage.Pool, sums map[string]string) {
	t.Helper()
	got, err := treeSums(p.Mountpoint)
	if err != nil {
		t.Fatal(err)
	}
	paths := maps.Clone(sums)
	maps.Copy(paths, got)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if got[path] != sums[path] {
			t.Errorf("%s: found %q, want %q", path, got[path], sums[path])
		}
	}
}

// checkClean runs pmemfs fsck, which must find nothing. The pool must not be mounted.
func (r *rig) checkClean(p *stage.Pool) {
	r.t.Helper()
	if out, err := r.Pmemfs("fsck", p.Config); err != nil || out != "clean" {
		r.t.Errorf("pmemfs fsck %s: %q, %v", p.Config, out, err)
	}
}

func TestUmount_ThenTargetKilled_ReplicaHasEveryFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{media: true, config: quiet})
	newStorm(t, r.pool.Mountpoint).run(300)
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	r.must(r.pool.Umount())
	r.must(r.targets[0].Kill())
	replica := r.promoted(0)
	sameTree(t, replica, sums)
	r.must(replica.Umount())
	r.checkClean(replica)
}

func TestTargetKilledAndRestarted_LoopSeesNoErrorAndNothingIsLost(t *testing.T) {
	t.Parallel()
	targetRestarts(t, (*stage.Target).Kill)
}

func TestTargetTerminatedAndRestarted_ExitsWithZeroAndNothingIsLost(t *testing.T) {
	t.Parallel()
	targetRestarts(t, (*stage.Target).Terminate)
}

func targetRestarts(t *testing.T, end func(*stage.Target) error) {
	r := newRig(t, setup{config: patient})
	loop := r.appendLoop("records")
	for range 3 {
		loop.waitFor(20)
		r.must(end(r.targets[0]))
		r.must(r.targets[0].Start())
	}
	loop.waitFor(20)
	loop.stop()
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	loop.check(replica)
	r.must(replica.Umount())
	r.checkClean(replica)
}

func TestInitiatorKilledAndRemounted_FsyncedIsThereAndTheReplicaIsWholeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{media: true})
	loop := r.appendLoop("records")
	loop.waitFor(50)
	r.must(r.pool.Kill())
	loop.ended()
	r.must(r.pool.Mount())
	loop.check(r.pool)
	for _, c := range targetsOf(r.status()) {
		if c.State != "InSync" || c.BytesSent < 30<<20 {
			t.Errorf("target is %s after %d bytes, want InSync by a full copy", c.State, c.BytesSent)
		}
	}
	r.must(writeSync(r.path("after"), []byte("after the remount")))
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	loop.check(replica)
	got, err := os.ReadFile(filepath.Join(replica.Mountpoint, "after"))
	if err != nil || string(got) != "after the remount" {
		t.Errorf("file written after the remount: %q, %v", got, err)
	}
}

func TestPromoted_OldInitiatorIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("x")))
	r.must(r.pool.Kill())
	r.promoted(0)
	term := r.offlineTerm(r.replicaPool(0))
	wantText(t, "mount of the old initiator", r.pool.Mount(), fmt.Sprintf("promoted elsewhere at term %d", term))
	wantText(t, "and once more", r.pool.Mount(), "promoted elsewhere at term")
}

func TestPromoted_RunningInitiatorFailsAndReachesTheReplicaNoMore(t *testing.T) {
	for _, method := range []string{"gpspm", "apm"} {
		t.Run(method, func(t *testing.T) { promotedUnderIt(t, method) })
	}
}

func promotedUnderIt(t *testing.T, method string) {
	t.Parallel()
	r := newRig(t, setup{replica: []string{fmt.Sprintf("method = %q", method)}})
	r.must(writeSync(r.path("kept"), []byte("kept")))
	f, err := os.Create(r.path("f"))
	r.must(err)
	defer f.Close()
	_, err = r.targets[0].Promote(set)
	r.must(err)
	before := checksum(t, r.replicaPart(0))
	_, err = f.WriteString("too late")
	if err == nil {
		err = within(t, soon, "fsync", f.Sync)
		wantErrno(t, "fsync after the promotion", err, syscall.EIO)
	}
	for i := range 20 {
		if err := within(t, soon, "write and fsync", func() error { return writeSync(r.path(fmt.Sprintf("late%d", i)), []byte("late")) }); err == nil {
			t.Error("a write with fsync succeeded after the promotion")
		}
	}
	if got, err := os.ReadFile(r.path("kept")); err != nil || string(got) != "kept" {
		t.Errorf("read after the promotion: %q, %v", got, err)
	}
	if after := checksum(t, r.replicaPart(0)); after != before {
		t.Error("the replica was changed after its promotion")
	}
	replica := r.replicaPool(0)
	r.must(replica.Mount())
	if _, err := os.Stat(filepath.Join(replica.Mountpoint, "late0")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was written too late: %v, want none", err)
	}
}

// TestSecondInitiator_FencesTheFirst: a clone of the initiator's machine takes over; two writers are never let in.
func TestSecondInitiator_FencesTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("first")))
	b, err := os.ReadFile(r.pool.Part)
	r.must(err)
	r.must(os.WriteFile(r.Path("clone.pool"), b, 0o600))
	clone, err := r.NewPool("clone", r.Path("clone.pool"), []stage.Replica{{Target: r.targets[0], Set: set}})
	r.must(err)
	r.must(clone.Mount())
	wantErrno(t, "write and fsync of the first", within(t, soon, "fsync", func() error { return writeSync(r.path("late"), []byte("late")) }), syscall.EIO)
	r.must(writeSync(filepath.Join(clone.Mountpoint, "second"), []byte("second")))
	r.wantContent(r.path("f"), "first")
	r.must(clone.Umount())
	sameCopies(t, r.Path("clone.pool"), r.replicaPart(0))
}

func (r *rig) offlineTerm(p *stage.Pool) uint64 {
	r.t.Helper()
	st, err := p.StatusOf(p.Config)
	r.must(err)
	return st.Term
}

func checksum(t *testing.T, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// TestMsync_SurvivesKillAndPromote stores through a mapping, which nothing but msync makes durable.
func TestMsync_SurvivesKillAndPromote(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: quiet})
	program := filepath.Join(bin, "workload")
	for _, seed := range []string{"first", "second"} {
		_, err := stage.Run(program, "msync", r.path("mapped"), seed)
		r.must(err)
	}
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	_, err := stage.Run(program, "check-msync", filepath.Join(replica.Mountpoint, "mapped"), "second")
	r.must(err)
}

// TestSQLite_SurvivesKillAndPromote uses synchronous=EXTRA: with FULL, sqlite does not fsync the directory after it removed a
// rollback journal, and then the last transaction is rolled back on any file system.
func TestSQLite_SurvivesKillAndPromote(t *testing.T) {
	t.Parallel()
	const rows = 40
	for _, mode := range []string{"WAL", "DELETE"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, setup{config: quiet})
			sql := "pragma journal_mode=" + mode + "; pragma synchronous=EXTRA; create table t(v text);\n"
			for i := range rows {
				sql += fmt.Sprintf("insert into t values('row %d');\n", i)
			}
			_, err := stage.Run("sqlite3", r.path("db"), sql)
			r.must(err)
			r.must(r.pool.Kill())
			replica := r.promoted(0)
			out, err := stage.Run("sqlite3", filepath.Join(replica.Mountpoint, "db"), "pragma integrity_check; select count(*) from t;")
			if want := fmt.Sprintf("ok\n%d", rows); err != nil || out != want {
				t.Errorf("got %q, %v, want %q", out, err, want)
			}
		})
	}
}
