package pmem

import (
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var pageLen = uint64(unix.Getpagesize())

// mapping is a region of files that are mapped one after another.
type mapping struct {
	space
	parts    atomic.Pointer[[]Part] // mapped; never changed, but replaced by Extend
	mapped   atomic.Uint64          // bytes of them; grows after parts
	kind     atomic.Uint32          // a Kind; only gets harder
	promise  Promise
	readOnly bool
	private  bool
	eadr     bool // see Options
	closed   atomic.Bool
	failed   atomic.Pointer[SyncError] // first failed write-back; never cleared
}

func (m *mapping) Bytes() []byte {
	n := m.size()
	return m.mem[:n:n]
}

func (m *mapping) Promise() Promise { return m.promise }
func (m *mapping) Kind() Kind       { return Kind(m.kind.Load()) }
func (m *mapping) size() uint64     { return m.mapped.Load() }

// publish makes size bytes of parts, which are mapped and of this kind, the region.
func (m *mapping) publish(parts []Part, size uint64, kind Kind) {
	own := slices.Clone(parts)
	m.kind.Store(uint32(kind))
	m.parts.Store(&own)
	m.mapped.Store(size)
}

// PartAt returns the part that holds off, and off relative to it.
func (m *mapping) PartAt(off uint64) (path string, at uint64) {
	for _, p := range *m.parts.Load() {
		if off < p.Size {
			return p.Path, off
		}
		off -= p.Size
	}
	return "", off
}

// Flush does for a page-cache region all the work, and leaves nothing for Fence: so it needs no memory of what each
// goroutine flushed, and a Fence without a Flush costs nothing.
func (m *mapping) Flush(rs []Range) error {
	for _, r := range rs {
		if err := checkRange("flush", r.Off, r.Len, m.size()); err != nil {
			return err
		}
	}
	if m.readOnly {
		return ErrReadOnly
	}
	switch {
	case m.promise == Persistent && !m.eadr:
		return m.flushLines(rs)
	case m.promise == PageCache:
		return m.syncHull(rs)
	}
	return nil
}

func (m *mapping) flushLines(rs []Range) (err error) {
	defer catch(debug.SetPanicOnFault(true), &err)
	for _, r := range rs {
		writeBack(m.mem[r.Off : r.Off+r.Len])
	}
	return nil
}

// syncHull writes the pages from the first to the last that rs touches with one msync. Each msync costs a journal commit
// and a device flush however few pages it covers, and the pages in between would be written soon anyway.
func (m *mapping) syncHull(rs []Range) error {
	lo, hi := m.size(), uint64(0)
	for _, r := range rs {
		if r.Len > 0 {
			lo, hi = min(lo, r.Off), max(hi, r.Off+r.Len)
		}
	}
	if lo >= hi {
		return m.failure()
	}
	return m.msync(lo-lo%pageLen, hi)
}

// msync writes [lo, hi) to the device; lo is page-aligned.
func (m *mapping) msync(lo, hi uint64) error {
	if err := m.failure(); err != nil {
		return err
	}
	if err := unix.Msync(m.mem[lo:hi], unix.MS_SYNC); err != nil {
		m.failed.CompareAndSwap(nil, &SyncError{Path: (*m.parts.Load())[0].Path, Off: lo, Len: hi - lo, Err: err})
	}
	return m.failure()
}

// failure returns the first failed write-back as an error, nil if there was none.
func (m *mapping) failure() error {
	if e := m.failed.Load(); e != nil {
		return e
	}
	return nil
}

func (m *mapping) Fence() error {
	if m.promise == Persistent {
		storeFence()
	}
	return m.failure()
}

func (m *mapping) Store64(off, val uint64) (err error) {
	if err := checkWord(off, m.size()); err != nil {
		return err
	}
	if m.readOnly {
		return ErrReadOnly
	}
	defer catch(debug.SetPanicOnFault(true), &err)
	store64(m.mem[off:], val)
	return nil
}

// loads tells that the bytes of the parts are only ever read.
func (m *mapping) loads() bool { return m.readOnly || m.private }

// Prefault allocates the blocks of a sparse file too, unless the region is read-only or private.
func (m *mapping) Prefault(r Range) error {
	if err := checkRange("prefault", r.Off, r.Len, m.size()); err != nil {
		return err
	}
	if r.Len == 0 {
		return nil
	}
	lo := r.Off - r.Off%pageLen
	b := m.mem[lo : r.Off+r.Len]
	advice := unix.MADV_POPULATE_WRITE
	if m.loads() {
		advice = unix.MADV_POPULATE_READ
	}
	err := unix.Madvise(b, advice)
	if err == nil {
		return nil
	}
	// A kernel before Linux 5.14 does not know the advice; any other error comes back as a fault with its place.
	return m.touchPages(b)
}

func (m *mapping) touchPages(b []byte) error {
	var sum byte
	return Guard(func() {
		for off := uint64(0); off < uint64(len(b)); off += pageLen {
			if m.loads() {
				sum |= b[off]
			} else {
				touch(b[off:])
			}
		}
	})
}

// Sync uses msync for DAX mappings as well: the kernel knows the pages that any process ever stored to, and writes their
// cache lines back.
func (m *mapping) Sync() error {
	if m.promise == Volatile {
		return nil
	}
	return m.msync(0, m.size())
}

func (m *mapping) Close() error {
	if m.closed.Swap(true) {
		return errors.New("pmem: region closed twice")
	}
	mapped.remove(m)
	return m.release()
}
