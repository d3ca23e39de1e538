package iwarp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// Options of a device. The zero value is usable.
type Options struct {
	// CRC asks for a CRC-32C of every frame. TCP's own checksum is weak, but a CRC costs a copy of all that is sent
	// and a second look at all that arrives. A peer that asks for it gets it in any case.
	CRC bool
	// IRD and ORD are the most Reads that the peer, and this side, may have outstanding on a queue pair: 16 if 0, 128 at most.
	IRD, ORD int
	// SetupTimeout bounds each step of the connection set-up: 10 s if 0.
	SetupTimeout time.Duration
	// WriteTimeout is how long a peer may take nothing before the connection is given up: 10 s if 0.
	WriteTimeout time.Duration
	// Revision1 connects with MPA revision 1, for peers that do not know revision 2.
	Revision1 bool
}

const (
	defaultDepth   = 16
	maxReadDepth   = 128
	defaultTimeout = 10 * time.Second
)

func (o *Options) complete() error {
	for _, d := range []*int{&o.IRD, &o.ORD} {
		if *d == 0 {
			*d = defaultDepth
		}
		if *d < 0 || *d > maxReadDepth {
			return fmt.Errorf("iwarp: IRD and ORD must be between 1 and %d, not %d", maxReadDepth, *d)
		}
	}
	for _, t := range []*time.Duration{&o.SetupTimeout, &o.WriteTimeout} {
		if *t == 0 {
			*t = defaultTimeout
		}
		if *t < time.Millisecond {
			return fmt.Errorf("iwarp: a timeout of %v is too short", *t)
		}
	}
	return nil
}

// device implements verbs.Device.
type device struct {
	opt  Options
	bad  error // of the options, reported by AllocPD
	refs atomic.Int64

	mu        sync.RWMutex // protects the following
	regions   map[uint32]*mr
	lastIndex uint32
}

// New makes a device. Options out of range are reported by its first call that can fail.
func New(o Options) verbs.Device {
	d := &device{opt: o, regions: make(map[uint32]*mr)}
	d.bad = d.opt.complete()
	return d
}

func (d *device) Name() string { return "iwarp" }

// Caps: no inline data, since nothing is gained: a source that goes out in PostSend was copied by the socket, and one that waits behind a fence
// or for the peer would need a copy for each place of the queue.
func (d *device) Caps() verbs.Caps {
	return verbs.Caps{OrderedPlace: true, CPUPlaced: true, OwnStores: true, MaxRegion: maxRegion}
}

func (d *device) AllocPD() (verbs.PD, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	d.refs.Add(1)
	return &pd{dev: d}, nil
}

func (d *device) CreateCQ(depth int) (verbs.CQ, error) {
	return cq.New(depth)
}

// Close fails while protection domains or listeners are left.
func (d *device) Close() error {
	if n := d.refs.Load(); n != 0 {
		return fmt.Errorf("iwarp: close device: %d protection domains or listeners are still open", n)
	}
	return nil
}

// pd implements verbs.PD.
type pd struct {
	dev    *device
	refs   atomic.Int64 // regions and queue pairs
	closed atomic.Bool
}

func (p *pd) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if len(b) == 0 || len(b) > maxRegion {
		return nil, fmt.Errorf("iwarp: register %d bytes: a region has 1 to %d", len(b), uint64(maxRegion))
	}
	if a&(verbs.RemoteFlush|verbs.OnDemand) != 0 {
		return nil, fmt.Errorf("iwarp: register for FLUSH or without pinning: %w", verbs.ErrUnsupported)
	}
	m, err := p.dev.register(p, b, a)
	if err != nil {
		return nil, err
	}
	p.refs.Add(1)
	return m, nil
}

// maxRegion keeps the last tagged offset of every region below 1<<63.
const maxRegion = 1 << 62

func (p *pd) CreateQP(attr verbs.QPAttr) (verbs.QP, error) { return newQP(p, attr) }

// Close fails while regions or queue pairs are left.
func (p *pd) Close() error {
	if n := p.refs.Load(); n != 0 {
		return fmt.Errorf("iwarp: close protection domain: %d regions or queue pairs are still open", n)
	}
	if !p.closed.Swap(true) {
		p.dev.refs.Add(-1)
	}
	return nil
}
