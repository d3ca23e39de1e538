package initiator

import (
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

const testPool = 8 << 20

var testUUID = [16]byte{1, 2, 3}

// mounted is the volume of a region as a mount at term sees it.
func mounted(t *testing.T, region pmem.Region, term uint64) *volume.Volume {
	t.Helper()
	vol, _, err := volume.Open(region, volume.Options{PoolUUID: testUUID, Term: term, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return vol
}

// group makes a file and returns the job of its group.
func group(t *testing.T, vol *volume.Volume, name string) *volume.Job {
	t.Helper()
	if _, err := vol.Make(volume.Root, name, volume.Make{Mode: syscall.S_IFREG | 0o644}); err != nil {
		t.Fatal(err)
	}
	if closed, err := vol.CloseGroup(); err != nil || !closed {
		t.Fatalf("close group: %v, %v", closed, err)
	}
	return vol.NextJob()
}

// execute drains j on a copy, after its bytes came from the local one.
func execute(t *testing.T, copyOf, local pmem.Region, j *volume.Job) {
	t.Helper()
	for _, r := range j.Ranges {
		copy(copyOf.Bytes()[r.Off:r.Off+r.Len], local.Bytes()[r.Off:r.Off+r.Len])
	}
	if err := pmem.Drain(copyOf, j.Ranges, j.Seal); err != nil {
		t.Fatal(err)
	}
}

func probe(t *testing.T, region pmem.Region) volume.Recovered {
	t.Helper()
	rec, err := volume.Probe(func(off uint64, b []byte) error { copy(b, region.Bytes()[off:]); return nil }, testUUID, testPool)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// A target gets a group before the local copy has sealed it. If the initiator dies in between, the target leads by groups that
// nobody was told of, and the next mount goes on with the local copy: also if they were the first groups of their term.
func TestAhead_UnacknowledgedSurplus(t *testing.T) {
	local, replica := pmem.NewHeap(testPool), pmem.NewHeap(testPool)
	if err := volume.Format(local, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol := mounted(t, local, 1)
	j := group(t, vol, "acknowledged")
	execute(t, local, local, j)
	vol.Sealed(j)
	copy(replica.Bytes(), local.Bytes())

	vol = mounted(t, local, 2)
	for _, name := range []string{"a", "b"} {
		execute(t, replica, local, group(t, vol, name))
	}
	there, here := probe(t, replica), probe(t, local)
	if there.LSN != here.LSN+2 || there.Term != 2 || here.Term != 1 {
		t.Fatalf("there %+v, here %+v", there, here)
	}
	if ahead(there, here, 2) {
		t.Errorf("refused: group %d of term %d there, group %d of term %d here, which took term 2", there.LSN, there.Term, here.LSN, here.Term)
	}
	if !ahead(there, here, 1) {
		t.Error("taken: a term that the local copy never took")
	}
	there.LSN = here.LSN + commit.MaxInFlight + 1
	if !ahead(there, here, 2) {
		t.Error("taken: more groups than can be in flight")
	}
}
