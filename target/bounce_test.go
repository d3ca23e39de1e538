package target

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/region"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// bouncing is a target and a replica of it over devices that cannot have files of the page cache.
type bouncing struct {
	*rig
	dev    verbs.Device // of the initiator
	memory pmem.Region
	ended  chan error
	seq    uint64
}

const bounceSize = 4 << 20

// newBouncing makes the target with its pool in dir, and bounce buffers of this size.
func newBouncing(t *testing.T, dir string, bounce config.Bytes) *bouncing {
	f := verbstest.NewFabric(verbstest.Auto)
	f.Hardware()
	b := &bouncing{rig: newRigOver(t, dir, f.Device("target"), bounce), dev: f.Device("initiator"), ended: make(chan error, 64)}
	b.dial().create()
	return b
}

// file is a region of a file in the page cache.
func (b *bouncing) file(size uint64) pmem.Region {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "local")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		b.t.Fatal(err)
	}
	m, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: size}}, pmem.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { m.Close() })
	return m
}

// connect makes a replica and brings it in sync.
func (b *bouncing) connect(m pmem.Region, bounce uint64) (*replicate.Replica, error) {
	b.memory = m
	id := replicate.Identity{PoolUUID: poolID, CopyID: writerA, Term: 1, Gen: 7, Size: partSize}
	r, err := replicate.Connect(b.t.Context(), replicate.Config{Name: "target", Pool: "p.set", Addr: b.srv.Addr().String(), Device: b.dev, Timeout: 5 * time.Second,
		Durability: wire.DurabilityMemory, Bounce: bounce, OnDrained: func(_ uint64, err error) { b.ended <- err }, Log: logrus.NewEntry(quiet())}, m, id)
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() { r.Close(context.Background()) })
	if err := r.Claim(b.t.Context(), 2); err != nil {
		return nil, err
	}
	if err := r.FullSync(b.t.Context(), []uint64{4096}, nil, nil, nil); err != nil {
		return nil, err
	}
	return r, r.Adopt(b.t.Context(), 7, [8]uint64{}, nil)
}

func (b *bouncing) drain(r *replicate.Replica, seal pmem.Seal, ranges ...pmem.Range) {
	b.seq++
	r.Drain(b.seq, ranges, seal)
}

func (b *bouncing) wait(n int) {
	b.t.Helper()
	for range n {
		if err := <-b.ended; err != nil {
			b.t.Fatal(err)
		}
	}
}

// same compares the copies.
func (b *bouncing) same() {
	b.t.Helper()
	there, err := os.ReadFile(b.part())
	if err != nil {
		b.t.Fatal(err)
	}
	if here := b.memory.Bytes(); !bytes.Equal(there[4096:], here[4096:partSize]) {
		for i := 4096; i < partSize; i++ {
			if here[i] != there[i] {
				b.t.Fatalf("the copies differ from offset %d on", i)
			}
		}
	}
}

// inMemory is a directory whose files are not in the page cache of a disk.
func inMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Drains of all shapes arrive, a full copy and READs go through, whichever side goes through bounce buffers. The buffers are small, so that they go round.
func TestBounce(t *testing.T) {
	for name, c := range map[string]struct{ target, local bool }{"both": {true, true}, "target": {true, false}, "initiator": {false, true}, "none": {false, false}} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			dir, local := inMemory(t), pmem.NewHeap(partSize)
			b := newBouncing(t, map[bool]string{true: t.TempDir(), false: dir}[c.target], bounceSize)
			if c.local {
				local = b.file(partSize)
			}
			fill(rng, local.Bytes()[4104:]) // behind the seal, which a full copy leaves zero
			r, err := b.connect(local, bounceSize)
			if err != nil {
				t.Fatal(err)
			}
			b.same()
			st, there := r.Status(), b.srv.status().Pools[0]
			if (st.Bounce != 0) != c.local || (st.Staging != 0) != c.target || (there.Bounce != 0) != c.target || st.Method != wire.GPSPM && c.target {
				t.Errorf("status %+v, at the target %+v", st, there)
			}
			for range 40 {
				flight := 1 + rng.IntN(3)
				for k := range flight {
					// Each drain in flight has bytes of its own, as those of a file system that are not proven yet.
					lo := uint64(8192 + k*(partSize-8192)/3)
					b.drain(r, pmem.Seal{Off: 4096, Val: b.seq + 1}, b.ranges(rng, lo, (partSize-8192)/3)...)
				}
				b.wait(flight)
			}
			binary.LittleEndian.PutUint64(local.Bytes()[4096:], b.seq)
			buf := make([]byte, partSize-4096)
			if err := r.ReadAt(4096, buf); err != nil || !bytes.Equal(buf, local.Bytes()[4096:]) {
				t.Errorf("other bytes were read than were written: %v", err)
			}
			if err := r.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			b.same()
		})
	}
}

// ranges stores random bytes to random ranges within n bytes from lo on, some of which touch or are empty.
func (b *bouncing) ranges(rng *rand.Rand, lo, n uint64) (rs []pmem.Range) {
	hi := lo + n
	for count := 1 + rng.IntN(40); count > 0 && lo < hi; count-- {
		if rng.IntN(2) == 0 {
			lo += rng.Uint64N(min(100, hi-lo) + 1)
		}
		size := rng.Uint64N(min(1<<uint(3+rng.IntN(18)), hi-lo) + 1)
		fill(rng, b.memory.Bytes()[lo:lo+size])
		rs = append(rs, pmem.Range{Off: lo, Len: size})
		lo += size
	}
	rng.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
	return rs
}

func fill(rng *rand.Rand, b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, rng.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// Without bounce buffers a pool in the page cache is refused, here and there, and the message says what to configure.
func TestBounce_RefusedUnlessConfigured(t *testing.T) {
	b := newBouncing(t, t.TempDir(), 0)
	var kind *region.KindError
	if _, err := b.connect(b.file(partSize), 0); !errors.As(err, &kind) || kind.Kind != pmem.PageCacheFile {
		t.Errorf("the local pool: %v", err)
	}
	_, err := b.connect(pmem.NewHeap(partSize), bounceSize)
	if !errors.Is(err, wire.StatusRegister) || !strings.Contains(err.Error(), `bounce buffers (bounce = "64M")`) {
		t.Errorf("the target's pool: %v", err)
	}
	if s := b.info().State; s.Term != 0 || !s.Writer.IsZero() {
		t.Errorf("the refused claim took the pool: %+v", s)
	}
}

// A staging area in which no unit of a lane has room is refused before it blocks one.
func TestBounce_TooSmall(t *testing.T) {
	b := newBouncing(t, t.TempDir(), 1<<20)
	if _, err := b.connect(pmem.NewHeap(partSize), 0); err == nil || !strings.Contains(err.Error(), "staging area of 1048576 bytes is too small") {
		t.Errorf("the target's: %v", err)
	}
	b = newBouncing(t, inMemory(t), 0)
	if _, err := b.connect(b.file(partSize), 1<<20); err == nil || !strings.Contains(err.Error(), "bounce buffer of 1048576 bytes is too small") {
		t.Errorf("the local one: %v", err)
	}
}

// A program that replicates its own memory, on several lanes, is served through the same area.
func TestBounce_Lanes(t *testing.T) {
	b := newBouncing(t, t.TempDir(), 16<<20)
	local := make([]byte, partSize)
	c := replicate.Client{Device: b.dev, Timeout: 5 * time.Second, Durability: wire.DurabilityMemory}
	p, err := c.Open(t.Context(), b.srv.Addr().String(), "p.set", local, 4)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(lane), 0))
			lo := uint64(4096 + lane*(partSize-4096)/4)
			for range 20 {
				off := lo + rng.Uint64N(1<<18)
				fill(rng, local[off:off+1<<16])
				if err := errors.Join(p.Flush(off, 1<<15, lane), p.Persist(off+1<<15, 1<<15, lane)); err != nil {
					t.Error(err)
				}
			}
			buf := make([]byte, 1<<18)
			if err := p.Read(buf, lo, lane); err != nil || !bytes.Equal(buf, local[lo:lo+1<<18]) {
				t.Errorf("lane %d: other bytes were read than were written: %v", lane, err)
			}
		})
	}
	wg.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	there, err := os.ReadFile(b.part())
	if err != nil || !bytes.Equal(there[4096:], local[4096:]) {
		t.Errorf("the copies differ: %v", err)
	}
}

// Requests that do not fit a session with a staging area, or one without, end it as any bad request does, and change nothing.
func TestBounce_BadRequests(t *testing.T) {
	for name, c := range map[string]struct {
		staged bool
		req    wire.Flush
	}{
		"staged without an area": {false, wire.Flush{Stage: wire.Staged}},
		"fetch without an area":  {false, wire.Flush{Stage: wire.Fetch}},
		"not staged":             {true, wire.Flush{}},
		"beyond the area":        {true, wire.Flush{Stage: wire.Staged, StageAt: bounceSize - 64}},
		"fetch beyond the area":  {true, wire.Flush{Stage: wire.Fetch, StageAt: bounceSize - 64}},
	} {
		t.Run(name, func(t *testing.T) {
			dev, staging := verbstest.NewFabric(verbstest.Auto).Device("d"), uint64(0)
			if c.staged {
				f := verbstest.NewFabric(verbstest.Auto)
				f.Hardware()
				dev, staging = f.Device("d"), bounceSize
			}
			mem := asFile{pmem.NewHeap(1 << 20)}
			g, err := newGrant(dev, mem, 7, Register{1, 1, wire.AllMethods}, Persistency{Bounce: staging}, quiet())
			if err != nil {
				t.Fatal(err)
			}
			defer g.end(0)
			g.report = func() {}
			l, err := g.admit(dev, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer g.leave(l, 0)
			c.req.Session, c.req.Answer, c.req.Ranges = 7, true, []pmem.Range{{Off: 4096, Len: 65}}
			buf := make([]byte, wire.MaxFlush)
			if c.staged {
				for i := range g.staging.Bytes() {
					g.staging.Bytes()[i] = 1
				}
			}
			if _, f := l.flush(buf[:c.req.Encode(buf)]); f == nil || f.status != wire.FlushBadRequest {
				t.Errorf("%+v", f)
			}
			if !bytes.Equal(mem.Bytes(), make([]byte, 1<<20)) {
				t.Error("the pool was changed")
			}
		})
	}
}

// asFile is memory that passes for a file in the page cache.
type asFile struct{ pmem.Region }

func (asFile) Kind() pmem.Kind       { return pmem.PageCacheFile }
func (asFile) Promise() pmem.Promise { return pmem.PageCache }

// volatileFile promises as little as APM asks for.
type volatileFile struct{ asFile }

func (volatileFile) Promise() pmem.Promise { return pmem.Volatile }

// With bounce buffers only the target's CPU makes bytes persistent: what would be APM is GPSPM, and APM alone is refused.
func TestBounce_MethodIsGPSPM(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Auto)
	f.Hardware()
	mem := volatileFile{asFile{pmem.NewHeap(1 << 20)}}
	g, err := newGrant(f.Device("d"), mem, 7, Register{1, 1, wire.AllMethods}, Persistency{Bounce: bounceSize}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if g.method != wire.GPSPM || !strings.Contains(g.why, "APM: the target's pool is behind bounce buffers") {
		t.Errorf("%v (%s)", g.method, g.why)
	}
	if err := g.end(0); err != nil {
		t.Error(err)
	}
	_, err = newGrant(f.Device("d"), mem, 7, Register{1, 1, wire.MethodSet(wire.APM)}, Persistency{Bounce: bounceSize}, quiet())
	if !errors.Is(err, wire.StatusMethod) {
		t.Errorf("APM alone: %v", err)
	}
}
