package integration

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// spoil flips a bit of each of these bytes.
func spoil(at ...uint64) func(b []byte) []byte {
	return func(b []byte) []byte {
		for _, i := range at {
			b[i] ^= 0x20
		}
		return b
	}
}

// newest is the super slot that counts.
func newest(b []byte) []byte {
	if binary.LittleEndian.Uint64(b[8192+48:]) > binary.LittleEndian.Uint64(b[4096+48:]) {
		return b[8192:]
	}
	return b[4096:]
}

// TestDamagedPool: whatever part of a pool is damaged, a mount fails with code 32 and says which file, where, what was
// found and expected, and what to do; status and a second look change nothing either.
func TestDamagedPool(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	b, err := os.ReadFile(r.pool.Part)
	r.must(err)
	root := binary.LittleEndian.Uint64(newest(b)[64:])
	const stateEnd = poolset.StateOff + poolset.StateLen
	for _, tc := range []struct {
		what   string
		damage func(b []byte) []byte
		where  string
	}{
		{"pool header", spoil(0x90, poolset.HeaderCopyOff+0x90), "0x98"},
		{"state slots", spoil(poolset.StateOff, stateEnd), "0x400"},
		{"super slots", spoil(4096+300, 8192+300), "4096"},
		{"root node", spoil(root + 100), fmt.Sprint("offset ", root)},
		{"magic of the root node", spoil(root), fmt.Sprint("offset ", root)},
	} {
		r.with(r.pool.Part, tc.damage, func() {
			// The term is taken before the tree is read, so block 0 may change; nothing else does.
			err := r.pool.Mount()
			wantText(t, "mount: "+tc.what, err, "exit status 32", r.pool.Part, tc.where, "found", "expected", "pmemfs fsck")
			if n := strings.Count(fmt.Sprint(err), "pmemfs fsck"); n != 1 {
				t.Errorf("mount: %s: advice given %d times: %v", tc.what, n, err)
			}
			if lines := mountLines(t, r.pool.Mountpoint); len(lines) > 0 {
				t.Errorf("%s: left a mount: %v", tc.what, lines)
			}
		})
	}
	r.with(r.pool.Part, spoil(0x90, poolset.HeaderCopyOff+0x90), func() {
		r.refused("status of a damaged pool", func() error { _, err := r.Pmemfs("status", r.pool.Config); return err },
			"exit status 3", r.pool.Part, "found", "expected", "pmemfs fsck")
	})
	// What exists twice makes up for one damaged place, and the log says so.
	r.with(r.pool.Part, spoil(poolset.HeaderCopyOff+0x90), func() {
		r.must(r.pool.Mount())
		r.wantContent(r.path("f"), "content")
		r.must(r.pool.Umount())
	})
	log, err := os.ReadFile(r.Path("a.log"))
	r.must(err)
	if !strings.Contains(string(log), "copy of the pool header: at offset 0x298") {
		t.Error("the log does not tell of the damaged copy of the pool header")
	}
}

// TestDamagedRecord: a record of the log that is damaged is told from the end of the log by those sealed after it. The
// changes of all of them were acknowledged, so the pool is refused, not taken back to what was before.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for i := range 5 {
		r.must(writeSync(r.path(fmt.Sprint("f", i)), []byte("content")))
	}
	r.must(r.pool.Kill())
	b, err := os.ReadFile(r.pool.Part)
	r.must(err)
	first := firstRecord(b)
	r.with(r.pool.Part, spoil(first+70), func() {
		r.refused("mount with a damaged record", func() error { return r.pool.Mount() },
			r.pool.Part, fmt.Sprint("offset ", first), "found", "expected", "pmemfs fsck")
	})
	r.must(r.pool.Mount())
	r.wantContent(r.path("f0"), "content")
}

// firstRecord is the offset of the first record that a mount replays.
func firstRecord(b []byte) uint64 {
	slot := newest(b)
	return binary.LittleEndian.Uint64(slot[112:]) + binary.LittleEndian.Uint64(slot[104:])
}

// TestDamagedReplica: a target refuses to serve or promote a replica whose header or state is damaged, and says why.
func TestDamagedReplica(t *testing.T) {
	t.Parallel()
	r := unmounted(t)
	for _, tc := range []struct {
		what   string
		damage func(b []byte) []byte
		where  string
	}{
		{"header", spoil(0x90, poolset.HeaderCopyOff+0x90), "0x98"},
		{"state", spoil(poolset.StateOff, poolset.StateOff+poolset.StateLen), "0x400"},
	} {
		r.with(r.replicaPart(0), tc.damage, func() {
			words := []string{r.replicaPart(0), tc.where, "found", "expected"}
			r.refused("mount: replica with damaged "+tc.what, func() error { return r.pool.Mount() }, words...)
			r.refused("promote: damaged "+tc.what, func() error { _, err := r.targets[0].Promote(set); return err }, words...)
			replica := r.replicaPool(0)
			r.refused("status: damaged "+tc.what, func() error { _, err := r.Pmemfs("status", replica.Config); return err }, words...)
		})
	}
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), "content")
}
