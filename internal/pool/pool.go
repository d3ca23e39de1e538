package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// ErrReadOnly: the pool was opened read-only.
var ErrReadOnly = errors.New("pool is open read-only")

// Pool is one opened copy of a pool.
type Pool struct {
	set      *poolset.Set
	region   pmem.Region
	readOnly bool
	flaws    error // as Open found it

	growing sync.Mutex  // held by the one Grow under way, and by Close; taken before mu
	parts   []pmem.Part // mapped; protected by growing. Nil if the region is not made of files

	mu     sync.Mutex // protects all below, and the stores to block 0
	locks  locks      // a Grow adds to them
	header poolset.Header
	state  poolset.State
	slot   int // slot of state
	closed bool
}

// Region is the mapped pool. It belongs to the Pool and is valid until Close.
func (p *Pool) Region() pmem.Region { return p.region }

// Flaws is what Open found damaged in header and state and could make up for, see poolset.Flaws.
func (p *Pool) Flaws() error { return p.flaws }

// Set is the pool set that the pool was opened with.
func (p *Pool) Set() *poolset.Set { return p.set }

// Place says in words where a pool offset lies: the part and the offset in it.
func (p *Pool) Place(off uint64) string {
	if parts, ok := p.region.(interface{ PartAt(uint64) (string, uint64) }); ok && off < uint64(len(p.region.Bytes())) {
		path, at := parts.PartAt(off)
		return fmt.Sprintf("%s, offset %d", path, at)
	}
	return fmt.Sprintf("pool offset %d", off)
}

// ReadAt fills b with the bytes from a pool offset on.
func (p *Pool) ReadAt(off uint64, b []byte) error {
	bytes := p.region.Bytes()
	if off > uint64(len(bytes)) || uint64(len(b)) > uint64(len(bytes))-off {
		return fmt.Errorf("pool %s: read of %d bytes at offset %d: the pool has %d", p.set.File, len(b), off, len(bytes))
	}
	return pmem.CopyOut(b, bytes[off:off+uint64(len(b))])
}

// Leave announces that this process is about to close the pool: whoever opens it meanwhile waits instead of finding it in use.
func (p *Pool) Leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.locks.leave(); err != nil {
		return fmt.Errorf("pool %s: lock: %w", p.set.File, err)
	}
	return nil
}

// Header returns the pool header.
func (p *Pool) Header() poolset.Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.header
}

// State returns the current state.
func (p *Pool) State() poolset.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// SetState lets change edit a copy of the state and makes the result persistent and current. After an error the state is
// the old one as far as this process goes, while a later Open may find the old one or the new one.
func (p *Pool) SetState(change func(*poolset.State)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mayWrite(); err != nil {
		return err
	}
	next := p.state
	change(&next)
	next.Seq = p.state.Seq + 1
	slot := 1 - p.slot
	if mutant.On(mutant.StateInPlace) {
		slot = p.slot
	}
	if err := writeState(p.region, next, slot, p.header.PoolUUID); err != nil {
		return fmt.Errorf("pool %s: write state %d: %w", p.set.File, next.Seq, err)
	}
	p.state, p.slot = next, slot
	return nil
}

// SetAttr replaces the attributes in the header and makes them persistent. The pool UUID cannot change, since all
// checksums of the pool are seeded with it. A zero copy id keeps the old one.
//
// Order of durable steps: 1 header copy; 2 header. A crash before 1 leaves the old header, after it the new one is whole in
// at least one place.
func (p *Pool) SetAttr(a poolset.Attr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mayWrite(); err != nil {
		return err
	}
	if a.PoolUUID != p.header.PoolUUID {
		return fmt.Errorf("pool %s: the UUID of a pool cannot change from %v to %v", p.set.File, p.header.PoolUUID, a.PoolUUID)
	}
	next := p.header
	next.Attr = a
	if a.CopyID.IsZero() {
		next.CopyID = p.header.CopyID
	}
	return p.setHeader(next)
}

// setHeader makes next the header, the copy first. Caller holds mu.
func (p *Pool) setHeader(next poolset.Header) error {
	for _, off := range []uint64{poolset.HeaderCopyOff, 0} {
		if err := writeHeader(p.region, next, off); err != nil {
			return fmt.Errorf("pool %s: write header: %w", p.set.File, err)
		}
	}
	p.header = next
	return nil
}

func (p *Pool) mayWrite() error {
	switch {
	case p.closed:
		return fmt.Errorf("pool %s: %w", p.set.File, fs.ErrClosed)
	case p.readOnly:
		return fmt.Errorf("pool %s: %w", p.set.File, ErrReadOnly)
	}
	return nil
}

// Close unmaps the pool and then frees its lock. Nobody may use the region any more. A second Close, and a change after
// the first, give an error that wraps fs.ErrClosed. A Grow under way ends first: it maps files at addresses that are the pool's.
func (p *Pool) Close() error {
	p.growing.Lock()
	defer p.growing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("pool %s: %w", p.set.File, fs.ErrClosed)
	}
	p.closed = true
	if err := errors.Join(p.region.Close(), p.locks.release()); err != nil {
		return fmt.Errorf("pool %s: close: %w", p.set.File, err)
	}
	return nil
}

// writeState makes s persistent in a slot that is not the current one.
func writeState(r pmem.Region, s poolset.State, slot int, pool poolset.UUID) error {
	var b [poolset.StateLen]byte
	s.Encode(b[:], pool)
	return persist(r, uint64(poolset.StateOff+slot*poolset.StateLen), b[:])
}

// writeHeader makes h persistent at off.
func writeHeader(r pmem.Region, h poolset.Header, off uint64) error {
	var b [poolset.HeaderLen]byte
	h.Encode(b[:])
	return persist(r, off, b[:])
}

func persist(r pmem.Region, off uint64, b []byte) error {
	if err := pmem.Copy(r.Bytes()[off:], b); err != nil {
		return err
	}
	return pmem.Drain(r, []pmem.Range{{Off: off, Len: uint64(len(b))}}, pmem.Seal{})
}
