package region

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	usualChunk = 1 << 30
	// MinChunk is the least size of a chunk in bytes.
	MinChunk = 64 << 10
	// MaxChunks is the most chunks of a pool. What is registered first takes a quarter of them, the rest is room to grow.
	MaxChunks = 4096
	// logEvery is how often a long registration tells how far it is.
	logEvery = 5 * time.Second
)

// Config says what is registered, and how.
type Config struct {
	Device verbs.Device
	PD     verbs.PD
	Access verbs.Access // rights of the peer and of local sinks; how the pages are held follows from the kind
	First  uint64       // bytes at the start that stay out of reach, less than MinChunk
	Log    logrus.FieldLogger
}

// Chunks is a pool's registered memory. Extend and Close are called by one goroutine at a time; the others may run beside Extend, and see
// the pool as it was or as it is.
type Chunks struct {
	cfg   Config
	shift uint
	pool  atomic.Pointer[pool]
	older []verbs.MR // of chunks that have grown since
}

// pool is what is registered of size bytes. It is never changed, but replaced by Extend.
type pool struct {
	size uint64
	mrs  []verbs.MR
	at   *byte // byte 0
}

// Register makes mem, which is of kind k, reachable from First on. The caller keeps it mapped until Close. Errors that callers decide
// by: *KindError, *LimitError.
func Register(cfg Config, mem []byte, k pmem.Kind) (*Chunks, error) {
	if cfg.First >= MinChunk || uint64(len(mem)) <= cfg.First {
		return nil, fmt.Errorf("region: %d bytes from %d on leave nothing to register", len(mem), cfg.First)
	}
	size, err := chunkSize(uint64(len(mem)), cfg.Device)
	if err != nil {
		return nil, err
	}
	c := &Chunks{cfg: cfg, shift: uint(bits.TrailingZeros64(size))}
	c.pool.Store(&pool{})
	if err := c.Extend(mem, k, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// chunkSize is the usual size, or a larger one if there would be too many chunks, but no more than a region of the device.
func chunkSize(total uint64, dev verbs.Device) (uint64, error) {
	size := uint64(usualChunk)
	for size < 1<<62 && (total-1)/size >= MaxChunks/4 {
		size *= 2
	}
	if most := dev.Caps().MaxRegion; most != 0 && most < size {
		size = 1 << (bits.Len64(most) - 1)
	}
	if size < MinChunk || (total-1)/size >= MaxChunks {
		return 0, fmt.Errorf("device %s registers at most %d bytes at a time, of which a pool of %d bytes would take more than %d pieces: use another device, or a smaller pool",
			dev.Name(), dev.Caps().MaxRegion, total, MaxChunks)
	}
	return size, nil
}

// Extend makes mem reachable, which begins where the memory did before and is longer. Only what is new is registered, with the whole of the
// last chunk. The older registration of that chunk stays good until Close, since work requests under way may name it. Before anybody else
// sees what is new, prove may try it and refuse it; at is Local as it will be. It may be nil. After an error nothing has changed.
func (c *Chunks) Extend(mem []byte, k pmem.Kind, prove func(at func(off, n uint64) verbs.SGE) error) error {
	access, err := rights(c.cfg.Device, k, c.cfg.Access)
	if err != nil {
		return err
	}
	size, old := uint64(len(mem)), c.pool.Load()
	if size <= old.size {
		return nil
	}
	if old.at != nil && old.at != &mem[0] {
		return fmt.Errorf("region: a pool of %d bytes cannot grow to %d that stand elsewhere", old.size, size)
	}
	if (size-1)>>c.shift >= MaxChunks {
		return fmt.Errorf("region: a pool of %d bytes takes more than %d chunks of %d: mount it anew, which makes larger ones", size, MaxChunks, c.Size())
	}
	keep := old.size >> c.shift // chunks that are full
	lo := max(keep<<c.shift, c.cfg.First)
	if pins(c.cfg.Device, access) {
		if err := checkPin(size - lo); err != nil {
			return fmt.Errorf("device %s: %w", c.cfg.Device.Name(), err)
		}
	}
	added, err := c.register(mem, lo, access)
	if err != nil {
		return errors.Join(fmt.Errorf("%w (%v)", err, k), deregister(&added))
	}
	next := &pool{size, append(old.mrs[:keep:keep], added...), &mem[0]}
	if prove != nil {
		if err := prove(func(off, n uint64) verbs.SGE { return c.at(next, off, n) }); err != nil {
			return errors.Join(err, deregister(&added))
		}
	}
	c.older = append(c.older, old.mrs[keep:]...)
	c.pool.Store(next)
	return nil
}

// register registers mem from lo on, chunk by chunk.
func (c *Chunks) register(mem []byte, lo uint64, a verbs.Access) (mrs []verbs.MR, err error) {
	p := progress{cfg: &c.cfg, size: uint64(len(mem)), last: time.Now()}
	for lo < p.size {
		hi := lo + min(c.Rest(lo), p.size-lo)
		mr, err := c.cfg.PD.RegisterMR(mem[lo:hi], a)
		if err != nil {
			return mrs, fmt.Errorf("device %s: registering bytes %d to %d of the pool: %w", c.cfg.Device.Name(), lo, hi, err)
		}
		mrs, lo = append(mrs, mr), hi
		p.reached(lo)
	}
	return mrs, nil
}

// progress logs how far a long registration is.
type progress struct {
	cfg  *Config
	size uint64 // bytes of the pool
	last time.Time
	told bool
}

// reached says that off bytes of the pool are registered.
func (p *progress) reached(off uint64) {
	if now := time.Now(); now.Sub(p.last) >= logEvery || p.told && off == p.size {
		p.last, p.told = now, true
		p.cfg.Log.Infof("device %s: %d of %d bytes of the pool are registered", p.cfg.Device.Name(), off, p.size)
	}
}

// Size is that of a chunk in bytes, a power of two.
func (c *Chunks) Size() uint64 { return 1 << c.shift }

// Total is the size of the pool in bytes.
func (c *Chunks) Total() uint64 { return c.pool.Load().size }

// Regions are the chunks in order. The first one begins at First.
func (c *Chunks) Regions() []verbs.MR { return c.pool.Load().mrs }

// Rest is how many bytes from pool offset off on are in one chunk, at most.
func (c *Chunks) Rest(off uint64) uint64 { return c.Size() - off&(c.Size()-1) }

// Local is the n bytes at pool offset off, which lie in one chunk.
func (c *Chunks) Local(off, n uint64) verbs.SGE { return c.at(c.pool.Load(), off, n) }

func (c *Chunks) at(p *pool, off, n uint64) verbs.SGE {
	i := off >> c.shift
	off &= c.Size() - 1
	if i == 0 {
		off -= c.cfg.First
	}
	return verbs.SGE{MR: p.mrs[i], Off: off, Len: n}
}

// Close returns when the memory is out of reach. After an error it may be called again.
func (c *Chunks) Close() error {
	p := *c.pool.Load()
	err := deregister(&p.mrs)
	c.pool.Store(&p)
	return errors.Join(err, deregister(&c.older))
}

// deregister takes regions off the end of the list until it is empty or one fails.
func deregister(mrs *[]verbs.MR) error {
	for n := len(*mrs) - 1; n >= 0; n-- {
		if err := (*mrs)[n].Deregister(); err != nil {
			return fmt.Errorf("deregister the pool's memory: %w", err)
		}
		*mrs = (*mrs)[:n]
	}
	return nil
}
