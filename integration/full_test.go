package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
)

// fill writes files until the pool is full and returns their names. Each is made durable.
func (r *rig) fill() (names []string) {
	r.t.Helper()
	block := make([]byte, 256<<10)
	for i := range 1000 {
		path := r.path(fmt.Sprintf("fill%d", i))
		for j := range block {
			block[j] = byte(i + j)
		}
		err := writeSync(path, block)
		if errors.Is(err, syscall.ENOSPC) {
			return append(names, path)
		}
		r.must(err)
		names = append(names, path)
	}
	r.t.Fatal("the pool never fills up")
	return nil
}

// TestFullPool_NothingIsLostAndDeletingHelps: ENOSPC is an answer, not a failure, on both copies.
func TestFullPool_NothingIsLostAndDeletingHelps(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	first := r.fill()
	for _, path := range first {
		r.must(os.Remove(path))
	}
	second := r.fill()
	if len(second) < len(first)-1 {
		t.Errorf("%d files fit at first, and %d after they were removed", len(first), len(second))
	}
	f, err := os.OpenFile(second[0], os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	if _, err = f.WriteAt([]byte("in place"), 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Errorf("overwrite in a full pool: %v", err)
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error(err)
	}
	r.must(f.Close())
	r.quiesce()
	r.must(r.pool.Sync())
	sameCopies(t, r.pool.Part, r.replicaPart(0))
	sums, err := treeSums(r.pool.Mountpoint)
	r.must(err)
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	sameTree(t, replica, sums)
	r.must(replica.Umount())
	r.checkClean(replica)
}
