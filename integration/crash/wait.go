package crash

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// This file holds what waits for the committer: fsyncs and checkpoints.

// fsync asks for the content of n and all names. It is acknowledged when its group is durable on every copy.
func (w *World) fsync(n *node) {
	w.wait(func() (uint64, error) { return w.vol.FlushFile(n.ino) }, []*node{n})
}

func (w *World) sync() {
	w.wait(w.vol.FlushAll, slices.Concat(slices.Collect(maps.Values(w.model.names)), w.model.held))
}

// ack is an fsync that waits.
type ack struct{ lsn, clock uint64 }

// wait flushes the files and waits for the group that the volume names, after it saw that this group has everything.
func (w *World) wait(flush func() (uint64, error), files []*node) {
	lsn, err := flush()
	if err != nil {
		if w.limit == 0 {
			w.fail(fmt.Errorf("flush: %w", err))
		}
		return
	}
	for _, n := range files {
		if n.flush() {
			w.fail(fmt.Errorf("inode %d was flushed, and no group has all of its content", n.ino))
		}
	}
	if err := w.covers(lsn); err != nil {
		w.fail(err)
	}
	w.acks = append(w.acks, ack{lsn, w.model.clock})
	w.want = max(w.want, lsn)
	if !w.nested {
		w.tell()
		w.acknowledge()
	}
}

// covers tests that group lsn, or if it is 0 the last durable one, has every change that was recorded.
func (w *World) covers(lsn uint64) error {
	if lsn == w.vol.LSN()+1 {
		return nil
	}
	if lsn == 0 {
		lsn = w.pipe().Durable()
	}
	st := w.line.states[lsn]
	if st != nil && st.after != nil {
		st = st.after
	}
	if st == nil || st.clock < w.model.clock {
		return fmt.Errorf("an fsync waits for group %d, which does not have the changes up to %d", lsn, w.model.clock)
	}
	return nil
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
		more = w.reclaim()
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
