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
		if err := checkRanges(nil, s, r.size); err != nil {
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
	for {
		select {
		case err := <-r.done:
			return r.wrap(op, err)
		case step := <-l.steps:
			var err error
			switch step {
			case CopyUnseal:
				err = r.copySeals(ctx, l, unseal(exclude))
			case CopyBody:
				err = r.copyBody(ctx, l, spans(r.size, exclude, skip), progress)
			case CopySeal:
				err = r.copySeals(ctx, l, seals)
			}
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

// copySeals stores seals one after the other, each durable before the next.
func (r *Replica) copySeals(ctx context.Context, l *connection, seals []pmem.Seal) error {
	for i, s := range seals {
		if err := r.copyStart(l, uint64(i), nil, s); err != nil {
			return err
		}
		if err := r.copyWait(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// copyBody drains spans in chunks, copyWindow of them in flight.
func (r *Replica) copyBody(ctx context.Context, l *connection, spans []pmem.Range, progress func(done, total uint64)) error {
	var done, total uint64
	for _, s := range spans {
		total += s.Len
	}
	var window [copyWindow][1]pmem.Range
	var started, ended uint64
	finish := func() error {
		if err := r.copyWait(ctx, l); err != nil {
			return err
		}
		done += window[ended%copyWindow][0].Len
		ended++
		if progress != nil {
			progress(done, total)
		}
		return nil
	}
	for _, s := range spans {
		for s.Len > 0 {
			if started-ended == copyWindow {
				if err := finish(); err != nil {
					return err
				}
			}
			n := min(s.Len, copyChunk)
			slot := &window[started%copyWindow]
			slot[0] = pmem.Range{Off: s.Off, Len: n}
			if err := r.copyStart(l, started, slot[:], pmem.Seal{}); err != nil {
				return err
			}
			started++
			s.Off, s.Len = s.Off+n, s.Len-n
		}
	}
	for ended < started {
		if err := finish(); err != nil {
			return err
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
	return l.lane.start(n|copyBit, ranges, seal, false)
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
