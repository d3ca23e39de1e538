package pmemtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Mode is the kind of memory.
type Mode uint8

const (
	Lines Mode = iota // DAX: cache lines, flushed and fenced
	Pages             // an ordinary file: sectors, written at any moment or by msync
	EADR              // DAX with the CPU's caches in the persistence domain: a fence is enough
)

// Event is a moment at which a crash image may be taken.
type Event uint8

const (
	Flushed Event = iota
	Fenced
	Stored
	Synced
	Observed
)

func (e Event) String() string {
	return [...]string{"flush", "fence", "seal store", "sync", "observation"}[e]
}

// Region implements pmem.Region.
type Region struct {
	mem  []byte // what the program sees
	seen pages  // mem at the last event
	base pages  // what is on the medium for sure
	work []byte // equals base, but while an image is looked at

	mode Mode
	unit int            // bytes of a unit
	open map[int]*track // units that have later versions than base, by number
	list []int          // their numbers, sorted if ordered
	// ordered tells that list is sorted and has no duplicate.
	ordered bool
	digest  uint64 // of base: the exclusive or of the hashes of all units

	hook   func(Event)
	closed bool
	fails  bool // the next msync
	free   []*track
}

// track is the history of a unit since its base version.
type track struct {
	later   []byte // versions, oldest first, one behind the other
	flushed int    // versions that a flush has covered and no fence yet
	lost    int    // versions that the kernel takes for written, and are not
}

// New makes a region with these bytes, all of them on the medium. hook is called after each event, nil for nobody. It may look at
// images, but must not use the region.
func New(b []byte, mode Mode, hook func(Event)) *Region {
	r := &Region{mem: bytes.Clone(b), seen: divide(b), base: divide(b), work: bytes.Clone(b),
		mode: mode, unit: 64, open: make(map[int]*track), hook: hook}
	if mode == Pages {
		r.unit = 512
	}
	for u := range len(b) / r.unit {
		r.digest ^= hash(u, r.at(b, u))
	}
	return r
}

// OnEvent replaces the hook.
func (r *Region) OnEvent(hook func(Event)) { r.hook = hook }

// at is unit u in the bytes b of the region.
func (r *Region) at(b []byte, u int) []byte { return b[u*r.unit : (u+1)*r.unit] }

// durable is the base version of unit u, to be read only.
func (r *Region) durable(u int) []byte { return r.base.at(u*r.unit, r.unit) }

func (r *Region) Bytes() []byte { return r.mem }

func (r *Region) Promise() pmem.Promise {
	if r.mode == Pages {
		return pmem.PageCache
	}
	return pmem.Persistent
}

func (r *Region) Kind() pmem.Kind {
	if r.mode == Pages {
		return pmem.PageCacheFile
	}
	return pmem.FSDAX
}

// Flush implements pmem.Region.
func (r *Region) Flush(rs []pmem.Range) error {
	for _, g := range rs {
		if g.Off > uint64(len(r.mem)) || g.Len > uint64(len(r.mem))-g.Off {
			return fmt.Errorf("pmemtest: flush of %d bytes at offset %d of a region of %d", g.Len, g.Off, len(r.mem))
		}
	}
	r.compare()
	var err error
	if r.mode == Pages {
		err = r.syncHull(rs)
	} else {
		for _, g := range rs {
			r.mark(g)
		}
	}
	r.event(Flushed)
	return err
}

// FailSync makes the next msync fail, in mode Pages. As a kernel does whose disk refuses to write, it takes the pages for clean all the same: a later msync
// succeeds, and makes certain only what was stored after the failed one.
func (r *Region) FailSync() { r.fails = true }

func (r *Region) mark(g pmem.Range) {
	if g.Len == 0 {
		return
	}
	for u := int(g.Off) / r.unit; u <= int(g.Off+g.Len-1)/r.unit; u++ {
		if t := r.open[u]; t != nil {
			t.flushed = len(t.later) / r.unit
		}
	}
}

// syncHull is one msync from the first to the last page of rs.
func (r *Region) syncHull(rs []pmem.Range) error {
	lo, hi := len(r.mem), 0
	for _, g := range rs {
		if g.Len > 0 {
			lo, hi = min(lo, int(g.Off)/page*page), max(hi, (int(g.Off+g.Len)+page-1)/page*page)
		}
	}
	failed := r.fails
	r.fails = false
	r.collapse(func(u int, t *track) int {
		n := len(t.later) / r.unit
		switch {
		case u*r.unit < lo || u*r.unit >= hi || n == t.lost:
			return 0
		case failed:
			t.lost = n
			return 0
		}
		return n
	})
	if failed {
		return &pmem.SyncError{Path: "simulation", Off: uint64(lo), Len: uint64(hi - lo), Err: syscall.EIO}
	}
	return nil
}

func (r *Region) Fence() error {
	r.compare()
	switch r.mode {
	case Lines:
		r.collapse(func(_ int, t *track) int { return t.flushed })
	case EADR:
		r.collapse(func(_ int, t *track) int { return len(t.later) / r.unit })
	}
	r.event(Fenced)
	return nil
}

func (r *Region) Store64(off, val uint64) error {
	if off%8 != 0 || off > uint64(len(r.mem)) || 8 > uint64(len(r.mem))-off {
		return fmt.Errorf("pmemtest: store of a word at offset %d of a region of %d", off, len(r.mem))
	}
	r.compare()
	binary.LittleEndian.PutUint64(r.mem[off:], val)
	r.comparePage(int(off / page)) // no other has changed since
	r.event(Stored)
	return nil
}

func (r *Region) Prefault(pmem.Range) error { return nil }

// Sync makes everything the base.
func (r *Region) Sync() error {
	r.compare()
	r.collapse(func(_ int, t *track) int { return len(t.later) / r.unit })
	r.event(Synced)
	return nil
}

func (r *Region) Close() error {
	if r.closed {
		return errors.New("pmemtest: region closed twice")
	}
	r.closed = true
	return nil
}

// Reopen is what happens when the process dies and another one maps the pool: the bytes stay as they are, and what was in
// flight stays so.
func (r *Region) Reopen() {
	r.closed = false
	for _, t := range r.open {
		t.flushed = 0
	}
}

// Observe is an event without an effect: somebody else may have stored.
func (r *Region) Observe() {
	r.compare()
	r.event(Observed)
}

func (r *Region) event(e Event) {
	if r.hook != nil {
		r.hook(e)
	}
}

// compare gives a version to each unit that was stored to since the last event.
func (r *Region) compare() {
	for i, seen := range r.seen {
		if !bytes.Equal(r.mem[i*page:][:len(seen)], seen) {
			r.comparePage(i)
		}
	}
}

func (r *Region) comparePage(i int) {
	for u := i * page / r.unit; u < (i*page+len(r.seen[i]))/r.unit; u++ {
		now := r.at(r.mem, u)
		if bytes.Equal(now, r.seen.at(u*r.unit, r.unit)) {
			continue
		}
		r.seen.put(u*r.unit, now)
		t := r.open[u]
		if t == nil {
			t = r.track()
			r.open[u] = t
			r.list, r.ordered = append(r.list, u), false
		}
		t.later = append(t.later, now...)
	}
}

func (r *Region) track() *track {
	if n := len(r.free); n > 0 {
		t := r.free[n-1]
		r.free = r.free[:n-1]
		return t
	}
	return new(track)
}

// collapse makes the n-th later version the base of each open unit, where n tells how many; 0 leaves it alone.
func (r *Region) collapse(n func(u int, t *track) int) {
	kept := r.list[:0]
	for _, u := range r.list {
		t := r.open[u]
		if k := n(u, t); k > 0 {
			r.settle(u, t.later[(k-1)*r.unit:k*r.unit])
			t.later = t.later[:copy(t.later, t.later[k*r.unit:])]
			t.flushed, t.lost = max(0, t.flushed-k), max(0, t.lost-k)
		}
		if len(t.later) > 0 {
			kept = append(kept, u)
			continue
		}
		delete(r.open, u)
		t.flushed, t.lost = 0, 0
		r.free = append(r.free, t)
	}
	r.list = kept
}

func (r *Region) settle(u int, b []byte) {
	r.digest ^= hash(u, r.durable(u)) ^ hash(u, b)
	r.base.put(u*r.unit, b)
	copy(r.at(r.work, u), b)
}

// units are the numbers of the open units, in order.
func (r *Region) units() []int {
	if !r.ordered {
		slices.Sort(r.list)
		r.ordered = true
	}
	return r.list
}

// Uncertain is the number of units of which a crash may leave more than one version.
func (r *Region) Uncertain() int { return len(r.list) }

// Durable is a copy of what is on the medium for sure.
func (r *Region) Durable() []byte { return slices.Concat(r.base...) }

// hash of the content b of unit u.
func hash(u int, b []byte) uint64 {
	h := uint64(u)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ binary.LittleEndian.Uint64(b)) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}
