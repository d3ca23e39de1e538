package region

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// device is one with other caps, whose registrations are noted and may fail.
type device struct {
	verbs.Device
	caps verbs.Caps
}

func (d *device) Caps() verbs.Caps { return d.caps }

// domain notes what is registered, and fails at the byte count fail.
type domain struct {
	verbs.PD
	got  []registration
	fail error
	left int // registrations until it fails
}

type registration struct {
	n int
	a verbs.Access
}

func (p *domain) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if p.fail != nil && p.left == 0 {
		return nil, p.fail
	}
	p.left--
	p.got = append(p.got, registration{len(b), a})
	return p.PD.RegisterMR(b, a&^verbs.OnDemand) // which the device below does not know
}

// newConfig is for a device of these caps. The end of the test demands that everything was closed.
func newConfig(t *testing.T, caps verbs.Caps) (Config, *domain) {
	t.Helper()
	dev := &device{verbstest.NewFabric(verbstest.Auto).Device("dev0"), caps}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(pd.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	log, _ := logtest.NewNullLogger()
	d := &domain{PD: pd}
	return Config{Device: dev, PD: d, Access: verbs.RemoteWrite, First: 4096, Log: log}, d
}

func mustRegister(t *testing.T, cfg Config, mem []byte, k pmem.Kind) *Chunks {
	t.Helper()
	c, err := Register(cfg, mem, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Rule 13: a file in the page cache is given to nobody but a provider that stores by itself.
func TestRegister_KindsOfMemory(t *testing.T) {
	own, plain, odp := verbs.Caps{OwnStores: true}, verbs.Caps{}, verbs.Caps{OnDemand: true}
	for _, c := range []struct {
		kind pmem.Kind
		caps verbs.Caps
		want verbs.Access // 0: refused
	}{
		{pmem.Heap, own, verbs.RemoteWrite}, {pmem.Heap, plain, verbs.RemoteWrite}, {pmem.Heap, odp, verbs.RemoteWrite},
		{pmem.Tmpfs, own, verbs.RemoteWrite}, {pmem.Tmpfs, plain, verbs.RemoteWrite}, {pmem.Tmpfs, odp, verbs.RemoteWrite},
		{pmem.DeviceDAX, own, verbs.RemoteWrite}, {pmem.DeviceDAX, plain, verbs.RemoteWrite}, {pmem.DeviceDAX, odp, verbs.RemoteWrite},
		{pmem.FSDAX, own, verbs.RemoteWrite}, {pmem.FSDAX, plain, 0}, {pmem.FSDAX, odp, verbs.RemoteWrite | verbs.OnDemand},
		{pmem.PageCacheFile, own, verbs.RemoteWrite}, {pmem.PageCacheFile, plain, 0}, {pmem.PageCacheFile, odp, 0},
	} {
		cfg, pd := newConfig(t, c.caps)
		chunks, err := Register(cfg, make([]byte, 1<<20), c.kind)
		if c.want == 0 {
			var kind *KindError
			if !errors.As(err, &kind) || kind.Kind != c.kind || len(pd.got) != 0 {
				t.Errorf("%v, %+v: %v", c.kind, c.caps, err)
			}
			continue
		}
		if err != nil || len(pd.got) != 1 || pd.got[0] != (registration{1<<20 - 4096, c.want}) {
			t.Errorf("%v, %+v: registered %v, %v", c.kind, c.caps, pd.got, err)
			continue
		}
		if err := chunks.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The messages say what to do.
func TestRegister_ErrorsNameTheFix(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&KindError{"dev0", pmem.FSDAX}, "ndctl create-namespace -m devdax"},
		{&KindError{"dev0", pmem.PageCacheFile}, `provider "iwarp"`},
		{&LimitError{1, 2, 3}, "LimitMEMLOCK=infinity"},
		{register(t, unix.EIO), "device dev0: registering bytes 131072 to 196608 of the pool"},
	} {
		if !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%q does not say %q", c.err, c.want)
		}
	}
}

// register fails with err at the third chunk, and demands that the two before are gone.
func register(t *testing.T, fail error) error {
	cfg, pd := newConfig(t, verbs.Caps{OwnStores: true, MaxRegion: MinChunk})
	pd.fail, pd.left = fail, 2
	_, err := Register(cfg, make([]byte, 5*MinChunk), pmem.Heap)
	if !errors.Is(err, fail) || len(pd.got) != 2 {
		t.Fatalf("%v after %v", err, pd.got)
	}
	return err
}

func TestChunkSize(t *testing.T) {
	for _, c := range []struct{ total, most, want uint64 }{
		{1, 0, 1 << 30},
		{1 << 40, 0, 1 << 30},
		{1<<40 + 1, 0, 2 << 30},
		{5 << 40, 0, 8 << 30},
		{1 << 62, 0, 1 << 52},
		{^uint64(0), 0, 1 << 54},
		{1 << 40, 1<<31 - 1, 1 << 30},
		{1 << 40, 1<<29 + 5, 1 << 29},
		{1 << 42, 1 << 30, 1 << 30},
		{1<<42 + 1, 1 << 30, 0},
		{1 << 20, MinChunk, MinChunk},
		{1 << 20, MinChunk - 1, 0},
	} {
		got, err := chunkSize(c.total, &device{verbstest.NewFabric(verbstest.Auto).Device("dev0"), verbs.Caps{MaxRegion: c.most}})
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%d bytes, at most %d: %d, %v; want %d", c.total, c.most, got, err, c.want)
		}
	}
}

// Every byte is found in the chunk that holds it, also after a growth, which registers no more than it must.
func TestChunks_LocalAndExtend(t *testing.T) {
	cfg, pd := newConfig(t, verbs.Caps{OwnStores: true, MaxRegion: MinChunk + 1})
	mem := make([]byte, 8*MinChunk)
	c := mustRegister(t, cfg, mem[:2*MinChunk+100], pmem.Heap)
	find := func() {
		t.Helper()
		size := c.Total()
		for _, off := range []uint64{4096, MinChunk - 1, MinChunk, 2*MinChunk - 1, 2 * MinChunk, 2*MinChunk + 99, size - 1} {
			n := min(c.Rest(off), size-off)
			s := c.Local(off, n)
			if b := s.MR.Bytes()[s.Off : s.Off+n]; &b[0] != &mem[off] {
				t.Errorf("pool of %d bytes: offset %d is not where it should be", size, off)
			}
			if n != size-off && (off+n)%c.Size() != 0 {
				t.Errorf("%d bytes from %d on do not end with a chunk", n, off)
			}
		}
	}
	find()
	if c.Size() != MinChunk || len(c.Regions()) != 3 {
		t.Fatalf("%d chunks of %d", len(c.Regions()), c.Size())
	}
	old := c.Regions()[2]
	pd.got = nil
	if err := c.Extend(mem[:5*MinChunk], pmem.Heap, nil); err != nil {
		t.Fatal(err)
	}
	if len(pd.got) != 3 || len(c.Regions()) != 5 || len(old.Bytes()) != 100 {
		t.Errorf("growth registered %v; %d chunks", pd.got, len(c.Regions()))
	}
	find()
	pd.got = nil
	if err := c.Extend(mem[:7*MinChunk], pmem.Heap, nil); err != nil || len(pd.got) != 2 {
		t.Errorf("growth from a whole chunk on registered %v: %v", pd.got, err)
	}
	find()
	before := c.Regions()
	pd.fail, pd.left = unix.ENOMEM, 0
	if err := c.Extend(mem, pmem.Heap, nil); !errors.Is(err, unix.ENOMEM) || len(c.Regions()) != len(before) || c.Total() != 7*MinChunk {
		t.Errorf("failed growth: %v, %d bytes", err, c.Total())
	}
	pd.fail, pd.got = nil, nil
	bad, older := errors.New("it cannot be used"), c.Local(6*MinChunk, 8)
	err := c.Extend(mem, pmem.Heap, func(at func(off, n uint64) verbs.SGE) error {
		s, last := at(7*MinChunk, 8), at(6*MinChunk, 8)
		if &s.MR.Bytes()[s.Off] != &mem[7*MinChunk] || last != older || c.Total() != 7*MinChunk {
			t.Errorf("what is tried is %+v and %+v, others see %d bytes", s, last, c.Total())
		}
		return bad
	})
	if !errors.Is(err, bad) || len(pd.got) != 1 || len(c.Regions()) != len(before) || c.Total() != 7*MinChunk {
		t.Errorf("refused growth: %v, %d bytes, registered %v", err, c.Total(), pd.got)
	}
	if err := c.Extend(make([]byte, 8*MinChunk), pmem.Heap, nil); err == nil || c.Total() != 7*MinChunk {
		t.Error("memory that stands elsewhere was taken")
	}
	if err := c.Extend(mem[:4096], pmem.Heap, nil); err != nil || c.Total() != 7*MinChunk {
		t.Errorf("growth to less: %v, %d bytes", err, c.Total())
	}
	find()
}

func TestRegister_NothingAboveTheHeader(t *testing.T) {
	cfg, _ := newConfig(t, verbs.Caps{OwnStores: true})
	if _, err := Register(cfg, make([]byte, 4096), pmem.Heap); err == nil {
		t.Error("a pool of a header alone was registered")
	}
}

// A process that may not pin the pool is told so before anything is registered, and one that may is not.
func TestCheckPin(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 1 << 20, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)

	cfg, pd := newConfig(t, verbs.Caps{OnDemand: true})
	errs := make(chan error, 4)
	go func() {
		// Without the capability, on a thread that ends with this goroutine.
		runtime.LockOSThread()
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		errs <- unix.Capset(&h, &none[0])
		_, err := Register(cfg, make([]byte, 2<<20), pmem.Heap)
		errs <- err
		for _, k := range []pmem.Kind{pmem.FSDAX, pmem.Heap} {
			c, err := Register(cfg, make([]byte, 1<<20), k)
			if err == nil {
				err = c.Close()
			}
			errs <- err
		}
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	var limit *LimitError
	if err := <-errs; !errors.As(err, &limit) || limit.Need != 2<<20-4096 || limit.Limit != 1<<20 {
		t.Errorf("a pool above the limit: %v", err)
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if len(pd.got) != 2 {
		t.Errorf("registered %v", pd.got)
	}
	// The other threads keep their capabilities, so what they may pin does not depend on the limit.
	mustRegister(t, cfg, make([]byte, 2<<20), pmem.Heap)
}

// A long registration tells how far it is.
func TestRegister_LogsProgress(t *testing.T) {
	cfg, _ := newConfig(t, verbs.Caps{OwnStores: true, MaxRegion: MinChunk})
	log, hook := logtest.NewNullLogger()
	cfg.Log = log
	c := mustRegister(t, cfg, make([]byte, 3*MinChunk), pmem.Heap)
	if n := len(hook.AllEntries()); n != 0 {
		t.Errorf("%d messages of a short registration", n)
	}
	p := progress{cfg: &c.cfg, size: 3 * MinChunk, last: time.Now().Add(-logEvery)}
	p.reached(MinChunk)
	p.reached(2 * MinChunk)
	p.reached(3 * MinChunk)
	var got []string
	for _, e := range hook.AllEntries() {
		got = append(got, e.Message)
	}
	if len(got) != 2 || !strings.Contains(got[0], "65536 of 196608 bytes") || !strings.Contains(got[1], "196608 of 196608 bytes") {
		t.Errorf("messages %q", got)
	}
}
