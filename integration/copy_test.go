package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/mountinfo"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// header is the first block of a copy, and the header in it.
func (r *rig) header(f *os.File) ([]byte, poolset.Header) {
	r.t.Helper()
	block := make([]byte, poolset.BlockSize)
	_, err := f.ReadAt(block, 0)
	r.must(err)
	h, _, err := poolset.CurrentHeader(block)
	r.must(err)
	return block, h
}

// replicaState reads the state slots of the replica of target 0, also while they are in use.
func (r *rig) replicaState() poolset.State {
	r.t.Helper()
	f, err := os.Open(r.replicaPart(0))
	r.must(err)
	defer f.Close()
	block, h := r.header(f)
	s, _, err := poolset.CurrentState(block, h.PoolUUID)
	r.must(err)
	return s
}

// copying starts a mount that has to copy the pool and returns it in the middle of the copy. A copy that was over before this process had a
// look at it is made again.
func (r *rig) copying() *exec.Cmd {
	r.t.Helper()
	for range 10 {
		mount, err := r.Daemon("copy.log", filepath.Join(bin, "pmemfs"), "mount", "-f", r.pool.Config, r.pool.Mountpoint)
		r.must(err)
		if r.copyBegins() {
			return mount
		}
		r.must(r.pool.Kill())
		_ = mount.Wait() // by the signal
	}
	r.t.Fatal("the copy was always complete before it was looked at")
	return nil
}

// copyBegins returns true when a copy is under way, and false if the file system is mounted already.
func (r *rig) copyBegins() bool {
	r.t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if r.replicaState().Flags&poolset.Inconsistent != 0 {
			return true
		}
		m, err := mountinfo.Find(r.pool.Mountpoint)
		r.must(err)
		if m != nil {
			return false
		}
	}
	r.t.Fatal("neither a copy nor a mount")
	return false
}

// bigRig has a pool that takes a while to copy, with a file, and its initiator killed.
func bigRig(t *testing.T) (*rig, []byte) {
	t.Helper()
	r := newStage(t, setup{config: []string{`timeout = "1s"`}})
	content := bytes.Repeat([]byte("content "), 1<<17)
	r.must(r.pool.Make())
	r.must(r.pool.Mount())
	r.must(writeSync(r.path("f"), content))
	r.must(r.pool.Kill())
	return r, content
}

// TestFullCopy_InitiatorKilled: half a copy is never taken for a whole one.
func TestFullCopy_InitiatorKilled(t *testing.T) {
	t.Parallel()
	r, content := bigRig(t)
	for tries := 0; ; tries++ {
		mount := r.copying()
		r.must(mount.Process.Kill())
		_ = mount.Wait() // by the signal
		if r.replicaState().Flags&poolset.Inconsistent != 0 {
			break
		}
		if tries == 10 {
			t.Fatal("the copy was always complete before the kill")
		}
	}
	_, err := r.targets[0].Promote(set)
	wantText(t, "promote of half a copy", err, "inconsistent", "--force")
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), string(content))
	r.must(r.pool.Kill())
	r.wantContent(filepath.Join(r.promoted(0).Mountpoint, "f"), string(content))
}

// TestFullCopy_TargetKilled: the mount fails with a reason, and the next one copies anew.
func TestFullCopy_TargetKilled(t *testing.T) {
	t.Parallel()
	r, content := bigRig(t)
	mount := r.copying()
	r.must(r.targets[0].Kill())
	err := within(t, soon+15*time.Second, "end of the mount", mount.Wait)
	log, readErr := os.ReadFile(r.Path("copy.log"))
	r.must(readErr)
	if err == nil || !bytes.Contains(log, []byte("full copy")) {
		t.Errorf("mount whose target died: %v, %s", err, log)
	}
	r.must(r.targets[0].Start())
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), string(content))
	r.must(r.pool.Umount())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
}
