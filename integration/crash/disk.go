package crash

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// This file lets an msync fail, of the local copy or of the target. The kernel reports that once, and a second msync lies.

// diskLoss makes the next msync of one copy fail. From then on nothing may be acknowledged that is not durable already, whatever is tried. Then the life
// ends, and goes on with the other copy.
func (w *World) diskLoss() {
	if w.cfg.Mode != pmemtest.Pages || w.other == nil || w.other.line != w.line || w.pipe().Err() != nil {
		return
	}
	w.counts.Disks.Add(1)
	w.bomb = 0
	h := w.other
	if w.rnd.IntN(2) == 0 {
		h = w.primary
	}
	w.settle()
	w.alone = true
	h.region.FailSync()
	h.refused = true
	durable, acked := w.pipe().Durable(), w.line.acked
	w.refuse(durable)
	if w.line.acked != acked || w.pipe().Durable() != durable {
		w.failAt(h.name+" after a failed msync", fmt.Errorf("changes up to %d were acknowledged, up to %d before", w.line.acked, acked))
	}
	w.abandon(h)
}

// refuse changes something and asks for it to be durable, three times.
func (w *World) refuse(durable uint64) {
	root := w.model.dirs[0]
	if err := w.vol.SetXattr(root, xattrName, w.pattern(64), 0); err != nil {
		w.fail(err)
	}
	for try := range 3 {
		w.engine.Want(durable + 1)
		for n := 0; n < 1000 && w.pipe().Err() == nil && w.progress(); n++ {
		}
		if w.pipe().Err() == nil {
			w.fail(fmt.Errorf("try %d: a disk refused to write, and the pipeline goes on", try))
		}
		if w.vol.Stopped() == nil {
			w.fail(errors.New("a disk refused to write, and changes are still taken"))
		}
	}
}

// abandon ends the life, and goes on without the copy of h, which a full copy may make good again.
func (w *World) abandon(h *host) {
	if h == w.primary {
		if _, ok := errors.AsType[*pmem.SyncError](w.pipe().Err()); !ok {
			w.fail(fmt.Errorf("the pipeline ended with another error: %w", w.pipe().Err()))
		}
		w.pool.Distrust(w.pipe().Err()) // as the mount does
		if w.pool.State().Flags&poolset.Inconsistent == 0 {
			w.fail(errors.New("the local copy does not say that it is Inconsistent"))
		}
		w.promote()
		return
	}
	for w.progress() {
	}
	if !h.inconsistent() {
		w.failAt(h.name, errors.New("an msync failed, and the copy does not say that it is Inconsistent"))
	}
	w.powerLoss()
}
