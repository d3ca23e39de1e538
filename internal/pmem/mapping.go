package pmem

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var pageLen = uint64(unix.Getpagesize())

// mapping is a region of files that are mapped one after another.
type mapping struct {
	space
	parts    atomic.Pointer[[]placed] // mapped; never changed, but replaced by Extend
	mapped   atomic.Uint64            // bytes of them; grows after parts
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
func (m *mapping) size() uint64     { return m.mapped.Load() }

// placed is a part that is mapped.
type placed struct {
	Part
	kind    Kind
	promise Promise
	align   uint64 // bytes; what is mapped or unmapped of it are multiples
}

func (m *mapping) Kind() Kind {
	var kind Kind
	for _, p := range *m.parts.Load() {
		kind = max(kind, p.kind)
	}
	return kind
}

// checkMixed refuses a Device DAX among parts that do not all promise the same.
func checkMixed(parts []placed) error {
	device, least, best := "", parts[0].promise, parts[0].promise
	for _, p := range parts {
		least, best = min(least, p.promise), max(best, p.promise)
		if p.kind == DeviceDAX {
			device = p.Path
		}
	}
	if device != "" && least != best {
		return fmt.Errorf("%w: %s", ErrMixed, device)
	}
	return nil
}

// publish makes size bytes of parts, which are mapped, the region.
func (m *mapping) publish(parts []placed, size uint64) {
	m.parts.Store(&parts)
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

// Sync uses msync for files on DAX file systems as well: the kernel knows the pages that any process ever stored to, and writes their
// cache lines back. A Device DAX has no msync, and nobody knows what was stored to it: all of its cache lines are written back.
func (m *mapping) Sync() error {
	if m.promise == Volatile {
		return nil
	}
	off := uint64(0)
	for _, p := range *m.parts.Load() {
		sync := m.msync
		if p.kind == DeviceDAX {
			sync = m.writeBackAll
		}
		if err := sync(off, off+p.Size); err != nil {
			return err
		}
		off += p.Size
	}
	return m.Fence()
}

// writeBackAll writes [lo, hi) back from the caches, with all processors, and fences: a large device takes seconds.
func (m *mapping) writeBackAll(lo, hi uint64) error {
	if m.eadr {
		return nil
	}
	const step = 64 << 20
	var next atomic.Uint64
	next.Store(lo)
	errs := make([]error, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i := range errs {
		workers.Go(func() {
			for errs[i] == nil {
				at := next.Add(step) - step
				if at >= hi {
					break
				}
				errs[i] = m.flushLines([]Range{{at, min(step, hi-at)}})
			}
			storeFence() // those of this goroutine, which may not run where the caller fences
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

func (m *mapping) Close() error {
	if m.closed.Swap(true) {
		return errors.New("pmem: region closed twice")
	}
	mapped.remove(m)
	return m.release()
}
