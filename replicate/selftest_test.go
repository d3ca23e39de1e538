package replicate

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/region"
)

// claimSpoilt claims a target whose grant is spoilt.
func claimSpoilt(t *testing.T, rig rig, spoil func(*wire.Grant)) error {
	t.Helper()
	p := newPair(t, rig, time.Second)
	p.target.spoil = spoil
	return p.Claim(t.Context(), 7)
}

// A chunk that the devices cannot use is named before anything is written, on either side.
func TestSelfTest_NamesTheChunk(t *testing.T) {
	providers(t, func(t *testing.T, rig rig) {
		err := claimSpoilt(t, rig, func(g *wire.Grant) { g.Chunks[5].RKey = 0xffffff00 })
		for _, want := range []string{"the target's chunk 5 at pool offset 327680", "READ", "protection error", "Device DAX"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		if err := claimSpoilt(t, rig, func(g *wire.Grant) { g.Scratch.RKey = 0xffffff00 }); err == nil ||
			!strings.Contains(err.Error(), "the local chunk 0 at pool offset 4096 ") {
			t.Errorf("no scratch memory: %v", err)
		}
		if err := claimSpoilt(t, rig, func(g *wire.Grant) { g.Scratch.Len = 7 }); !errors.Is(err, wire.StatusBadRequest) {
			t.Errorf("little scratch memory: %v", err)
		}
	})
}

// astray is a device that maps what is registered when it is told so to other memory, which may have no bytes at all.
type astray struct {
	verbs.Device
	left  atomic.Int32 // registrations until then
	empty bool
}

func (d *astray) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return &astrayPD{pd, d}, err
}

type astrayPD struct {
	verbs.PD
	dev *astray
}

func (p *astrayPD) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if p.dev.left.Add(-1) != 0 {
		return p.PD.RegisterMR(b, a)
	}
	mr, err := p.PD.RegisterMR(bytes.Repeat([]byte{0x55}, len(b)), a)
	return astrayMR{mr, b, p.dev.empty}, err
}

type astrayMR struct {
	verbs.MR
	b     []byte
	empty bool
}

func (m astrayMR) Bytes() []byte { return m.b }

// astrayQP hands the region below to the device.
func (p *astrayPD) CreateQP(attr verbs.QPAttr) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(attr)
	return astrayQP{qp}, err
}

type astrayQP struct{ verbs.QP }

func (q astrayQP) PostSend(wrs []verbs.SendWR) error {
	for i := range wrs {
		if m, ok := wrs[i].Local.MR.(astrayMR); ok && m.empty {
			wrs[i].Local = verbs.SGE{}
		} else if ok {
			wrs[i].Local.MR = m.MR
		}
	}
	return q.QP.PostSend(wrs)
}

func (d *astray) Connect(ctx context.Context, qp verbs.QP, addr string, private []byte) ([]byte, error) {
	return d.Device.Connect(ctx, qp.(astrayQP).QP, addr, private)
}

// A device that sends other bytes than those of the pool is found out.
func TestSelfTest_OtherMemory(t *testing.T) {
	providers(t, func(t *testing.T, below rig) {
		err := claimSpoilt(t, func(t testing.TB) (verbs.Device, verbs.Device, string) {
			a, b, at := below(t)
			dev := &astray{Device: a}
			dev.left.Store(3)
			return dev, b, at
		}, nil)
		if want := "the local chunk 2 at pool offset 524288 was registered and cannot be used: 0x5555555555555555 arrived where 0x0 was sent"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	})
}

// The test of a target changes no byte of its pool.
func TestSelfTest_ChangesNothing(t *testing.T) {
	methods(t, func(t *testing.T, rig rig, m wire.Method) {
		p := newPairBy(t, rig, m, 5*time.Second)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		fill(p.target.mem, rand.New(rand.NewPCG(seed, 0)))
		before := bytes.Clone(p.target.mem)
		must(t, p.Claim(t.Context(), 7))
		p.target.hangUp()
		must(t, p.Close(context.Background()))
		if !bytes.Equal(p.target.memory(), before) {
			t.Error("the pool of the target has changed")
		}
	})
}

// A target that cannot be flushed is found out before anything depends on it.
func TestSelfTest_NoFlush(t *testing.T) {
	p := newPairBy(t, nativeRig, wire.FLUSH, time.Second)
	p.target.access = 0
	err := p.Claim(t.Context(), 7)
	for _, want := range []string{"the target's chunk 0 at pool offset 4096", "FLUSH", "protection error"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestStarts(t *testing.T) {
	for _, c := range []struct {
		from, size uint64
		want       []uint64
	}{
		{0, 4096, nil}, {0, 8192, []uint64{4096}}, {0, region.MinChunk, []uint64{4096}}, {0, region.MinChunk + 4096, []uint64{4096, region.MinChunk}},
		{0, 3 * region.MinChunk, []uint64{4096, region.MinChunk, 2 * region.MinChunk}},
		{8192, 8192, nil}, {8192, region.MinChunk, []uint64{8192}}, {region.MinChunk, 2*region.MinChunk + 8, []uint64{region.MinChunk, 2 * region.MinChunk}},
		{region.MinChunk + 8192, 2*region.MinChunk + 7, []uint64{region.MinChunk + 8192}}, {math.MaxUint64 - 7, math.MaxUint64, nil},
	} {
		if got := starts(c.from, c.size, region.MinChunk); !slices.Equal(got, c.want) {
			t.Errorf("%d to %d bytes: %v, want %v", c.from, c.size, got, c.want)
		}
	}
}
