package alloc

// EachData calls fn for runs of n blocks that hold data, in ascending order; a run ends at the border of a chunk.
func (a *Allocator) EachData(fn func(blk, n uint64)) {
	for c := a.first / a.perChunk; c < uint64(len(a.free)); c++ {
		if a.home[c] != 0 {
			continue
		}
		lo, hi := max(c*a.perChunk, a.first), min((c+1)*a.perChunk, a.end)
		eachRun(a.used, lo, hi, fn)
	}
}

// EachNode calls fn for runs of n nodes, in ascending order; the first has the offset first*nodeSize, and a run ends at the
// border of a chunk.
func (a *Allocator) EachNode(fn func(first, n uint64)) {
	for c := range uint64(len(a.free)) {
		if a.home[c] != 0 {
			eachRun(a.nodes[a.home[c]-1], 0, a.slots, func(slot, n uint64) { fn(c*a.slots+slot, n) })
		}
	}
}

// eachRun calls fn for the runs of used bits from lo to hi.
func eachRun(b bitmap, lo, hi uint64, fn func(i, n uint64)) {
	for i := b.nextUsed(lo, hi); i < hi; {
		end := b.nextFree(i, hi)
		fn(i, end-i)
		i = b.nextUsed(end, hi)
	}
}

// LastFreeRun finds the last n free blocks side by side, and takes nothing. Allocations come there last.
func (a *Allocator) LastFreeRun(n uint64) (blk uint64, ok bool) {
	for end := a.end; end > a.first; {
		start := a.used.freeFrom(a.first, end)
		if end-start >= n {
			return end - n, true
		}
		end = a.used.usedFrom(a.first, start)
	}
	return 0, false
}
