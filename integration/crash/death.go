package crash

import (
	"context"
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// This file ends lives, in all the ways there are.

// mishap is called between two steps of a mount, and lets the fuse burn down: then the initiator's machine loses its power, the
// target's does, or the connection breaks.
func (w *World) mishap() {
	if w.fuse == 0 || w.mounted {
		return
	}
	if w.fuse--; w.fuse > 0 {
		return
	}
	w.broken = true
	switch w.rnd.IntN(3) {
	case 0:
		panic(crashed{})
	case 1:
		if w.other != nil {
			w.targetLoss()
		}
	case 2:
		w.linkLoss()
	}
}

// endLife is the death of the mount. Packets of it may still be under way, and the target may not notice.
func (w *World) endLife() {
	for _, l := range w.links {
		if l.life == w.life {
			l.life = nil
			l.closed = w.rnd.IntN(2) == 0
		}
	}
	if w.qp != nil && w.rnd.IntN(2) == 0 {
		w.fabric.Break(w.qp)
		w.other.region.Observe()
	}
	w.mounted = false
}

// choose is what a loss of power leaves of the copy of h.
func (w *World) choose(h *host) (b []byte) {
	n := 0
	h.region.OnEvent(nil)
	h.region.Observe()
	h.region.Images(pmemtest.Effort{Subsets: 3, Singles: 3, Random: 6}, w.rnd, func(m *pmemtest.Image) bool {
		if n++; w.rnd.IntN(n) == 0 {
			b = m.Clone()
		}
		return true
	})
	return b
}

// doom ends the life now, or at one of the next events of the local copy, in the middle of whatever is under way then.
func (w *World) doom(o Op) {
	if w.bomb = w.rnd.IntN(16); w.bomb > 0 {
		w.fate = o.Kind
		return
	}
	w.die(o.Kind)
}

// explode is called at each event of the local copy.
func (w *World) explode() {
	if w.bomb == 0 || !w.mounted || w.nested {
		return
	}
	if w.bomb--; w.bomb == 0 {
		panic(crashed{})
	}
}

func (w *World) die(k Kind) {
	w.bomb = 0
	if k == Restart {
		w.restart()
	} else {
		w.powerLoss()
	}
}

// powerLoss of the initiator's machine, perhaps of both, and a new mount.
func (w *World) powerLoss() {
	h := w.primary
	w.endLife()
	w.plug(h, w.choose(h))
	if w.cfg.Setup == Bare {
		w.life = &life{}
		w.term++
		w.mountBare(w.term)
		return
	}
	if w.other != nil && w.rnd.IntN(4) == 0 {
		w.targetLoss()
	}
	w.remount()
}

// restart is the death of the initiator's process. What its caches hold stays.
func (w *World) restart() {
	w.endLife()
	if w.cfg.Setup == Bare {
		w.settleData()
		w.life = &life{}
		w.term++
		w.mountBare(w.term)
		return
	}
	if w.qp != nil {
		w.fabric.Break(w.qp)
		w.other.region.Observe()
	}
	w.remount()
}

// settleData makes persistent what a process that died had stored into files, which in a pool is part of opening it. Super slots and log stay as they
// are: the volume must not rely on others for those.
func (w *World) settleData() {
	h := w.primary
	h.region.Reopen()
	h.region.OnEvent(nil)
	_ = pmem.Drain(h.region, []pmem.Range{{Off: w.vol.LogEnd(), Len: uint64(len(h.region.Bytes())) - w.vol.LogEnd()}}, pmem.Seal{})
	h.region.OnEvent(func(e pmemtest.Event) { w.event(h.copyUnderTest, e) })
}

// remount mounts the primary with its target, or with the copy that was the primary before.
func (w *World) remount() {
	t := w.other
	if t == nil && w.spare != nil {
		t, w.spare = w.spare, nil
	}
	if t != nil && t.daemon == nil {
		w.serve(t)
	}
	w.mount(w.primary, t)
}

// targetLoss is the end of the target's daemon, or of its machine, and its return.
func (w *World) targetLoss() {
	t := w.other
	if t == nil {
		return
	}
	w.counts.Losses.Add(1)
	for _, l := range w.links {
		l.hung = true
	}
	if w.qp != nil {
		w.fabric.Break(w.qp)
	}
	t.region.Observe()
	if w.rnd.IntN(3) > 0 {
		line, seen := t.line, t.seen
		w.plug(t, w.choose(t))
		t.line, t.seen = line, seen
	}
	t.daemon = nil
	for n := w.rnd.IntN(4); n > 0; n-- {
		w.poll()
	}
	w.serve(t)
}

// linkLoss breaks the lane, the control connection, or both.
func (w *World) linkLoss() {
	which := w.rnd.IntN(3)
	if which != 1 && w.qp != nil && w.other != nil {
		if w.rnd.IntN(2) == 0 {
			w.fabric.Tear(w.qp, w.rnd.IntN(4096))
		} else {
			w.fabric.Break(w.qp)
		}
		w.other.region.Observe()
	}
	if which > 0 {
		for _, l := range w.links {
			l.hung, l.closed = true, false
		}
	}
}

// promote makes the target the primary. The initiator is dead, or cut off and does not know it.
func (w *World) promote() {
	t, old := w.other, w.primary
	if t == nil || t.line == nil {
		return
	}
	w.bomb = 0
	dead := w.rnd.IntN(2) == 0
	if dead {
		w.endLife()
	}
	if _, err := t.daemon.Promote(false, w.id()); err != nil {
		w.fail(fmt.Errorf("promotion: %w", err))
	}
	w.counts.Promoted.Add(1)
	if !dead {
		w.outlive(t)
		w.endLife()
	}
	if w.rnd.IntN(2) == 0 {
		w.plug(old, w.choose(old))
	}
	t.daemon = nil
	w.links = nil
	if w.qp != nil {
		w.fabric.Break(w.qp)
	}
	t.region.Observe()
	w.mount(t, nil)
	w.spare = old
}

// outlive lets a primary go on that was fenced: nothing may be acknowledged any more that the promoted copy t does not have.
func (w *World) outlive(t *host) {
	b := append([]byte(nil), t.region.Bytes()...)
	_, clock, err := t.judge.image(b, t.line, true, false)
	if err != nil {
		w.failAt(t.name+" after its promotion", err)
	}
	w.limit = max(clock, 1)
	w.sync()
	for range 60 {
		if !w.progress() {
			break
		}
	}
	w.acknowledge()
}

// unmount unmounts cleanly, compares the copies, and mounts again.
func (w *World) unmount() {
	w.bomb = 0
	w.settle()
	w.inspect()
	w.compare()
	if w.cfg.Setup == Bare {
		return
	}
	w.alone = true // nobody has the mount any more
	err := w.attached.MarkClean()
	if err == nil && w.stepper != nil {
		err = w.stepper.Close(context.Background())
	}
	if err == nil {
		err = w.pool.Close()
	}
	if err != nil {
		w.fail(fmt.Errorf("unmount: %w", err))
	}
	w.endLife()
	if w.rnd.IntN(3) == 0 {
		w.plug(w.primary, w.choose(w.primary))
	}
	w.remount()
}
