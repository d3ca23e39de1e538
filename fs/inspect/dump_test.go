package inspect

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

var update = flag.Bool("update", false, "write the golden files anew")

const goldenFile = "testdata/dump.golden"

var testUUID = [16]byte{1, 2, 3}

// smallPool has a directory and a file in its last checkpoint, and a symbolic link in the log.
func smallPool(t *testing.T) []byte {
	t.Helper()
	region := pmem.NewHeap(1 << 20)
	if err := volume.Format(region, volume.Params{PoolUUID: testUUID, NodeSize: 1024, Now: volume.Time{Sec: 1}}); err != nil {
		t.Fatal(err)
	}
	v, _, err := volume.Open(region, volume.Options{PoolUUID: testUUID, Term: 1, Now: func() volume.Time { return volume.Time{Sec: 2, Nsec: 3} }})
	if err != nil {
		t.Fatal(err)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(v.Make(volume.Root, "dir", volume.Make{Mode: syscall.S_IFDIR | 0o755}))
	file, err := v.Make(volume.Root, "file", volume.Make{Mode: syscall.S_IFREG | 0o644, UID: 7})
	must(nil, err)
	must(v.Write(file.Ino, 0, []byte("content"), false))
	must(nil, v.SetXattr(file.Ino, "user.note", []byte("value"), 0))
	must(v.FlushAll())
	must(v.CloseEpoch())
	must(v.Make(volume.Root, "link", volume.Make{Mode: syscall.S_IFLNK | 0o777, Target: "file"}))
	must(v.CloseGroup())
	for j := v.NextJob(); j != nil; j = v.NextJob() {
		must(nil, pmem.Drain(region, j.Ranges, j.Seal))
		v.Sealed(j)
	}
	return region.Bytes()
}

func dump(t *testing.T, pool []byte) string {
	t.Helper()
	var out strings.Builder
	d := Dumper{Bytes: pool, UUID: testUUID, Out: &out}
	for _, step := range []func() error{d.Header, d.Supers, d.Log, func() error { return d.Nodes(0) }, func() error { return d.Inode(3) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestDump_Golden(t *testing.T) {
	got := dump(t, smallPool(t))
	if *update {
		if err := os.WriteFile(goldenFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got; -update writes it anew\n%s", diff)
	}
}

// A dump of damaged bytes says what is wrong and shows the rest.
func TestDump_Damaged(t *testing.T) {
	pool := smallPool(t)
	whole := dump(t, pool)
	at := bytes.LastIndex(pool, []byte("PMND"))
	pool[at+70] ^= 1
	pool[4096+100] ^= 1
	text := dump(t, pool)
	if text == whole || !strings.Contains(text, "seal: found") {
		t.Errorf("the damage is not told:\n%s", text)
	}
}
