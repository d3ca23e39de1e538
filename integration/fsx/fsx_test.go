package fsx

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

func newMatch(t *testing.T) *Match {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-fsx-")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage.Stage{Dir: dir, Bin: dir, Durability: "memory", PoolSize: "64M"}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs:\n%s", s.Logs())
		}
		s.Close()
		os.RemoveAll(dir)
	})
	if err := stage.Build("../..", dir, "./cmd/pmemfs", "./cmd/pmemfs-target"); err != nil {
		t.Fatal(err)
	}
	m, err := Start(s, rand.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRandomOperations plays for some seconds; make fsx plays a million operations.
func TestRandomOperations(t *testing.T) {
	m := newMatch(t)
	end := time.Now().Add(10 * time.Second)
	if err := m.Play(func() bool { return time.Now().Before(end) }, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d: %d operations", m.Seed, m.Done)
	if err := m.Finish(); err != nil {
		t.Fatal(err)
	}
}

// TestSeesAndReduces: an operation that does less than it should is found, and few operations remain that show it. A byte
// that is wrong on the replica alone is found too.
func TestSeesAndReduces(t *testing.T) {
	m := newMatch(t)
	saved := moves
	defer func() { moves = saved }()
	moves = slices.Clone(saved)
	for i := range moves {
		if moves[i].name == "zero range" {
			moves[i].do = func(t *turn) error {
				off, n := t.place()
				t.f.zero(off, n) // and nothing else
				return nil
			}
		}
	}
	err := m.Play(func() bool { return m.Done < 100_000 }, 10*time.Second)
	var failure *Failure
	if !errors.As(err, &failure) || failure.N != m.Done || failure.Recent == "" {
		t.Fatalf("after %d operations: %v, want a failure", m.Done, err)
	}
	short := Reduce(m.pool.Mountpoint, m.Seed, failure.N, 10*time.Second)
	if len(short) == 0 || len(short) > 8 {
		t.Errorf("%d operations remain, want at most 8: %v", len(short), short)
	}
	t.Logf("seed %d: %v remain of %d operations", m.Seed, short, failure.N)
	f := m.game.files[0]
	f.model = append(f.model[:0], 1, 2, 3)
	if err := writeSynced(f.path, []byte{1, 2, 4}); err != nil { // f's own descriptors may be those of a file that was renamed over
		t.Fatal(err)
	}
	if err := m.Finish(); err == nil || !strings.Contains(err.Error(), "file0: byte 2 is 0x4, want 0x3") {
		t.Errorf("the replica has another byte than the model: %v", err)
	}
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}
