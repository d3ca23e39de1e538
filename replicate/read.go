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
		n, err := r.readPiece(off, b)
		if err != nil {
			return &Error{r.cfg.Name, "read", off, err}
		}
		off, b = off+n, b[n:]
	}
	return nil
}

// readPiece fills the front of b with one READ.
func (r *Replica) readPiece(off uint64, b []byte) (uint64, error) {
	r.mu.Lock()
	l := r.link
	if l == nil || l.lane == nil {
		err := r.machine.cause
		r.mu.Unlock()
		return 0, err
	}
	want, err := l.lane.read(off, uint64(len(b)))
	r.mu.Unlock()
	if err != nil {
		return 0, err
	}
	limit := time.NewTimer(r.machine.limit())
	defer limit.Stop()
	select {
	case n := <-l.read:
		if uint64(n) != want {
			return 0, fmt.Errorf("%d of %d bytes came: %w", n, want, wire.ErrCorrupt)
		}
		copy(b, l.lane.bounce.Bytes()[:n])
		return want, nil
	case <-l.ctx.Done():
		return 0, ErrClosed
	case <-limit.C:
		// The response may still come into the bounce buffer, so the connection must go.
		r.step(&Event{Kind: EvLost, Conn: l.conn, Err: ErrTimeout})
		return 0, ErrTimeout
	}
}
