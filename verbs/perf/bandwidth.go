package perf

import (
	"context"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/bulk"
)

// Locate implements bulk.Space: all work requests use the same memory, as those of perftest do.
func (s *side) Locate(_, n uint64) (verbs.SGE, uint64, uint32) {
	return verbs.SGE{MR: s.out, Len: n}, s.peer.addr, s.peer.rkey
}

// transfer is rounds of a bandwidth measurement.
type transfer struct {
	*side
	copier *bulk.Copier
	round  uint64 // bytes of one
}

// newTransfer makes one with rounds of n work requests.
func (s *side) newTransfer(op verbs.Opcode, size, window, n int) *transfer {
	c := bulk.New(bulk.Config{QP: s.qp, Op: op, Space: s, Chunk: uint64(size), Window: window, Tag: idBulk, TagBits: idBits})
	return &transfer{side: s, copier: c, round: uint64(n) * uint64(size)}
}

// run moves n bytes. A READ behind the WRITEs proves that they are placed, which perftest's programs do not ask for.
func (t *transfer) run(ctx context.Context, n uint64) error {
	t.copier.Add(0, n)
	if err := t.copier.Run(ctx, t.cq, limit, nil); err != nil {
		return err
	}
	if t.copier.Op == verbs.OpRead {
		return nil
	}
	t.wrs[0] = t.read(MinSize)
	return t.roundTrip(1)
}

// rates runs rounds for about d, and returns the bytes per second of each.
func (t *transfer) rates(ctx context.Context, d time.Duration) ([]float64, error) {
	warm := uint64(t.copier.Window) * t.copier.Chunk
	if err := t.run(ctx, min(warm, t.round)); err != nil {
		return nil, err
	}
	var all []float64
	for end := time.Now().Add(d); len(all) == 0 || time.Now().Before(end); {
		begin := time.Now()
		if err := t.run(ctx, t.round); err != nil {
			return nil, err
		}
		all = append(all, float64(t.round)/time.Since(begin).Seconds())
	}
	return all, nil
}
