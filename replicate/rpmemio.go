package replicate

import (
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// Flush starts to copy n bytes at off of the local memory to the pool, by RDMA WRITE. They are durable after the next Drain of the same
// lane, and must not change before it. Implements rpmem_flush(3) with RPMEM_FLUSH_RELAXED: the copy is not atomic.
func (p *Pool) Flush(off, n uint64, lane int) error {
	return p.on("flush", off, n, lane, func(l *poolLane) error { return p.flush(l, pmem.Range{Off: off, Len: n}) })
}

// Drain returns when all that was flushed on lane is durable. Implements rpmem_drain(3).
func (p *Pool) Drain(lane int) error {
	return p.on("drain", NoOffset, 0, lane, p.drain)
}

// Persist is Flush and Drain; it costs one round trip. Implements rpmem_persist(3) with RPMEM_PERSIST_RELAXED.
func (p *Pool) Persist(off, n uint64, lane int) error {
	return p.on("persist", off, n, lane, func(l *poolLane) error {
		if len(l.pending) > 0 {
			if err := p.flush(l, pmem.Range{Off: off, Len: n}); err != nil {
				return err
			}
			return p.drain(l)
		}
		l.pending = append(l.pending, pmem.Range{Off: off, Len: n})
		return p.finish(l, inUnits)
	})
}

// Read fills b from the pool at off, by RDMA READ. Implements rpmem_read(3).
func (p *Pool) Read(b []byte, off uint64, lane int) error {
	return p.on("read", off, uint64(len(b)), lane, func(l *poolLane) error {
		for len(b) > 0 {
			n, err := l.lane.read(off, uint64(len(b)))
			if err != nil {
				return err
			}
			o, err := p.await(l)
			if err != nil {
				return err
			}
			if uint64(o.n) != n {
				return fmt.Errorf("%d of %d bytes came: %w", o.n, n, wire.ErrCorrupt)
			}
			copy(b, l.lane.bounce.Bytes()[:n])
			off, b = off+n, b[n:]
		}
		return nil
	})
}

// on checks arguments, runs fn on a lane, and makes its failure sticky. off is NoOffset for an operation on no range.
func (p *Pool) on(op string, off, n uint64, lane int, fn func(*poolLane) error) error {
	if lane < 0 || lane >= len(p.lanes) {
		return p.wrap(op, off, fmt.Errorf("lane %d of %d does not exist", lane, len(p.lanes)))
	}
	if off != NoOffset && !wire.Inside(off, n, p.size) {
		return p.wrap(op, off, rangeError(off, n, p.size))
	}
	l := &p.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	err := p.failure()
	if err == nil {
		if err = fn(l); err != nil {
			err = p.fail(err)
		}
	}
	return p.wrap(op, off, err)
}

// flush posts the WRITEs of r, all of them, unless they go through bounce buffers.
func (p *Pool) flush(l *poolLane, r pmem.Range) error {
	if l.lane.bounced() { // the bytes go out with the drain
		l.pending = append(l.pending, r)
		return nil
	}
	if l.lane.window == 1 && overlaps(l.pending, r) {
		if err := p.drain(l); err != nil {
			return err
		}
	}
	for {
		done, err := l.lane.write(r)
		if err != nil {
			return err
		}
		if done {
			l.pending = append(l.pending, r)
			return nil
		}
		if err := p.reap(l, time.Now().Add(p.timeout)); err != nil {
			return err
		}
	}
}

func overlaps(rs []pmem.Range, r pmem.Range) bool {
	for _, o := range rs {
		if o.Off < r.Off+r.Len && r.Off < o.Off+o.Len {
			return true
		}
	}
	return false
}

func (p *Pool) drain(l *poolLane) error {
	if len(l.pending) == 0 {
		return nil
	}
	return p.finish(l, placed)
}

// finish drains the pending ranges.
func (p *Pool) finish(l *poolLane, w writes) error {
	l.seq++
	if err := l.lane.start(l.seq, l.pending, pmem.Seal{}, w); err != nil {
		return err
	}
	o, err := p.await(l)
	if err != nil {
		return err
	}
	l.pending = l.pending[:0]
	if o.status != wire.FlushOK {
		return fmt.Errorf("flush of offset %d: %w", o.where, o.status)
	}
	return nil
}

// await returns the outcome of the one drain or READ under way. Progress extends the wait.
func (p *Pool) await(l *poolLane) (outcome, error) {
	for {
		if err := p.reap(l, time.Now().Add(p.timeout)); err != nil {
			return outcome{}, err
		}
		for _, o := range l.outcomes {
			if o.kind != outProgress {
				return o, nil
			}
		}
	}
}

// reap waits until at least one completion came.
func (p *Pool) reap(l *poolLane, deadline time.Time) (err error) {
	before := l.lane.reaped
	for {
		if l.outcomes, err = l.lane.reap(l.outcomes[:0]); err != nil || len(l.outcomes) > 0 || l.lane.reaped != before {
			return err
		}
		switch err := l.lane.wait(time.Until(deadline)); {
		case err == verbs.ErrTimeout && !time.Now().Before(deadline):
			return ErrTimeout
		case err != nil && err != verbs.ErrTimeout:
			return err
		}
	}
}
