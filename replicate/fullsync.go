package replicate

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

const (
	copyChunk  = 1 << 20
	copyWindow = 4 // chunks in flight
)

// FullSync writes the whole pool to the target. exclude are the offsets of all seal words, skip the local areas, seals
// what to store at the end, the newest super last. The region must hold still. progress, if not nil, is told bytes and never goes back.
//
// Order of durable steps on the target: 1 mark Inconsistent; 2 zero the seal words; 3 all bytes but those; 4 the seals, one
// after the other; 5 (Adopt) generation, and clear the mark. A target that stops in between is not taken for a whole copy:
// up to 5 by its mark.
func (r *Replica) FullSync(ctx context.Context, exclude []uint64, skip []pmem.Range, seals []pmem.Seal, progress func(done, total uint64)) error {
	const op = "full copy"
	for _, s := range append(unseal(exclude), seals...) {
		if err := checkRanges(nil, s, r.size.Load()); err != nil {
			return r.wrap(op, err)
		}
	}
	r.request.Lock()
	defer r.request.Unlock()
	r.mu.Lock()
	l := r.link
	r.stepLocked(&Event{Kind: EvFullSync, Seq: rand.Uint64()})
	r.mu.Unlock()
	if l == nil {
		return r.await(ctx, op)
	}
	plan := copyPlan{r.size.Load(), exclude, skip, seals}
	for {
		select {
		case err := <-r.done:
			return r.wrap(op, err)
		case step := <-l.steps:
			err := r.copyStep(ctx, l, newCopyRun(step, &plan), progress)
			r.step(&Event{Kind: EvCopied, Conn: l.conn, Seq: uint64(step), Err: err})
		case <-ctx.Done():
			r.step(&Event{Kind: EvCancel, Err: ctx.Err()})
			return r.wrap(op, <-r.done)
		}
	}
}

func unseal(offs []uint64) []pmem.Seal {
	seals := make([]pmem.Seal, len(offs))
	for i, off := range offs {
		seals[i] = pmem.Seal{Off: off}
	}
	return seals
}

// copyStep starts the drains of a step and waits for the last one.
func (r *Replica) copyStep(ctx context.Context, l *connection, run *copyRun, progress func(done, total uint64)) error {
	for !run.over() {
		for n, ranges, seal, ok := run.next(); ok; n, ranges, seal, ok = run.next() {
			if err := r.copyStart(l, n, ranges, seal); err != nil {
				return err
			}
		}
		if err := r.copyWait(ctx, l); err != nil {
			return err
		}
		run.drained()
		if progress != nil && run.total > 0 {
			progress(run.done, run.total)
		}
	}
	return nil
}

func (r *Replica) copyStart(l *connection, n uint64, ranges []pmem.Range, seal pmem.Seal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != l || l.lane == nil {
		return ErrClosed
	}
	return l.lane.start(n|copyBit, ranges, seal, ahead)
}

// copyWait waits for the oldest drain of the copy. A dead target is noticed earlier, by a ping.
func (r *Replica) copyWait(ctx context.Context, l *connection) error {
	limit := time.NewTimer(RequestTimeout)
	defer limit.Stop()
	select {
	case o := <-l.copied:
		if o.status != wire.FlushOK {
			return fmt.Errorf("at offset %d: %w", o.where, o.status)
		}
		return nil
	case <-l.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return ErrTimeout
	}
}

// spans is the shared area of a pool, [FirstOffset, size), without the local areas and the seal words.
func spans(size uint64, exclude []uint64, skip []pmem.Range) []pmem.Range {
	holes := slices.Clone(skip)
	for _, off := range exclude {
		holes = append(holes, pmem.Range{Off: off, Len: 8})
	}
	slices.SortFunc(holes, func(a, b pmem.Range) int { return cmp.Compare(a.Off, b.Off) })
	var out []pmem.Range
	at := uint64(wire.FirstOffset)
	for _, h := range holes {
		if h.Off >= size {
			break
		}
		if h.Off > at {
			out = append(out, pmem.Range{Off: at, Len: h.Off - at})
		}
		at = max(at, h.Off+min(h.Len, size-h.Off))
	}
	if at < size {
		out = append(out, pmem.Range{Off: at, Len: size - at})
	}
	return out
}
