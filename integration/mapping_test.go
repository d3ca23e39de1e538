package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// TestSharedMapping_TwoProcesses: two processes commit to one store through shared writable mappings, as LMDB does with
// MDB_WRITEMAP. One of them is killed and another one takes its place: the lock of the dead is free. Then the initiator is
// killed, and the replica has every transaction whose msync returned.
func TestSharedMapping_TwoProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	store := r.path("store")
	first, second := r.storeLoop(store, "first"), r.storeLoop(store, "second")
	first.waitFor(scaled(100))
	second.waitFor(scaled(100))
	first.stop()
	third := r.storeLoop(store, "third")
	third.waitFor(scaled(50))
	second.waitFor(scaled(50))
	r.must(r.pool.KillDaemon())
	second.ended()
	third.ended()
	replica := r.takeOver()
	out, err := stage.Run(filepath.Join(bin, "workload"), "check-store", store, strings.Join([]string{first.acked, second.acked, third.acked}, ","))
	r.must(err)
	t.Log(out)
	r.finish(replica)
}

// storeLoop starts a program that commits to a store.
func (r *rig) storeLoop(store, name string) *workload {
	r.t.Helper()
	w := &workload{r: r, file: name, acked: r.Path("acked-" + name)}
	var err error
	w.cmd, err = r.Daemon("append-"+name+".log", filepath.Join(bin, "workload"), "store", store, w.acked)
	r.must(err)
	return w
}

// TestLMDB_Tools: LMDB's own programs load a database and read it back on the replica. A load is one transaction, and durable
// when mdb_load has ended.
func TestLMDB_Tools(t *testing.T) {
	t.Parallel()
	needs(t, "lmdb-utils", "mdb_load", "mdb_dump", "mdb_copy")
	r := newRig(t, setup{})
	dump := r.Path("in.dump")
	var text strings.Builder
	text.WriteString("VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=8388608\nHEADER=END\n")
	for n := range 2000 {
		fmt.Fprintf(&text, " %08x\n %s\n", n, strings.Repeat(fmt.Sprintf("%02x", n%251), n%400))
	}
	text.WriteString("DATA=END\n")
	r.must(store(dump, []byte(text.String()), false))
	_, err := stage.Run("mdb_load", "-n", "-f", dump, r.path("data.mdb"))
	r.must(err)
	r.must(r.pool.KillDaemon())
	replica := r.takeOver()
	_, err = stage.Run("mdb_copy", "-n", "-c", r.path("data.mdb"), r.path("copy.mdb"))
	r.must(err)
	for _, name := range []string{"data.mdb", "copy.mdb"} {
		out, err := stage.Run("mdb_dump", "-n", r.path(name))
		r.must(err)
		_, got, _ := strings.Cut(out, "HEADER=END\n")
		_, want, _ := strings.Cut(strings.TrimSpace(text.String()), "HEADER=END\n")
		if got != want {
			t.Errorf("%s: what comes out is not what was loaded: %d bytes, want %d", name, len(got), len(want))
		}
	}
	r.finish(replica)
}
