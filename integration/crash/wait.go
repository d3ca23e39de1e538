package crash

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// This file holds what waits for the committer: fsyncs and checkpoints.

// fsync asks for the content of n and all names. It is acknowledged when its group is durable on every copy.
func (w *World) fsync(n *node) {
	w.wait(func() (uint64, error) { return w.vol.FlushFile(n.ino) }, func() bool { return n.flush() })
}

func (w *World) sync() {
	w.wait(w.vol.FlushAll, func() (news bool) {
		for _, n := range w.model.names {
			news = n.flush() || news
		}
		for _, n := range w.model.held {
			n.flush()
		}
		return news
	})
}

// ack is an fsync that waits.
type ack struct{ lsn, clock uint64 }

func (w *World) wait(flush func() (uint64, error), model func() bool) {
	var lsn uint64
	var news bool
	w.during(func() {
		var err error
		if lsn, err = flush(); err != nil && w.limit == 0 {
			w.fail(fmt.Errorf("flush: %w", err))
		}
	}, func() {
		news = model()
		if news {
			w.model.clock++
		}
	})
	if news && lsn <= w.vol.LSN() {
		w.early()
	}
	w.acks = append(w.acks, ack{lsn, w.model.clock})
	w.want = max(w.want, lsn)
	if !w.nested {
		w.tell()
		w.acknowledge()
	}
}

// early: the volume has nothing to flush, though the model has. It must have flushed before, when room was short, so the last group stands for the present.
func (w *World) early() {
	w.noteClosed()
	w.line.states[w.closed] = w.model.state()
	for _, h := range []*host{w.primary, w.other} {
		if h != nil {
			h.seen = make(map[uint64]seen)
		}
	}
}

// acknowledge notes which fsyncs have returned.
func (w *World) acknowledge() {
	kept := w.acks[:0]
	for _, a := range w.acks {
		if a.lsn > w.pipe().Durable() {
			kept = append(kept, a)
			continue
		}
		if w.limit > 0 && a.clock > w.limit {
			w.fail(fmt.Errorf("changes up to %d were acknowledged after the promotion of a copy that has those up to %d", a.clock, w.limit))
		}
		w.line.acked = max(w.line.acked, a.clock)
		w.acked++
	}
	w.acks = kept
}

// checkpoint is what the file system does when something is short. Other threads keep still, since they might take away what the operation that waits is
// about.
func (w *World) checkpoint() {
	defer func(was bool) { w.alone = was }(w.alone)
	w.alone = true
	for more := true; more; {
		w.during(func() { more = w.reclaim() }, func() {})
	}
	w.flip(false)
}

// reclaim does one step, which no name and no content shows.
func (w *World) reclaim() (more bool) {
	more, err := w.vol.Reclaim()
	if errors.Is(err, volume.ErrShort) {
		return false
	}
	if err != nil {
		w.fail(fmt.Errorf("reclaim: %w", err))
	}
	return more
}

// flip waits for a super that was closed after the call began.
func (w *World) flip(settle bool) {
	w.until(func() bool { return !w.pipe().Flipping() })
	w.startFlip(settle)
	w.until(func() bool { return !w.flipping() })
}

func (w *World) startFlip(settle bool) {
	w.due = false
	w.flips = w.pipe().Supers() + 1
	if w.pipe().Flipping() {
		w.flips++
	}
	w.engine.Flip(settle)
}

// settle makes all copies equal, as an unmount does.
func (w *World) settle() {
	defer func(was bool) { w.alone = was }(w.alone)
	w.alone = true
	w.sync()
	w.until(func() bool { return len(w.acks) == 0 })
	w.flip(true)
}
