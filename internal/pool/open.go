package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

var (
	// ErrNotPool: the parts hold something else.
	ErrNotPool = errors.New("not a pmemfs pool")
	// ErrPoolSet: the pool set file names other parts than the pool has.
	ErrPoolSet = errors.New("correct the pool set")
	// ErrVersion: another version of the program made the pool.
	ErrVersion = errors.New("pool format is not supported")
)

// major is the version of the format that this package reads and writes; no feature bits are known to it.
const major = 1

// OpenOptions of Open.
type OpenOptions struct {
	// Durability that the caller will promise. Zero keeps the class that the pool has.
	Durability Durability
	ReadOnly   bool
	// Private is ReadOnly with a region that can be stored to, copy-on-write: nothing of it reaches the parts. For those who look
	// at a pool and need to recover it in memory.
	Private bool
	// Role of this process, one word for those who find the pool in use: "mount", "target".
	Role string
	// Wait bounds the wait for the end of a dying process that had the pool; zero means DefaultWait.
	Wait time.Duration
	// EADR as in pmem.Options.
	EADR bool
	// AnySignature also opens pools of other users of the replicate API, whose version and feature bits then mean nothing here.
	AnySignature bool
}

// Open locks, maps and checks an existing pool. Whose pool it is (the UUID) is for the caller to judge.
//
// Errors that callers decide by: fs.ErrNotExist, *InUseError, *pmem.SizeError, ErrNotPool, ErrVersion, *poolset.CorruptError,
// ErrDurability.
func Open(set *poolset.Set, opt OpenOptions) (*Pool, error) {
	if _, err := partsOf(set); err != nil { // before the lock, which makes a file
		return nil, err
	}
	l, err := acquire(set, opt.Role, orDefault(opt.Wait))
	if err != nil {
		return nil, err
	}
	p, err := openParts(set, opt)
	if err != nil {
		return nil, errors.Join(err, l.abandon())
	}
	p.locks = l
	return p, nil
}

// openParts maps the parts and loads what they hold. The holder before may have grown the pool as its last act, so they are looked up under the lock.
func openParts(set *poolset.Set, opt OpenOptions) (*Pool, error) {
	parts, err := partsOf(set)
	if err != nil {
		return nil, err
	}
	r, err := pmem.OpenFiles(parts, pmem.Options{ReadOnly: opt.ReadOnly, Private: opt.Private, EADR: opt.EADR})
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", set.File, err)
	}
	p := &Pool{set: set, region: r, parts: parts, readOnly: opt.ReadOnly || opt.Private}
	if err := p.load(opt); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return p, nil
}

func orDefault(wait time.Duration) time.Duration {
	if wait == 0 {
		return DefaultWait
	}
	return wait
}

// load reads header and state, makes sure that all that was read is persistent, and completes what a crash cut short.
func (p *Pool) load(opt OpenOptions) error {
	block := make([]byte, poolset.BlockSize)
	if err := pmem.CopyOut(block, p.region.Bytes()[:poolset.BlockSize]); err != nil {
		return fmt.Errorf("pool %s: read header: %w", p.set.File, err)
	}
	info, err := decode(p.set, block, uint64(len(p.region.Bytes())))
	if err != nil {
		return err
	}
	if !opt.AnySignature {
		if err := checkHeader(p.set, &info.Header, p.readOnly); err != nil {
			return err
		}
	}
	p.header, p.state, p.slot = info.Header, info.stored, info.slot
	p.flaws = poolset.Flaws(block, info.Header.PoolUUID)
	if opt.Private { // promises nothing, and builds on nothing that a cache may lose
		p.state = info.State
		return nil
	}
	class := opt.Durability
	if class == 0 {
		class = classOf(p.state)
	}
	if err := class.check(p.set.File, p.region.Promise()); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		p.Distrust(err)
		return fmt.Errorf("pool %s: %w", p.set.File, err)
	}
	if p.readOnly {
		p.state = info.State
		return nil
	}
	if info.torn {
		if err := writeHeader(p.region, p.header, 0); err != nil {
			return fmt.Errorf("pool %s: complete header: %w", p.set.File, err)
		}
	}
	return p.enter(class, info.State)
}

// settle makes persistent what an earlier process stored and never flushed.
func (p *Pool) settle() error {
	if mutant.On(mutant.UnflushedOpen) {
		return nil
	}
	return p.region.Sync()
}

// enter persists what the boot and the class of this Open change in the state, before the caller can trust or change a byte.
func (p *Pool) enter(class Durability, effective poolset.State) error {
	next, err := withClass(effective, class)
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.set.File, err)
	}
	if next == p.state {
		return nil
	}
	return p.SetState(func(s *poolset.State) { *s = next })
}

// withClass enters the durability class into s, with the id of this boot for class memory.
func withClass(s poolset.State, class Durability) (poolset.State, error) {
	if class == Media {
		s.Flags &^= poolset.Memory
		s.BootID = poolset.UUID{}
		return s, nil
	}
	boot, err := bootID()
	s.Flags |= poolset.Memory
	s.BootID = boot
	return s, err
}

func classOf(s poolset.State) Durability {
	if s.Flags&poolset.Memory != 0 {
		return Memory
	}
	return Media
}

// checkHeader refuses a pool that this version must not open.
func checkHeader(set *poolset.Set, h *poolset.Header, readOnly bool) error {
	const advice = "use the version of pmemfs that made it"
	switch {
	case h.Signature != poolset.Signature:
		return fmt.Errorf("pool %s: %w: expected signature %q at offset 0, found %q: it belongs to another program",
			set.File, ErrNotPool, poolset.Signature, h.Signature)
	case h.Major != major:
		return fmt.Errorf("pool %s: %w: expected version %d, found %d: %s", set.File, ErrVersion, major, h.Major, advice)
	case h.Incompat != 0:
		return fmt.Errorf("pool %s: %w: unknown incompatible features %#x: %s", set.File, ErrVersion, h.Incompat, advice)
	case h.ROCompat != 0 && !readOnly:
		return fmt.Errorf("pool %s: %w for writing: unknown features %#x: open it read-only, or %s", set.File, ErrVersion, h.ROCompat, advice)
	}
	return nil
}
