package iwarp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/verbs"
)

// errGone is the failure of a placement into a region that was deregistered.
var errGone = errors.New("iwarp: the memory region was deregistered while a work request used it")

// mr is a registered region. The steering tag is a 24-bit index, which is not used again before all others were, and a random key byte.
type mr struct {
	pd     *pd
	mem    []byte
	access verbs.Access
	stag   uint32
	base   uint64 // tagged offset of byte 0

	// users counts the copies and system calls that touch mem now; the dead bit refuses new ones.
	users atomic.Uint64
	idle  chan struct{} // a token when the last user of a dead region leaves
}

const deadBit = 1 << 63

func (m *mr) Bytes() []byte { return m.mem }
func (m *mr) Addr() uint64  { return m.base }
func (m *mr) RKey() uint32  { return m.stag }

// acquire makes the caller a user of the memory, unless the region is being deregistered.
func (m *mr) acquire() bool {
	if m.users.Add(1)&deadBit != 0 {
		m.release()
		return false
	}
	return true
}

func (m *mr) release() {
	if m.users.Add(^uint64(0)) == deadBit {
		select {
		case m.idle <- struct{}{}:
		default: // one token is enough: Deregister looks again
		}
	}
}

// Deregister returns when nobody uses the memory any more. A batch that is being sent from it counts as a use, so this can
// take as long as Options.WriteTimeout with a peer that takes nothing; closing the queue pair first avoids that.
func (m *mr) Deregister() error {
	if m.users.Or(deadBit)&deadBit != 0 {
		return fmt.Errorf("iwarp: deregister region %#x: %w", m.stag, verbs.ErrClosed)
	}
	m.pd.dev.forget(m)
	for m.users.Load() != deadBit {
		<-m.idle
	}
	m.pd.refs.Add(-1)
	return nil
}

// reach checks that a peer may access n bytes at tagged offset to, and returns their offset in the region.
func (m *mr) reach(p *pd, need verbs.Access, to, n uint64, e *reachErrors) (uint64, *TerminateError) {
	switch {
	case m == nil:
		return 0, e.stag
	case m.pd != p:
		return 0, e.stream
	case m.access&need == 0:
		return 0, errAccess
	case to+n < to:
		return 0, e.wrap
	}
	off := to - m.base
	if to < m.base || off > uint64(len(m.mem)) || n > uint64(len(m.mem))-off {
		return 0, e.bounds
	}
	return off, nil
}

// reachErrors names the reasons of a refused access: DDP's for tagged frames, RDMAP's for the source of a Read.
type reachErrors struct{ stag, bounds, stream, wrap *TerminateError }

var (
	writeErrors = &reachErrors{errSTag, errBounds, errNotOfStream, errWrap}
	readErrors  = &reachErrors{errReadSTag, errReadBounds, errReadStream, errReadWrap}
)

// local checks a piece of local memory for use by a queue pair of p. A nil region is allowed for no bytes.
func local(p *pd, s verbs.SGE, need verbs.Access) (*mr, error) {
	if s.Len > verbs.MaxMessage {
		return nil, fmt.Errorf("%d bytes are more than one work request can move (%d)", s.Len, verbs.MaxMessage)
	}
	if s.MR == nil {
		if s.Len != 0 {
			return nil, errors.New("no memory region is given")
		}
		return nil, nil
	}
	m, ok := s.MR.(*mr)
	switch {
	case !ok || m.pd != p:
		return nil, errors.New("the memory region is of another protection domain")
	case m.users.Load()&deadBit != 0:
		return nil, errGone
	case m.access&need != need:
		return nil, fmt.Errorf("region %#x was registered without local write access", m.stag)
	case s.Off > uint64(len(m.mem)) || s.Len > uint64(len(m.mem))-s.Off:
		return nil, fmt.Errorf("bytes %d+%d are outside region %#x of %d bytes", s.Off, s.Len, m.stag, len(m.mem))
	}
	return m, nil
}

const indexBits = 24

// register enters a region into the table.
func (d *device) register(p *pd, b []byte, a verbs.Access) (*mr, error) {
	var key [1]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("iwarp: key of a region: %w", err)
	}
	m := &mr{pd: p, mem: b, access: a, idle: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.regions) >= 1<<indexBits-2 {
		return nil, errors.New("iwarp: no steering tag is free: deregister regions first")
	}
	for {
		d.lastIndex = (d.lastIndex + 1) & (1<<indexBits - 1)
		if _, used := d.regions[d.lastIndex]; !used && d.lastIndex != 0 {
			break
		}
	}
	m.stag = d.lastIndex<<8 | uint32(key[0])
	// Any base is as good as another to the protocol. One that differs from region to region, and from 0, makes an
	// address that was taken for an offset, or for one of another region, fail instead of hit.
	m.base = uint64(d.lastIndex) << 38
	d.regions[d.lastIndex] = m
	return m, nil
}

// lookup finds a region by its steering tag, or returns nil.
func (d *device) lookup(stag uint32) *mr {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if m := d.regions[stag>>8]; m != nil && m.stag == stag {
		return m
	}
	return nil
}

func (d *device) forget(m *mr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.regions, m.stag>>8)
}
