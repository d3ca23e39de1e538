package crash

import (
	"github.com/pmemfs/pmemfs/internal/platform"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// This file holds the RDMA devices, and what they do to the persistence of bytes.

// Device is the kind of RDMA device of all machines: where inbound bytes go, and what makes them persistent there.
type Device uint8

const (
	Software Device = iota // a CPU stores them, into its cache
	Caching                // a device does, into the CPU's cache
	Direct                 // a device does, past the cache: a READ makes them persistent
	Flushing               // as Caching; and it has FLUSH and ATOMIC_WRITE
)

// methods are those of persistency without a CPU of the target, each with what it needs: APM with a device that goes past the cache; APM with a cache
// that is persistent; FLUSH.
var methods = []Config{
	{Method: wire.APM, Device: Direct, Mode: pmemtest.Lines},
	{Method: wire.APM, Device: Software, Mode: pmemtest.EADR},
	{Method: wire.FLUSH, Device: Flushing, Mode: pmemtest.Lines},
}

// by is the configuration with method number n.
func (cfg Config) by(n uint64) Config {
	m := &methods[n%uint64(len(methods))]
	cfg.Method, cfg.Device, cfg.Mode = m.Method, m.Device, m.Mode
	return cfg
}

// silent is a configuration in which the target's CPU has no part in a drain, with one of the methods. The local copy, to which that makes no difference,
// is not judged.
func (cfg Config) silent(n uint64) Config {
	cfg = cfg.by(n)
	cfg.Blind = "local copy"
	return cfg
}

// newFabric makes a fabric of devices as configured. Where the target's CPU has no part in a drain, work requests may overtake what does not hold them back.
func (w *World) newFabric() {
	f := verbstest.NewFabric(verbstest.Stepped)
	w.fabric = f
	d := w.cfg.Device
	if d != Software {
		f.Hardware()
	}
	if d == Flushing {
		f.Native()
	}
	if d != Software || w.cfg.Mode == pmemtest.EADR {
		f.Overtake(w.rnd.IntN)
		f.Persist(d == Direct || w.cfg.Mode == pmemtest.EADR, w.arrived)
	}
	if w.cfg.Unordered {
		f.Reorder(w.rnd.IntN)
	}
	if w.cfg.Early {
		f.Early()
	}
}

// arrived: bytes that a device placed are persistent now. Those of a copy that was replaced meanwhile are of no interest.
func (w *World) arrived(b []byte) {
	for _, h := range []*host{w.other, w.primary} {
		if h != nil && h.region.Arrived(b) {
			return
		}
	}
}

// platform is what the administrator declares of h: the truth.
func (w *World) platform(h *host) *platform.Platform {
	var p platform.Platform
	p.EADR = w.cfg.Mode == pmemtest.EADR
	if w.cfg.Device == Direct {
		p.Inbound = []string{h.dev.Name()}
	}
	return &p
}
