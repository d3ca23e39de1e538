package integration

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// TestSync_CopiesAreEqual: after pmemfs sync all copies have the same bytes wherever the format says that they are shared,
// free space included.
func TestSync_CopiesAreEqual(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{targets: 2, config: []string{`commit_interval = "100ms"`}})
	s := newStorm(t, r.pool.Mountpoint)
	for range 6 {
		s.run(200)
		r.quiesce()
		r.must(r.pool.Sync())
		for i := range r.targets {
			sameCopies(t, r.pool.Part, r.replicaPart(i))
		}
		if t.Failed() {
			return
		}
	}
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	r.must(r.pool.Umount())
	for i := range r.targets {
		sameCopies(t, r.pool.Part, r.replicaPart(i))
	}
	replica := r.promoted(1)
	sameTree(t, replica, sums)
}

// quiesce waits until the kernel sends nothing more: it gives removed files back some time after they were removed.
func (r *rig) quiesce() {
	r.t.Helper()
	last := r.status().Requests
	for end := time.Now().Add(soon); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		now := r.status().Requests
		if now["FORGET"] == last["FORGET"] && now["RELEASE"] == last["RELEASE"] {
			return
		}
		last = now
	}
	r.t.Fatal("the mount does not come to rest")
}

// sameCopies compares two parts: all but block 0 and the dirty bitmaps.
func sameCopies(t *testing.T, part, other string) {
	t.Helper()
	a, b := sharedBytes(t, part), sharedBytes(t, other)
	if len(a) != len(b) {
		t.Fatalf("%s has %d shared bytes, %s has %d", part, len(a), other, len(b))
	}
	const blockSize = layout.BlockSize
	differ := 0
	for off := 0; off < len(a); off += blockSize {
		if !bytes.Equal(a[off:off+blockSize], b[off:off+blockSize]) {
			if differ++; differ <= 5 {
				t.Errorf("%s and %s differ in block %d", part, other, off/blockSize)
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d blocks differ", differ)
	}
}

// readPart reads a part, which is a whole copy of a pool, and its header.
func readPart(t *testing.T, part string) ([]byte, poolset.Header) {
	t.Helper()
	b, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := poolset.CurrentHeader(b[:poolset.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	return b, h
}

// sharedBytes reads a part and clears what is local to the copy.
func sharedBytes(t *testing.T, part string) []byte {
	t.Helper()
	b, h := readPart(t, part)
	super, err := layout.DecodeSuper(b[layout.SuperOff0:][:layout.BlockSize], h.PoolUUID)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[:poolset.BlockSize])
	clear(b[super.BitmapOff:][:super.BitmapLen])
	return b
}
