package alloc

import "fmt"

// Grow adds the blocks from the present end up to endBlock, all free, and holds back so many chunks from now on. The space may not
// shrink.
func (a *Allocator) Grow(endBlock uint64, reserveChunks uint32) {
	if endBlock < a.end {
		panic(fmt.Sprintf("alloc: growth from block %d to %d", a.end, endBlock))
	}
	a.reserve = uint64(reserveChunks)
	old, chunks := uint64(len(a.free)), (endBlock+a.perChunk-1)/a.perChunk
	a.used = append(a.used, newBitmap(chunks * a.perChunk)[len(a.used):]...)
	a.free = append(a.free, make([]uint32, chunks-old)...)
	a.home = append(a.home, make([]uint32, chunks-old)...)
	a.partial, a.whole, a.room = a.partial.grown(chunks), a.whole.grown(chunks), a.room.grown(chunks)

	// The last chunk so far may be cut off by the end; then it is no node chunk, and its rest is marked as used.
	from, edge := a.end, min(old*a.perChunk, endBlock)
	a.used.clear(from, edge-from)
	a.used.set(endBlock, chunks*a.perChunk-endBlock)
	if from < edge {
		a.setFree(old-1, uint64(a.free[old-1])+edge-from)
	}
	for c := old; c < chunks; c++ {
		a.setFree(c, min((c+1)*a.perChunk, endBlock)-c*a.perChunk)
	}
	a.freeBlocks += endBlock - a.end
	a.end = endBlock
}

// grown is the same set with room for larger members.
func (s *bitset) grown(size uint64) bitset {
	g := newBitset(size)
	for i, ok := s.from(0); ok; i, ok = s.from(i + 1) {
		g.add(i)
	}
	return g
}
