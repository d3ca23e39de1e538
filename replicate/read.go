package replicate

import (
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// ReadAt fills b from the target's copy at pool offset off, with RDMA READs. It needs a Claim before.
func (r *Replica) ReadAt(off uint64, b []byte) error {
	if !wire.Inside(off, uint64(len(b)), r.size.Load()) {
		return &Error{r.cfg.Name, "read", off, rangeError(off, uint64(len(b)), r.size.Load())}
	}
	r.reading.Lock()
	defer r.reading.Unlock()
	for len(b) > 0 {
		n := min(len(b), bounceSize)
		if err := r.readPiece(off, b[:n]); err != nil {
			return &Error{r.cfg.Name, "read", off, err}
		}
		off, b = off+uint64(n), b[n:]
	}
	return nil
}

func (r *Replica) readPiece(off uint64, b []byte) error {
	r.mu.Lock()
	l := r.link
	if l == nil || l.lane == nil {
		err := r.machine.cause
		r.mu.Unlock()
		return err
	}
	err := l.lane.read(off, uint64(len(b)))
	r.mu.Unlock()
	if err != nil {
		return err
	}
	limit := time.NewTimer(r.machine.limit())
	defer limit.Stop()
	select {
	case n := <-l.read:
		if int(n) != len(b) {
			return fmt.Errorf("%d of %d bytes came: %w", n, len(b), wire.ErrCorrupt)
		}
		copy(b, l.lane.bounce.Bytes())
		return nil
	case <-l.ctx.Done():
		return ErrClosed
	case <-limit.C:
		// The response may still come into the bounce buffer, so the connection must go.
		r.step(&Event{Kind: EvLost, Conn: l.conn, Err: ErrTimeout})
		return ErrTimeout
	}
}
