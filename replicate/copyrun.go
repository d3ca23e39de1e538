package replicate

import "github.com/pmemfs/pmemfs/internal/pmem"

// copyRun is the drains of one step of a full copy, in order: seals, each alone in flight, or spans in chunks of which copyWindow
// are in flight. It owns the ranges that it hands out until their drain has ended.
type copyRun struct {
	seals []pmem.Seal
	spans []pmem.Range // what is left of them

	window         [copyWindow][1]pmem.Range
	started, ended uint64
	done, total    uint64 // bytes
}

// newCopyRun is the run of a step.
func newCopyRun(step CopyStep, plan *copyPlan) *copyRun {
	r := &copyRun{}
	switch step {
	case CopyUnseal:
		r.seals = unseal(plan.exclude)
	case CopyBody:
		r.spans = spans(plan.size, plan.exclude, plan.skip)
	case CopySeal:
		r.seals = plan.seals
	}
	for _, s := range r.spans {
		r.total += s.Len
	}
	return r
}

// copyPlan is what a full copy copies.
type copyPlan struct {
	size    uint64
	exclude []uint64     // offsets of all seal words
	skip    []pmem.Range // local areas
	seals   []pmem.Seal  // stored at the end, in this order
}

// next is the next drain, if one may start now.
func (r *copyRun) next() (n uint64, ranges []pmem.Range, seal pmem.Seal, ok bool) {
	n = r.started
	switch flight := r.started - r.ended; {
	case len(r.seals) > 0 && flight == 0:
		seal, r.seals = r.seals[0], r.seals[1:]
	case len(r.spans) > 0 && flight < copyWindow:
		slot := &r.window[n%copyWindow]
		slot[0] = r.chunk()
		ranges = slot[:]
	default:
		return 0, nil, pmem.Seal{}, false
	}
	r.started++
	return n, ranges, seal, true
}

func (r *copyRun) chunk() pmem.Range {
	s := &r.spans[0]
	c := pmem.Range{Off: s.Off, Len: min(s.Len, copyChunk)}
	if s.Off, s.Len = s.Off+c.Len, s.Len-c.Len; s.Len == 0 {
		r.spans = r.spans[1:]
	}
	return c
}

// drained notes that the oldest drain in flight has ended.
func (r *copyRun) drained() {
	r.done += r.window[r.ended%copyWindow][0].Len
	r.ended++
}

// over tells whether nothing is left to do.
func (r *copyRun) over() bool {
	return r.started == r.ended && len(r.seals) == 0 && len(r.spans) == 0
}
