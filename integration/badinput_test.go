package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// unmounted is a pool that was mounted, filled a little and unmounted.
func unmounted(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, setup{config: []string{`timeout = "1s"`}})
	r.must(writeSync(r.path("f"), []byte("content")))
	r.must(r.pool.Umount())
	return r
}

// refused expects that fn fails with all of words and leaves the bytes of the parts as they are. A part may be absent.
func (r *rig) refused(what string, fn func() error, words ...string) {
	r.t.Helper()
	parts := []string{r.pool.Part, r.replicaPart(0)}
	var before [2][]byte
	for i, p := range parts {
		before[i], _ = os.ReadFile(p)
	}
	wantText(r.t, what, within(r.t, 60*time.Second, what, fn), words...)
	for i, p := range parts {
		if after, _ := os.ReadFile(p); !bytes.Equal(after, before[i]) {
			r.t.Errorf("%s: changed %s", what, p)
		}
	}
	if lines := mountLines(r.t, r.pool.Mountpoint); len(lines) > 0 {
		r.t.Errorf("%s: left a mount: %v", what, lines)
	}
}

// with runs fn while the file at path is changed by damage, and restores it.
func (r *rig) with(path string, damage func(b []byte) []byte, fn func()) {
	r.t.Helper()
	b, err := os.ReadFile(path)
	r.must(err)
	r.must(os.WriteFile(path, damage(bytes.Clone(b)), 0o600))
	fn()
	r.must(os.WriteFile(path, b, 0o600))
}

func TestBadPool_IsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	mount := func() error { return r.pool.Mount() }
	for _, tc := range []struct {
		what   string
		damage func(b []byte) []byte
		words  []string
	}{
		{"zero-length part", func(b []byte) []byte { return nil }, []string{r.pool.Part, "found 0"}},
		{"truncated part", func(b []byte) []byte { return b[:len(b)/2] }, []string{r.pool.Part, fmt.Sprint("found ", 16<<20)}},
		{"part cut below a block", func(b []byte) []byte { return b[:1000] }, []string{r.pool.Part, "found 1000"}},
		{"wrong magic", func(b []byte) []byte { copy(b, "garbage!"); copy(b[0x200:], "garbage!"); return b }, []string{"not a pmemfs pool"}},
		{"all zeros", func(b []byte) []byte { clear(b); return b }, []string{"not a pmemfs pool"}},
		{"both super slots damaged", func(b []byte) []byte { b[4096+100] ^= 1; b[8192+100] ^= 1; return b }, []string{"no super slot is valid", "4096", "8192"}},
	} {
		r.with(r.pool.Part, tc.damage, func() { r.refused("mount: "+tc.what, mount, tc.words...) })
	}
	aside := r.pool.Part + ".aside"
	r.must(os.Rename(r.pool.Part, aside))
	r.refused("mount: part missing", mount, r.pool.Part, "no such file")
	r.must(os.Rename(aside, r.pool.Part))

	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), "content")
}

func TestBadTarget_IsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	mount := func() error { return r.pool.Mount() }
	r.with(r.replicaPart(0), func(b []byte) []byte { return foreign(t, b) }, func() { r.refused("mount: foreign pool on the target", mount, "another pool") })
	r.with(r.replicaPart(0), func(b []byte) []byte { return b[:len(b)/2] }, func() { r.refused("mount: replica truncated", mount, "replica.pool") })
	r.with(r.replicaPart(0), func(b []byte) []byte { return nil }, func() { r.refused("mount: replica of zero length", mount, "replica.pool") })
	aside := r.replicaPart(0) + ".aside"
	r.must(os.Rename(r.replicaPart(0), aside))
	r.refused("mount: replica missing", mount, set)
	r.must(os.Rename(aside, r.replicaPart(0)))

	r.must(r.targets[0].Kill())
	r.refused("mount: target unreachable", mount, r.targets[0].Addr, "pmemfs-target")
	r.must(r.targets[0].Start())
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), "content")
}

// TestMount_SilentTarget: a target that takes connections and never answers does not hang a mount.
func TestMount_SilentTarget(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	r.must(r.targets[0].Pause())
	r.refused("mount: target silent", func() error { return r.pool.Mount() }, "no answer in time")
	r.must(r.targets[0].Resume())
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), "content")
}

// foreign gives a pool another UUID, with all checksums of block 0 right.
func foreign(t *testing.T, b []byte) []byte {
	t.Helper()
	return editState(t, b, func(h *poolset.Header, _ *poolset.State) { h.PoolUUID = poolset.NewUUID() })
}

// editState changes header and current state of a pool that nobody has open.
func editState(t *testing.T, b []byte, edit func(h *poolset.Header, s *poolset.State)) []byte {
	t.Helper()
	h, _, err := poolset.CurrentHeader(b[:poolset.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	s, slot, err := poolset.CurrentState(b[:poolset.BlockSize], h.PoolUUID)
	if err != nil {
		t.Fatal(err)
	}
	edit(&h, &s)
	h.Encode(b)
	h.Encode(b[poolset.HeaderCopyOff:])
	s.Encode(b[poolset.StateOff+slot*poolset.StateLen:], h.PoolUUID)
	return b
}

func TestMkpool_RefusesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newStage(t, setup{})
	mkpool := func() error { return r.pool.Make() }
	setFile, replicaSet := r.Path("a.set"), filepath.Join(r.targets[0].Dir, set)

	small := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(poolSize), []byte("1M")) }
	r.with(setFile, small, func() { r.refused("mkpool: part too small", mkpool, "too small") })
	half := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(poolSize), []byte("16M")) }
	r.with(replicaSet, half, func() { r.refused("mkpool: target's pool too small", mkpool, "16777216") })
	r.must(os.Rename(replicaSet, replicaSet+".aside"))
	r.refused("mkpool: no such pool set file on the target", mkpool, set)
	r.must(os.Rename(replicaSet+".aside", replicaSet))
	r.must(r.targets[0].Kill())
	r.refused("mkpool: target unreachable", mkpool, r.targets[0].Addr)
	r.must(r.targets[0].Start())
	for _, p := range []string{r.pool.Part, r.replicaPart(0)} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s was left behind", p)
		}
	}

	r.must(r.pool.Make())
	r.refused("mkpool: pool exists", mkpool, r.pool.Part, "exist")
	r.must(os.Remove(r.pool.Part))
	r.refused("mkpool: replica exists", mkpool, set, "exist")
}

func TestMount_PoolInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	other := r.Path("elsewhere")
	r.must(os.Mkdir(other, 0o755))
	_, err := r.Pmemfs("mount", "--log-file", r.Path("second.log"), r.pool.Config, other)
	wantText(t, "second mount of a pool", err, "in use by process", "mount")
	_, err = r.Pmemfs("mount", "--log-file", r.Path("second.log"), r.pool.Config, r.pool.Mountpoint)
	wantText(t, "second mount on the same place", err, "in use by process")
	r.refuseMountedPoint()
	_, err = r.Pmemfs("fsck", r.pool.Config)
	wantText(t, "fsck of a mounted pool", err, "in use by process")
	wantText(t, "mkpool over a mounted pool", r.pool.Make(), "in use by process")
	r.must(writeSync(r.path("f"), []byte("still works")))
	if n := len(mountLines(t, r.pool.Mountpoint)); n != 1 {
		t.Errorf("%d mounts, want 1", n)
	}
}

// refuseMountedPoint tries to mount another pool over the one that is mounted.
func (r *rig) refuseMountedPoint() {
	r.t.Helper()
	other, err := r.NewPool("other", r.Path("other.pool"), nil)
	r.must(err)
	r.must(other.Make())
	before := checksum(r.t, other.Part)
	_, err = r.Pmemfs("mount", "--log-file", r.Path("second.log"), other.Config, r.pool.Mountpoint)
	wantText(r.t, "mount of another pool on the same place", err, "already mounted", "unmount it first")
	if checksum(r.t, other.Part) != before {
		r.t.Error("the refused mount changed its pool")
	}
}

func TestMount_BadMountpoint(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	file, missing, full := r.Path("file"), r.Path("missing"), r.Path("full")
	r.must(os.WriteFile(file, nil, 0o644))
	r.must(os.MkdirAll(filepath.Join(full, "below"), 0o755))
	mount := func(point string, flags ...string) func() error {
		return func() error {
			_, err := r.Pmemfs(append([]string{"mount", "--log-file", r.Path("a.log"), r.pool.Config, point}, flags...)...)
			return err
		}
	}
	r.refused("mount point missing", mount(missing), missing, "no such file")
	r.refused("mount point is a file", mount(file), file, "not a directory")
	r.refused("mount point not empty", mount(full), full, "below", "nonempty")
	r.must(mount(full, "-o", "nonempty")())
	defer r.Pmemfs("umount", full)
	r.wantContent(filepath.Join(full, "f"), "content")
}

// TestMount_StaleMountIsCleaned: a daemon that was killed leaves a mount that answers ENOTCONN.
func TestMount_StaleMountIsCleaned(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("content")))
	for i := range 5 {
		r.must(r.pool.KillDaemon())
		if n := len(mountLines(t, r.pool.Mountpoint)); n != 1 {
			t.Fatalf("round %d: %d lines in /proc/mounts after the kill, want 1", i, n)
		}
		r.must(r.pool.Mount())
		if n := len(mountLines(t, r.pool.Mountpoint)); n != 1 {
			t.Fatalf("round %d: %d lines in /proc/mounts, want 1", i, n)
		}
		r.wantContent(r.path("f"), "content")
	}
}

func TestMount_UnknownOptionAndKey(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	r.refused("unknown option", func() error { return r.pool.Mount("-o", "noatime,frobnicate") }, "frobnicate", "known are")
	r.refused("option without value", func() error { return r.pool.Mount("-o", "max_read=7") }, "max_read")
	for _, tc := range []struct{ line, near string }{
		{`timeuot = "1s"`, "timeout"},
		{`durabilty = "memory"`, "durability"},
		{`timeout = "soon"`, "timeout"},
		{`timeout = 5`, "string"},
	} {
		add := func(b []byte) []byte {
			return append([]byte("# first line\n"+tc.line+"\n"), dropKey(b, strings.Fields(tc.line)[0])...)
		}
		r.with(r.pool.Config, add, func() {
			r.refused("mount with "+tc.line, func() error { return r.pool.Mount() }, r.pool.Config+":2", tc.near)
			r.refused("mkpool with "+tc.line, r.makeAgain, r.pool.Config+":2", tc.near)
		})
	}
}

func (r *rig) makeAgain() error { return r.pool.Make() }

// dropKey removes the line that sets key.
func dropKey(b []byte, key string) []byte {
	var out []byte
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte(key+" ")) {
			out = append(out, line...)
		}
	}
	return out
}

func TestReplica_NotPromotedIsNotMounted(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	replica := r.replicaPool(0)
	r.refused("mount of a replica", func() error { return replica.Mount() }, "promote")
}

func TestPromote_InconsistentNeedsForce(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	b, err := os.ReadFile(r.replicaPart(0))
	r.must(err)
	editState(t, b, func(_ *poolset.Header, s *poolset.State) { s.Flags |= poolset.Inconsistent })
	r.must(os.WriteFile(r.replicaPart(0), b, 0o600))
	promote := func() error { _, err := r.targets[0].Promote(set); return err }
	r.refused("promote of an Inconsistent replica", promote, "inconsistent", "--force")
	r.must(r.targets[0].Kill())
	r.refused("the same without a daemon", promote, "inconsistent", "--force")
}
