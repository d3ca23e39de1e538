package alloc

import "fmt"

// AllocData takes a run of 1 to want free blocks, the longest at the goal if that is free, else one near it. A goal
// outside of the general area means no wish: the run follows the last one. It fails when only the reserve is left.
func (a *Allocator) AllocData(goal, want uint64) (blk, n uint64, ok bool) {
	if want == 0 {
		return 0, 0, false
	}
	if !a.inside(goal, 1) {
		goal = a.cursor
	}
	if n = a.take(goal, want); n == 0 {
		if goal, ok = a.search(goal, want); !ok {
			return 0, 0, false
		}
		n = a.take(goal, want)
	}
	a.cursor = goal + n
	return goal, n, true
}

// search finds where a run of want blocks can start: in a chunk that has data already if it fits there, else in a
// wholly free one, and if none may be broken, in whatever space is left. What it returns can be taken.
func (a *Allocator) search(goal, want uint64) (uint64, bool) {
	c := goal / a.perChunk
	var blk, n uint64
	p, ok := a.partial.near(min(c, uint64(len(a.free))-1))
	if ok {
		blk, n = a.longest(p, want)
	}
	if n >= want || a.breakable() == 0 {
		return blk, ok
	}
	w, _ := a.whole.near(c)
	return w * a.perChunk, true
}

// longest is the first free run of want blocks in a chunk, else the longest one.
func (a *Allocator) longest(c, want uint64) (blk, n uint64) {
	end := (c + 1) * a.perChunk
	for i := a.used.nextFree(c*a.perChunk, end); i < end && n < want; {
		e := a.used.nextUsed(i, end)
		if e-i > n {
			blk, n = i, e-i
		}
		i = a.used.nextFree(e, end)
	}
	return blk, n
}

// take marks up to want free blocks from blk on as used, over chunk borders too, as long as no more chunks are broken
// than the reserve allows.
func (a *Allocator) take(blk, want uint64) (n uint64) {
	for n < want && blk+n < a.end {
		at := blk + n
		c := at / a.perChunk
		if a.whole.has(c) && a.breakable() == 0 {
			break
		}
		border := (c + 1) * a.perChunk
		run := a.used.nextUsed(at, min(border, at+want-n)) - at
		if run == 0 {
			break
		}
		a.used.set(at, run)
		a.freeBlocks -= run
		a.setFree(c, uint64(a.free[c])-run)
		n += run
	}
	return n
}

// FreeData gives blocks back.
func (a *Allocator) FreeData(blk, n uint64) {
	a.check(blk, n)
	for n > 0 {
		c := blk / a.perChunk
		run := min(n, (c+1)*a.perChunk-blk)
		if a.home[c] != 0 || a.used.nextFree(blk, blk+run) != blk+run {
			panic(fmt.Sprintf("alloc: free of %d blocks at block %d, some of which hold no data", run, blk))
		}
		a.used.clear(blk, run)
		a.freeBlocks += run
		a.setFree(c, uint64(a.free[c])+run)
		blk, n = blk+run, n-run
	}
}

// MarkData takes these very blocks, at mount. It changes nothing and returns false if one of them is in use already, or
// outside of the general area. It may dig into the reserve: what a pool holds, it holds.
func (a *Allocator) MarkData(blk, n uint64) bool {
	if !a.inside(blk, n) || a.used.nextUsed(blk, blk+n) != blk+n {
		return false
	}
	a.used.set(blk, n)
	a.freeBlocks -= n
	for n > 0 {
		c := blk / a.perChunk
		run := min(n, (c+1)*a.perChunk-blk)
		a.setFree(c, uint64(a.free[c])-run)
		blk, n = blk+run, n-run
	}
	return true
}
