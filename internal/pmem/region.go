package pmem

import (
	"sync"

	"github.com/pmemfs/pmemfs/internal/mutant"
)

// Range is a run of bytes in a pool. Off is a pool offset: byte 0 is the pool header.
type Range struct{ Off, Len uint64 }

// Seal is an aligned 8-byte word that is stored, little-endian, only after all that it covers is persistent.
// The zero Seal means none: offset 0 is the pool header, which is never sealed.
type Seal struct{ Off, Val uint64 }

// Promise is what Fence means for a region.
type Promise uint8

const (
	// Volatile: bytes survive the death of the process, not of the machine (tmpfs, heap).
	Volatile Promise = iota + 1
	// PageCache: Fence returns when msync has written the flushed pages to the device.
	PageCache
	// Persistent: DAX mapping with MAP_SYNC; a fenced cache line is in the persistence domain.
	Persistent
)

// Region is one mapped copy of a pool. All methods but Close may be called from several goroutines, each pair
// of Flush and Fence from one.
type Region interface {
	// Bytes is the whole pool. It stays valid until Close. After a growth (see Extender) it is longer and stands where it stood.
	Bytes() []byte
	// Flush starts to make ranges persistent. A range may overlap another; ranges need no alignment.
	Flush(rs []Range) error
	// Fence returns when all that this goroutine flushed is persistent as far as Promise goes.
	// After an error of a page-cache region a retry proves nothing: the copy counts as Inconsistent.
	Fence() error
	// Store64 stores one aligned word atomically. It is neither flushed nor fenced.
	Store64(off, val uint64) error
	// Prefault makes the pages of r present, so that a later access takes no fault.
	Prefault(r Range) error
	// Sync makes the whole region persistent, also what an earlier process stored and never flushed.
	Sync() error
	Promise() Promise
	// Kind is that of the parts; of several kinds the one that is hardest to register.
	Kind() Kind
	// Close unmaps. Nobody may hold a slice of Bytes any more.
	Close() error
}

// Drain makes rs persistent and then, if s is not zero, stores the seal and makes it persistent.
//
// Order of durable steps: 1 flush ranges; 2 fence; 3 store seal; 4 flush seal; 5 fence. A crash before 3 leaves the old
// seal, after 3 the old or the new one; both are valid, since all that the new one covers is persistent.
func Drain(r Region, rs []Range, s Seal) error {
	if mutant.On(mutant.SealWithData) && s != (Seal{}) {
		_ = r.Store64(s.Off, s.Val)
	}
	if err := persist(r, rs, mutant.NoDataFlush, mutant.NoDataFence); err != nil || s == (Seal{}) {
		return err
	}
	if err := r.Store64(s.Off, s.Val); err != nil {
		return err
	}
	word := words.Get().(*[1]Range)
	defer words.Put(word)
	word[0] = Range{s.Off, 8}
	return persist(r, word[:], mutant.NoSealFlush, mutant.NoSealFence)
}

// persist flushes rs and fences, unless a mutant leaves one of both out.
func persist(r Region, rs []Range, noFlush, noFence mutant.Name) error {
	if !mutant.On(noFlush) {
		err := r.Flush(rs)
		if err != nil && mutant.On(mutant.SyncRetried) {
			err = r.Flush(rs)
		}
		if err != nil {
			return err
		}
	}
	if mutant.On(noFence) {
		return nil
	}
	return r.Fence()
}

// words keeps Drain from allocating: a slice handed to an interface would escape to the heap at each call.
var words = sync.Pool{New: func() any { return new([1]Range) }}
