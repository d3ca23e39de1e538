package crash

import (
	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/verbs"
)

// life is one mount, from recovery to a crash, a promotion elsewhere, or an unmount.
type life struct {
	mounted  bool // recovered and attached
	pool     *pool.Pool
	attached *initiator.Attached
	vol      *volume.Volume
	engine   *commit.Engine
	stepper  *replicate.Stepper // nil: no target
	qp       verbs.QP           // of its lane
	nested   bool               // the committer is at work, and an operation runs beside it

	alone bool // no other thread changes anything

	model   *model
	line    *line
	storing storing // the write under way
	acks    []ack   // fsyncs that wait
	due     bool    // a checkpoint
	flips   uint64  // supers asked for
	want    uint64  // group that some thread waits for
	told    uint64  // as far as the committer knows
	limit   uint64  // if not 0: the changes that the copy had which was promoted; nothing later may be acknowledged
}

// storing is a write that has not returned.
type storing struct {
	node *node
	off  int
	data []byte
}

func (l *life) pipe() *commit.Pipeline { return l.engine.Pipeline() }

// flipping tells whether a super is being written, so that a crash may leave only one.
func (l *life) flipping() bool { return !l.mounted || l.pipe().Supers() < l.flips }

// beside runs operations of other threads while the committer drains, and lets the fabric and the target go on. Threads may change the volume, but must
// wait for the committer as soon as they need it.
func (w *World) beside() {
	if w.nested || !w.mounted {
		return
	}
	steps := w.rnd.IntN(4)
	if w.rnd.IntN(8) == 0 {
		steps *= 20 // the local copy is slow
	}
	for range steps {
		w.remote()
	}
	if w.alone || w.rnd.IntN(6) > 0 {
		return
	}
	w.nested = true
	defer func() { w.nested = false }()
	for n := w.rnd.IntN(3); n >= 0 && w.at < len(w.cfg.Ops) && w.cfg.Ops[w.at].Kind < Sync; n-- {
		if o, ok := w.next(); ok {
			w.apply(o)
		}
	}
}
