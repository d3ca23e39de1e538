package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// leaves are the offsets of the leaves of the last checkpoint in a part.
func leaves(t *testing.T, part string) (offs []uint64) {
	t.Helper()
	b, h := readPart(t, part)
	var best layout.Super
	for _, off := range []uint64{layout.SuperOff0, layout.SuperOff1} {
		if s, err := layout.DecodeSuper(b[off:off+layout.SuperEnd], h.PoolUUID); err == nil && s.Epoch > best.Epoch {
			best = s
		}
	}
	c := tree.Config{Bytes: b, NodeSize: int(best.NodeSize), UUID: best.PoolUUID}
	err := tree.New(c, best.Root, best.RootBirth, int(best.Height), best.Epoch+1).Walk(true, func(off uint64, level int, _ uint64) error {
		if level == 0 {
			offs = append(offs, off)
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return offs
}

// flipByte changes one byte of a file.
func (r *rig) flipByte(path string, off uint64) {
	r.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], int64(off))
	r.must(err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], int64(off))
	r.must(err)
}

// fsck runs pmemfs fsck, which must exit with code.
func (r *rig) fsck(code int, args ...string) string {
	r.t.Helper()
	out, err := r.Pmemfs(append([]string{"fsck"}, args...)...)
	got := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	if got != code {
		r.t.Errorf("fsck %q: exit code %d, want %d: %v\n%s", args, got, code, err, out)
	}
	return out
}

// damagedRig is unmounted, its copies are equal, and two leaves of the local one are damaged.
func damagedRig(t *testing.T) (r *rig, want []string) {
	t.Helper()
	return damage(t, 1)
}

// damage is damagedRig with more targets.
func damage(t *testing.T, targets int) (r *rig, want []string) {
	t.Helper()
	r, want = treeRigOf(t, setup{targets: targets})
	r.must(r.pool.Umount())
	offs := leaves(t, r.pool.Part)
	for _, off := range []uint64{offs[1], offs[len(offs)-1]} {
		r.flipByte(r.pool.Part, off+300)
	}
	return r, want
}

// TestRepair_FromTarget: damage is named with its place, keeps the pool from being mounted, and leaves the rest to be exported; the nodes come
// back from the replica, and both copies are equal again without a copy of the pool.
func TestRepair_FromTarget(t *testing.T) {
	t.Parallel()
	r, want := damagedRig(t)
	before := checksum(t, r.pool.Part)
	offs := leaves(t, r.replicaPart(0))
	out := r.fsck(4, r.pool.Config)
	wantWords(t, "fsck", out, fmt.Sprintf("tree node at offset %d (%s, offset %d): crc: found", offs[1], r.pool.Part, offs[1]), "expected", "lost: from inode")
	dir := r.Path("salvaged")
	_, err := r.Pmemfs("export", r.pool.Config, dir)
	wantText(t, "export of a damaged pool", err, "--salvage")
	wantWords(t, "fsck", out, "errors; `pmemfs fsck --repair "+r.pool.Config+"`")
	out, err = r.Pmemfs("export", "--salvage", r.pool.Config, dir)
	if err == nil || !strings.Contains(out, "exported") || len(describeTree(t, dir)) < 20 {
		t.Errorf("export --salvage: %v\n%s", err, out)
	}
	if checksum(t, r.pool.Part) != before {
		t.Error("the pool changed without a repair")
	}

	out = r.fsck(1, "--repair", r.pool.Config)
	wantWords(t, "fsck --repair", out, "repair: tree node at offset", "store the node of target", "clean")
	sameCopies(t, r.pool.Part, r.replicaPart(0))
	r.fsck(0, r.pool.Config)
	r.must(r.pool.Mount("-o", "noatime"))
	if log := r.Logs(); strings.Count(log, "full copy") != 1 {
		t.Errorf("the mount after the repair copied the pool:\n%s", log)
	}
	if got := describeTree(t, r.pool.Mountpoint); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the repaired pool has other files")
	}
	r.must(r.pool.Umount())
}

// TestRepair_From: without the target, the nodes come from its pool set; a pool of another one has nothing to give.
func TestRepair_From(t *testing.T) {
	t.Parallel()
	r, _ := damagedRig(t)
	wantText(t, "mount of a damaged pool", r.pool.Mount(), "corrupt", "tree node at offset")
	r.must(r.targets[0].Kill())
	replica := filepath.Join(r.targets[0].Dir, set)
	untouched := checksum(t, r.replicaPart(0))
	wantWords(t, "repair of a replica", r.fsck(0, "--repair", replica), "clean")
	wantWords(t, "repair without the target", r.fsck(8, "--repair", r.pool.Config), "replica to take nodes from")
	alone, err := r.NewPool("alone", r.pool.Part, nil)
	r.must(err)
	wantWords(t, "repair without a replica", r.fsck(8, "--repair", alone.Config), "not repaired: tree node", "that cannot be repaired", "export --salvage "+alone.Config)
	other, err := r.NewPool("other", r.Path("other.pool"), nil)
	r.must(err)
	r.must(other.Make())
	wantWords(t, "repair from another pool", r.fsck(8, "--repair", "--from", r.Path("other.set"), r.pool.Config), "holds pool")
	r.fsck(64, "--from", replica, r.pool.Config)
	r.fsck(1, "--repair", "--from", replica, r.pool.Config)
	if checksum(t, r.replicaPart(0)) != untouched {
		t.Error("the repair changed the copy that it read")
	}
	r.must(r.targets[0].Start())
	r.must(r.pool.Mount())
	r.must(r.pool.Umount())
	r.fsck(0, r.pool.Config)
}

// TestRepair_FromAnotherGroup: a copy of the same generation that is behind proves nothing.
func TestRepair_FromAnotherGroup(t *testing.T) {
	t.Parallel()
	r, _ := treeRig(t)
	r.must(r.pool.Umount())
	old, err := os.ReadFile(r.replicaPart(0))
	r.must(err)
	part, set := r.Path("old.pool"), r.Path("old.set")
	r.must(os.WriteFile(part, old, 0o600))
	r.must(os.WriteFile(set, fmt.Appendf(nil, "PMEMPOOLSET\n%d %s\n", len(old), part), 0o600))
	r.must(r.pool.Mount())
	r.must(writeSync(r.path("more"), []byte("content")))
	r.must(r.pool.Umount())
	offs := leaves(t, r.pool.Part)
	r.flipByte(r.pool.Part, offs[0]+300)
	damaged := checksum(t, r.pool.Part)
	wantWords(t, "repair from a copy that is behind", r.fsck(8, "--repair", "--from", set, r.pool.Config), "is at group", "proves nothing")
	if checksum(t, r.pool.Part) != damaged {
		t.Error("the refused repair changed the pool")
	}
	r.fsck(1, "--repair", r.pool.Config)
}

// TestRepair_SuperSlot: a lost super slot is noted, no error, and written anew; nothing is lost with it.
func TestRepair_SuperSlot(t *testing.T) {
	t.Parallel()
	r, want := treeRig(t)
	r.must(r.pool.Umount())
	for _, off := range []uint64{layout.SuperOff0, layout.SuperOff1} {
		r.flipByte(r.pool.Part, off+60)
		wantWords(t, "fsck", r.fsck(0, r.pool.Config), "note: super slot ("+r.pool.Part, "seal: found", "clean")
		wantWords(t, "fsck --repair", r.fsck(0, "--repair", r.pool.Config), "repair: super slot", "write it anew")
		if out := r.fsck(0, r.pool.Config); out != "clean" {
			t.Errorf("after the repair: %s", out)
		}
		r.must(r.pool.Mount("-o", "noatime"))
		if got := describeTree(t, r.pool.Mountpoint); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("without the slot at %d the pool has other files", off)
		}
		r.must(r.pool.Umount())
	}
}

// TestRepair_NodeAndSlot: the super slot that counts is lost and a node is damaged too. The replica, whose root is another for that
// reason, has the node all the same.
func TestRepair_NodeAndSlot(t *testing.T) {
	t.Parallel()
	r, want := damagedRig(t)
	newest := uint64(layout.SuperOff0)
	if s := r.supers(r.pool.Part); s[1].Epoch > s[0].Epoch {
		newest = layout.SuperOff1
	}
	r.flipByte(r.pool.Part, newest+60)
	wantWords(t, "fsck --repair", r.fsck(1, "--repair", r.pool.Config), "store the node of target", "repair: super slot", "clean")
	r.fsck(0, r.pool.Config)
	r.must(r.pool.Mount("-o", "noatime"))
	if got := describeTree(t, r.pool.Mountpoint); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Error("the repaired pool has other files")
	}
	r.must(r.pool.Umount())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
}

// supers are the two super slots of a part.
func (r *rig) supers(part string) (s [2]layout.Super) {
	r.t.Helper()
	b, err := os.ReadFile(part)
	r.must(err)
	h, _, err := poolset.CurrentHeader(b[:poolset.BlockSize])
	r.must(err)
	for i, off := range []uint64{layout.SuperOff0, layout.SuperOff1} {
		s[i], err = layout.DecodeSuper(b[off:off+layout.SuperEnd], h.PoolUUID)
		r.must(err)
	}
	return s
}

// TestRepair_DamagedTarget: one of two replicas has the same damage. The other gives the node, and the damaged one does not pass for equal:
// the next mount copies the pool to it.
func TestRepair_DamagedTarget(t *testing.T) {
	t.Parallel()
	r, _ := damage(t, 2)
	bad := leaves(t, r.replicaPart(1))[1]
	r.flipByte(r.replicaPart(0), bad+300)
	wantWords(t, "fsck --repair", r.fsck(1, "--repair", r.pool.Config), "store the node of target", "clean")
	r.must(r.pool.Mount("-o", "noatime"))
	r.must(r.pool.Umount())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
	sameCopies(t, r.pool.Part, r.replicaPart(1))
}
