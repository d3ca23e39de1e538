package replicate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/target"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

const rpmemSize = 4 << 20

// realTarget runs the target's server in this process, with a pool set file p.set.
type realTarget struct {
	addr string
	part string
	stop func()
}

func newRealTarget(t testing.TB) *realTarget { return newRealTargetIn(t, t.TempDir(), rpmemSize) }

// newRealTargetIn has a pool of size bytes in dir.
func newRealTargetIn(t testing.TB, dir string, size int) *realTarget {
	r := &realTarget{part: filepath.Join(dir, "part")}
	must(t, os.WriteFile(filepath.Join(dir, "p.set"), fmt.Appendf(nil, "PMEMPOOLSET\n%d %s\n", size, r.part), 0o600))
	cfg := config.DefaultTarget()
	cfg.Listen, cfg.Fabric, cfg.PoolDir, cfg.Socket, cfg.Durability = "127.0.0.1:0", "127.0.0.1:0", dir, filepath.Join(dir, "s"), config.Memory
	log := logrus.New()
	log.SetOutput(io.Discard)
	dev := iwarp.New(iwarp.Options{})
	srv, err := target.Listen(cfg, dev, log)
	must(t, err)
	r.addr = srv.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("target: %v", err)
		}
		dev.Close()
	})
	t.Cleanup(r.stop)
	return r
}

func newClient() *Client {
	return &Client{Device: iwarp.New(iwarp.Options{}), Timeout: 5 * time.Second, Durability: wire.DurabilityMemory}
}

func testAttr() wire.Attr {
	return wire.Attr{Signature: [8]byte{'T', 'E', 'S', 'T'}, Major: 3, UserFlags: [16]byte{7}}
}

func TestPool_Life(t *testing.T) {
	r, c, ctx := newRealTarget(t), newClient(), t.Context()
	local := make([]byte, rpmemSize)
	if _, err := c.Open(ctx, r.addr, "p.set", local, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open before create: %v", err)
	}
	p, err := c.Create(ctx, r.addr, "p.set", local, 100, testAttr())
	must(t, err)
	if p.Lanes() != MaxLanes {
		t.Errorf("%d lanes", p.Lanes())
	}
	attr := p.Attr()
	if attr.Signature != testAttr().Signature || attr.Major != 3 || attr.PoolUUID.IsZero() || attr.CopyID.IsZero() {
		t.Errorf("attributes %+v", attr)
	}
	if _, err := c.Create(ctx, r.addr, "p.set", local, 1, testAttr()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create twice: %v", err)
	}
	if _, err := c.Open(ctx, r.addr, "p.set", local, 1); !errors.Is(err, wire.StatusBusy) {
		t.Errorf("open twice: %v", err)
	}
	fill(local[4096:], rand.New(rand.NewPCG(5, 6)))
	must(t, p.Persist(4096, rpmemSize-4096, 3))
	attr.UserFlags[0] = 9
	attr.PoolUUID = wire.UUID{} // the identity stays whatever the caller says
	must(t, p.SetAttr(ctx, attr))
	must(t, p.Close(ctx))
	if err := p.Close(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("close twice: %v", err)
	}
	if err := p.Persist(4096, 1, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("persist after close: %v", err)
	}
	onMedia, err := os.ReadFile(r.part)
	must(t, err)
	if !bytes.Equal(onMedia[4096:rpmemSize], local[4096:]) {
		t.Error("the pool's file differs")
	}
	again := make([]byte, rpmemSize)
	p, err = c.Open(ctx, r.addr, "p.set", again, 2)
	must(t, err)
	if got := p.Attr(); got.UserFlags[0] != 9 || got.PoolUUID.IsZero() || p.Lanes() != 2 {
		t.Errorf("attributes %+v, %d lanes", got, p.Lanes())
	}
	must(t, p.Read(again[4096:], 4096, 1))
	if !bytes.Equal(again[4096:], local[4096:]) {
		t.Error("read differs")
	}
	if err := c.Remove(ctx, r.addr, "p.set", false); !errors.Is(err, wire.StatusBusy) {
		t.Errorf("remove while open: %v", err)
	}
	must(t, p.Close(ctx))
	must(t, c.Remove(ctx, r.addr, "p.set", false))
	if _, err := os.Stat(r.part); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after remove: %v", err)
	}
}

func TestPool_WrongArgumentsChangeNothing(t *testing.T) {
	r, c, ctx := newRealTarget(t), newClient(), t.Context()
	local := make([]byte, rpmemSize)
	for name, err := range map[string]error{
		"odd size":     second(c.Create(ctx, r.addr, "p.set", local[:5000], 1, testAttr())),
		"header only":  second(c.Create(ctx, r.addr, "p.set", local[:4096], 1, testAttr())),
		"no lane":      second(c.Create(ctx, r.addr, "p.set", local, 0, testAttr())),
		"too large":    second(c.Create(ctx, r.addr, "p.set", make([]byte, 2*rpmemSize), 1, testAttr())),
		"no name":      second(c.Create(ctx, r.addr, "", local, 1, testAttr())),
		"no set":       second(c.Create(ctx, r.addr, "q.set", local, 1, testAttr())),
		"path outside": second(c.Create(ctx, r.addr, "../p.set", local, 1, testAttr())),
	} {
		if err == nil || !strings.Contains(err.Error(), r.addr) || !strings.Contains(err.Error(), "create") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := c.Create(ctx, r.addr, "p.set", local, 1, testAttr())
	must(t, err)
	defer p.Close(ctx)
	for _, a := range []struct {
		off, n uint64
		lane   int
	}{{0, 8, 0}, {4095, 1, 0}, {rpmemSize, 1, 0}, {8192, ^uint64(0), 0}, {^uint64(0) - 4, 8, 0}, {4096, 8, 1}, {4096, 8, -1}} {
		if p.Flush(a.off, a.n, a.lane) == nil || p.Persist(a.off, a.n, a.lane) == nil {
			t.Errorf("%+v was taken", a)
		}
	}
	must(t, p.Drain(0))
	must(t, p.Persist(4096, 8, 0))
}

func second(_ *Pool, err error) error { return err }

// TestPool_Random compares the pool with the local memory after random flushes and drains on several lanes at a time, each
// in its own part of the memory.
func TestPool_Random(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, c, ctx := newRealTarget(t), newClient(), t.Context()
	local := make([]byte, rpmemSize)
	const lanes, share = 4, (rpmemSize - 4096) / 4
	p, err := c.Create(ctx, r.addr, "p.set", local, lanes, testAttr())
	must(t, err)
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(lane)))
			for range 150 {
				off := 4096 + uint64(lane*share) + rng.Uint64N(share)
				n := rng.Uint64N(min(50_000, 4096+uint64(lane+1)*share-off) + 1)
				fill(local[off:off+n], rng)
				var err error
				switch rng.IntN(4) {
				case 0:
					err = p.Persist(off, n, lane)
				case 1:
					err = errors.Join(p.Flush(off, n, lane), p.Drain(lane))
				default:
					err = p.Flush(off, n, lane)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(5) == 0 {
					if err := p.Drain(lane); err != nil {
						t.Error(err)
					}
				}
			}
			if err := p.Drain(lane); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got := make([]byte, rpmemSize-4096)
	must(t, p.Read(got, 4096, 0))
	if !bytes.Equal(got, local[4096:]) {
		t.Error("the pool differs from the local memory")
	}
	must(t, p.Close(ctx))
}

func TestPool_FailureIsSticky(t *testing.T) {
	r, c, ctx := newRealTarget(t), newClient(), t.Context()
	p, err := c.Create(ctx, r.addr, "p.set", make([]byte, rpmemSize), 2, testAttr())
	must(t, err)
	must(t, p.Persist(4096, 64, 0))
	r.stop()
	err = p.Persist(4096, 64, 0)
	if err == nil {
		t.Fatal("persisted at a target that has ended")
	}
	for _, part := range []string{r.addr, "p.set", "persist", "offset 4096"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	cause := errors.Unwrap(err)
	for name, err := range map[string]error{"flush": p.Flush(8192, 8, 0), "drain": p.Drain(1), "read": p.Read(make([]byte, 8), 4096, 1),
		"attributes": p.SetAttr(ctx, testAttr()), "close": p.Close(ctx)} {
		if errors.Unwrap(err) != cause {
			t.Errorf("%s: %v, the first failure was %v", name, err, cause)
		}
	}
}

func TestPool_SilentTarget(t *testing.T) {
	init, dev, fabric := memoryRig(t)
	f := newFakeTarget(t, dev, fabric, testSize)
	c := &Client{Device: init, Timeout: 100 * time.Millisecond}
	p, err := c.Open(t.Context(), f.addr(), "p.set", make([]byte, testSize), 1)
	must(t, err)
	must(t, p.Persist(4096, 64, 0))
	f.deaf.Store(true)
	for range 2 {
		if err := p.Persist(4096, 64, 0); !errors.Is(err, ErrTimeout) {
			t.Errorf("persist: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, ErrTimeout) {
		t.Errorf("close: %v", err)
	}
}

func TestPool_RefusesStates(t *testing.T) {
	for want, change := range map[wire.Status]func(*wire.State){
		wire.StatusTooSmall:     func(s *wire.State) { s.PoolSize-- },
		wire.StatusBusy:         func(s *wire.State) { s.Served = 1 },
		wire.StatusForeign:      func(s *wire.State) { s.Writer, s.Gen = myID, 100 },
		wire.StatusFenced:       func(s *wire.State) { s.Writer, s.Term = peerID, 4 },
		wire.StatusInconsistent: func(s *wire.State) { s.Flags = wire.FlagInconsistent },
	} {
		init, dev, fabric := memoryRig(t)
		f := newFakeTarget(t, dev, fabric, testSize)
		change(&f.st)
		c := &Client{Device: init}
		if _, err := c.Open(t.Context(), f.addr(), "p.set", make([]byte, testSize), 1); !errors.Is(err, want) {
			t.Errorf("%v: %v", uint32(want), err)
		}
	}
}

func TestPool_PersistAllocatesNothing(t *testing.T) {
	init, dev, fabric := memoryRig(t)
	f := newFakeTarget(t, dev, fabric, testSize)
	p, err := (&Client{Device: init}).Open(t.Context(), f.addr(), "p.set", make([]byte, testSize), 1)
	must(t, err)
	buf := make([]byte, 4096)
	n := testing.AllocsPerRun(300, func() {
		err := p.Persist(4096, 4096, 0)
		if err == nil {
			err = p.Flush(8192, 64, 0)
		}
		if err == nil {
			err = p.Drain(0)
		}
		if err == nil {
			err = p.Read(buf, 4096, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations per persist, flush, drain and read", n)
	}
	must(t, p.Close(t.Context()))
}

// TestReplica_RealTarget brings a replica in sync on the real target, drains, leaves clean, and finds it equal again.
func TestReplica_RealTarget(t *testing.T) {
	r, ctx := newRealTarget(t), t.Context()
	id := testIdentity()
	id.Size = rpmemSize
	must(t, CreatePool(ctx, r.addr, "p.set", wire.Attr{PoolUUID: poolUUID, CopyID: peerID}, rpmemSize))
	p := &pair{t: t, reported: make(chan reported, 8)}
	region := newFilledRegion()
	log := logrus.New()
	log.SetOutput(io.Discard)
	connect := func() {
		var err error
		p.Replica, err = Connect(ctx, Config{Name: "b", Pool: "p.set", Addr: r.addr, Device: newClient().Device, Timeout: 5 * time.Second,
			Durability: wire.DurabilityMemory, Log: logrus.NewEntry(log), OnDrained: func(seq uint64, err error) { p.reported <- reported{seq, err} }}, region, id)
		must(t, err)
	}
	connect()
	if p.Need() != NeedFullCopy {
		t.Errorf("need %v", p.Need())
	}
	must(t, p.Claim(ctx, 6))
	must(t, p.FullSync(ctx, superSeals, nil, sealsOf(region), nil))
	must(t, p.Adopt(ctx, 101, [8]uint64{100}, []wire.UUID{peerID}))
	p.Drain(1, nil, sealsOf(region)[0])
	must(t, p.expect(1))
	must(t, p.Clean(ctx, wire.FlagClean))
	must(t, p.Close(ctx))
	id.Term, id.Gen, id.History = 6, 101, [8]uint64{100}
	connect()
	if p.Need() != NeedNothing || p.Peer().Flags&wire.FlagClean == 0 || p.Peer().Term != 6 {
		t.Errorf("need %v, state %+v", p.Need(), p.Peer())
	}
	must(t, p.Claim(ctx, 7))
	got := make([]byte, rpmemSize-4096)
	must(t, p.ReadAt(4096, got))
	if !bytes.Equal(got, region.Bytes()[4096:]) {
		t.Error("the copies differ")
	}
	must(t, p.Adopt(ctx, 102, [8]uint64{101, 100}, nil))
	if p.Peer().Flags&wire.FlagClean != 0 {
		t.Error("clean although drains may follow")
	}
	must(t, p.Close(ctx))
	if s := fmt.Sprint(p.Status().State); s != "Detached" {
		t.Errorf("state %s", s)
	}
}
