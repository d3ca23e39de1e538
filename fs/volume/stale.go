package volume

import (
	"math/bits"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// stale is a set of spans of the pool, bitSpan bytes each: those in which free space may differ between the copies.
// Bytes that were stored and then given up, before a job named them, are on the local copy only. Nothing reads them, but
// whoever compares two copies finds them. The set takes 2 MiB per TiB of the pool.
type stale struct{ words []uint64 }

func newStale(poolSize uint64) stale {
	return stale{make([]uint64, (poolSize/bitSpan+64)/64)}
}

// grow makes room for the spans of a larger pool. None of them is stale: what a copy gains is zero.
func (s *stale) grow(poolSize uint64) {
	more := newStale(poolSize).words[len(s.words):]
	s.words = append(s.words, more...)
}

// add marks the spans that hold the n bytes from off on.
func (s *stale) add(off, n uint64) {
	if n == 0 {
		return
	}
	for i := off / bitSpan; i <= (off+n-1)/bitSpan; i++ {
		s.words[i/64] |= 1 << (i % 64)
	}
}

// take empties the set and appends its ranges to dst, no more of each than lies in area.
func (s *stale) take(dst []pmem.Range, area pmem.Range) []pmem.Range {
	for w, word := range s.words {
		for ; word != 0; word &= word - 1 {
			off := uint64(w*64+bits.TrailingZeros64(word)) * bitSpan
			lo, hi := max(off, area.Off), min(off+bitSpan, area.Off+area.Len)
			if lo < hi {
				dst = append(dst, pmem.Range{Off: lo, Len: hi - lo})
			}
		}
		s.words[w] = 0
	}
	return dst
}

// generalArea is where nodes and data are, and nothing else: no seal word, no log, nothing local to a copy.
func (v *Volume) generalArea() pmem.Range {
	off := v.super.FirstBlock * layout.BlockSize
	return pmem.Range{Off: off, Len: v.super.PoolSize - off}
}

// freeUnlogged frees blocks that were stored to and that no group ever named.
func (v *Volume) freeUnlogged(blk, n uint64) {
	v.space.stale.add(blk*layout.BlockSize, n*layout.BlockSize)
	v.space.FreeData(blk, n)
}
