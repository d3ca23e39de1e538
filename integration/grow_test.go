package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// editSet makes a pool set file name these parts, with the targets that it had.
func (r *rig) editSet(path string, parts ...string) {
	r.t.Helper()
	b, err := os.ReadFile(path)
	r.must(err)
	text := "PMEMPOOLSET\n" + strings.Join(parts, "\n") + "\n"
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "REPLICA") {
			text += line
		}
	}
	r.must(os.WriteFile(path, []byte(text), 0o644))
}

func (r *rig) growPool() (string, error) {
	return r.Pmemfs("grow", r.pool.Mountpoint)
}

// bytes is the size of the file system as statfs(2) shows it.
func (r *rig) bytes() uint64 {
	r.t.Helper()
	var st syscall.Statfs_t
	r.must(syscall.Statfs(r.pool.Mountpoint, &st))
	return st.Blocks * uint64(st.Bsize)
}

func (r *rig) fileSize(path string) int64 {
	r.t.Helper()
	fi, err := os.Stat(path)
	r.must(err)
	return fi.Size()
}

// A full pool grows on both copies while a program writes; what is written into the new space survives the death of the initiator.
func TestGrow_FullPoolWhileAWriterGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	full := r.fill()
	for _, path := range full[:4] { // 1 MiB: the writer needs seconds to fill that
		r.must(os.Remove(path))
	}
	loop := r.appendLoop("records")
	loop.waitFor(20)
	before := r.bytes()

	local, remote := r.Path("a.set"), filepath.Join(r.targets[0].Dir, set)
	second := r.Path("a2.pool")
	r.editSet(local, "32M "+r.pool.Part, "32M "+second)
	r.editSet(remote, "64M "+r.replicaPart(0))
	out, err := r.growPool()
	r.must(err)
	wantWords(t, "pmemfs grow", out, "67108864 bytes on every copy")
	loop.waitFor(20)
	if gained := r.bytes() - before; gained != 32<<20 {
		t.Errorf("statfs shows %d bytes more", gained)
	}
	if a, b := r.fileSize(second), r.fileSize(r.replicaPart(0)); a != 32<<20 || b != 64<<20 {
		t.Errorf("the new part has %d bytes, the replica %d", a, b)
	}
	out, err = r.growPool()
	r.must(err)
	wantWords(t, "pmemfs grow once more", out, "67108864 bytes")

	for i := range 24 {
		r.must(writeSync(r.path(fmt.Sprintf("more%d", i)), make([]byte, 1<<20)))
	}
	loop.waitFor(5)
	loop.stop()
	r.must(r.pool.Umount())
	r.must(r.pool.Mount())
	if st := r.status(); st.Verdict != "HEALTHY" || st.Copies[1].BytesSent > 16<<20 {
		t.Errorf("after a clean remount: %s, %d bytes sent", st.Verdict, st.Copies[1].BytesSent)
	}
	r.must(writeSync(r.path("last"), []byte("after the remount")))
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	r.must(r.pool.Kill())
	r.PoolSize = "64M"
	replica := r.promoted(0)
	sameTree(t, replica, sums)
	loop.check(replica)
	r.must(replica.Umount())
	r.checkClean(replica)
}

// A target whose pool set has not grown refuses, and nothing has changed. Whoever edited the sets and lost the daemon before the growth mounts
// as before, and the growth comes later.
func TestGrow_TargetTooSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{targets: 2})
	r.must(writeSync(r.path("f"), []byte("kept")))
	before := r.bytes()
	local := r.Path("a.set")
	sets := []string{filepath.Join(r.targets[0].Dir, set), filepath.Join(r.targets[1].Dir, set)}

	for want, parts := range map[string][]string{
		"other.pool stands where":   {"32M " + r.Path("other.pool")},
		"a part has at least":       {"32M " + r.pool.Part, "1M " + r.Path("a2.pool")},
		"of which the pool has":     {"16M " + r.pool.Part, "32M " + r.Path("a2.pool")},
		"AUTO takes that of a part": {"32M " + r.pool.Part, "AUTO " + r.Path("a2.pool")},
	} {
		r.editSet(local, parts...)
		_, err := r.growPool()
		wantText(t, "pmemfs grow", err, want, local)
	}
	r.must(os.WriteFile(r.Path("b.set"), []byte("PMEMPOOLSET\n"), 0o644))
	r.must(os.Rename(local, r.Path("kept.set")))
	r.must(os.Rename(r.Path("b.set"), local))
	r.editSet(local, "48M "+r.pool.Part)
	_, err := r.growPool()
	wantText(t, "pmemfs grow without the targets", err, "REPLICA lines")
	r.must(os.Rename(r.Path("kept.set"), local))

	r.editSet(local, "48M "+r.pool.Part)
	r.editSet(sets[0], "48M "+r.replicaPart(0))
	_, err = r.growPool()
	wantText(t, "pmemfs grow", err, "target 127.0.0.1", sets[1], "names 33554432 bytes, 50331648 are wanted", "enlarge the sizes in its pool set file", "nothing on it has changed")
	if after := r.bytes(); after != before || r.fileSize(r.pool.Part) != 32<<20 || r.fileSize(r.replicaPart(1)) != 32<<20 {
		t.Errorf("%d bytes, were %d; parts of %d and %d", after, before, r.fileSize(r.pool.Part), r.fileSize(r.replicaPart(1)))
	}
	r.must(writeSync(r.path("g"), []byte("goes on")))

	r.must(r.pool.Kill())
	r.must(r.targets[0].Kill())
	r.must(r.targets[0].Start())
	r.must(r.pool.Mount())
	r.wantContent(r.path("g"), "goes on")
	if after := r.bytes(); after != before {
		t.Errorf("%d bytes after the mount, were %d", after, before)
	}
	r.editSet(sets[1], "48M "+r.replicaPart(1))
	_, err = r.growPool()
	r.must(err)
	if gained := r.bytes() - before; gained != 16<<20 {
		t.Errorf("statfs shows %d bytes more", gained)
	}
	for i := range 14 {
		r.must(writeSync(r.path(fmt.Sprintf("more%d", i)), make([]byte, 2<<20)))
	}
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	r.must(r.pool.Kill())
	r.PoolSize = "48M"
	replica := r.promoted(1)
	sameTree(t, replica, sums)
}

// A growth that died between the local copy and the super: the copy is larger than the pool, which mounts as before with a target of the old size,
// and grows later.
func TestGrow_DiedBeforeTheSuper(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("kept")))
	before := r.bytes()
	r.must(r.pool.Umount())
	local := r.Path("a.set")
	r.editSet(local, "48M "+r.pool.Part)
	parsed, err := poolset.ParseFile(local)
	r.must(err)
	p, err := pool.Open(parsed, pool.OpenOptions{})
	r.must(err)
	r.must(errors.Join(p.Grow(parsed), p.Close()))
	r.checkClean(r.pool)

	r.must(r.pool.Mount())
	if after := r.bytes(); after != before || r.fileSize(r.replicaPart(0)) != 32<<20 {
		t.Errorf("%d bytes after the mount, were %d", after, before)
	}
	r.wantContent(r.path("f"), "kept")
	log, err := os.ReadFile(r.Path("a.log"))
	r.must(err)
	wantWords(t, "log of the mount", string(log), "pmemfs grow lets it")
	_, err = r.growPool()
	wantText(t, "pmemfs grow", err, "names 33554432 bytes")
	r.must(r.pool.Kill())
	r.must(r.pool.Mount()) // with a full copy to the smaller target
	r.editSet(filepath.Join(r.targets[0].Dir, set), "48M "+r.replicaPart(0))
	_, err = r.growPool()
	r.must(err)
	r.must(writeSync(r.path("g"), make([]byte, 30<<20)))
	r.quiesce()
	r.must(r.pool.Sync())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
}

// A part on a file system in memory cannot join a pool that promises media; a pool that is not mounted does not grow. By then the replica is larger
// than the pool: it is promoted as it is, and the pool grows there.
func TestGrow_LocalCopyRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{media: true})
	r.must(writeSync(r.path("f"), []byte("kept")))
	shm, err := os.MkdirTemp("/dev/shm", "pmemfs-it-")
	r.must(err)
	defer os.RemoveAll(shm)
	r.editSet(filepath.Join(r.targets[0].Dir, set), "64M "+r.replicaPart(0))
	r.editSet(r.Path("a.set"), "32M "+r.pool.Part, "32M "+filepath.Join(shm, "a2.pool"))
	_, err = r.growPool()
	wantText(t, "a weaker part", err, "promises less", "nothing on it has changed")
	if _, err := os.Stat(filepath.Join(shm, "a2.pool")); err == nil {
		t.Error("the refused part was left behind")
	}
	begin := time.Now()
	_, err = r.Pmemfs("grow", r.Path("a.toml"))
	wantText(t, "not mounted", err, "mount it first")
	if took := time.Since(begin); took > soon {
		t.Errorf("took %v", took)
	}
	r.must(r.pool.Kill())
	if n := r.fileSize(r.replicaPart(0)); n != 64<<20 {
		t.Errorf("the replica has %d bytes", n)
	}
	r.PoolSize = "64M"
	replica := r.promoted(0)
	r.wantContent(filepath.Join(replica.Mountpoint, "f"), "kept")
	out, err := r.Pmemfs("grow", replica.Mountpoint)
	r.must(err)
	wantWords(t, "pmemfs grow of the promoted replica", out, "67108864 bytes")
	r.must(writeSync(filepath.Join(replica.Mountpoint, "g"), make([]byte, 40<<20)))
	r.must(replica.Umount())
	r.checkClean(replica)
}
