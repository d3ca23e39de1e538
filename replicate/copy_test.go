package replicate

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// TestPool_FlushBeyondTheWindow flushes more than may be in flight, in one piece and in several.
func TestPool_FlushBeyondTheWindow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const size = 3*aheadWrites*aheadBytes + 4096
	r := newRealTargetIn(t, t.TempDir(), size)
	local := make([]byte, size)
	p, err := newClient().Create(t.Context(), r.addr, "p.set", local, 1, testAttr())
	must(t, err)
	fill(local[4096:], rng)
	must(t, p.Flush(4096, size-4096, 0))
	sent := p.fab.sent.now()
	if sent.Bytes != size-4096 || sent.Writes != 3*aheadWrites || sent.Sends != 0 {
		t.Errorf("posted %+v", sent)
	}
	must(t, p.Drain(0))
	for range 20 {
		off := 4096 + rng.Uint64N(size-4096)
		n := rng.Uint64N(size - off + 1)
		fill(local[off:off+n], rng)
		must(t, p.Flush(off, n, 0))
		if rng.IntN(3) == 0 {
			must(t, p.Drain(0)) // what was flushed may not change before
		} else {
			must(t, p.Persist(off, n, 0))
		}
	}
	got := make([]byte, size-4096)
	must(t, p.Read(got, 4096, 0))
	if !bytes.Equal(got, local[4096:]) {
		t.Error("the pool differs from the local memory")
	}
	must(t, p.Close(t.Context()))
}

// BenchmarkCopy copies a whole pool to the target's server over loopback: as a mount does, and as a program does that replicates its
// own memory. Both sides are in this process, and the target's pool is on tmpfs.
func BenchmarkCopy(b *testing.B) {
	const size = 256 << 20
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-copy-")
	must(b, err)
	defer os.RemoveAll(dir)
	r := newRealTargetIn(b, dir, size)
	id := testIdentity()
	id.Size = size
	must(b, CreatePool(b.Context(), r.addr, "p.set", wire.Attr{PoolUUID: poolUUID, CopyID: peerID}, size))
	region := pmem.NewHeap(size)
	log := logrus.New()
	log.SetOutput(io.Discard)
	term := uint64(6)
	b.Run("FullSync", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			b.StopTimer()
			p, err := Connect(b.Context(), Config{Name: "b", Pool: "p.set", Addr: r.addr, Device: newClient().Device, Timeout: 5 * time.Second,
				Durability: wire.DurabilityMemory, Log: logrus.NewEntry(log), OnDrained: func(uint64, error) {}}, region, id)
			must(b, err)
			must(b, p.Claim(b.Context(), term))
			term++
			b.StartTimer()
			must(b, p.FullSync(b.Context(), superSeals, nil, nil, nil))
			b.StopTimer()
			must(b, p.Close(context.Background()))
			b.StartTimer()
		}
	})
	must(b, os.RemoveAll(dir+"/part"))
	p, err := newClient().Create(b.Context(), r.addr, "p.set", region.Bytes(), 1, testAttr())
	must(b, err)
	b.Run("FlushDrain", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			must(b, p.Flush(4096, size-4096, 0))
			must(b, p.Drain(0))
		}
	})
	must(b, p.Close(b.Context()))
}
