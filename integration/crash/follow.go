package crash

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// This file keeps the model in step with what the volume does by itself: it moves content into a group, and closes groups, whenever
// room is short, in the middle of an operation too. So a state holds of each file the one version that its group got.

// follower is told by the volume of a life.
type follower struct {
	w *World
	l *life
}

// Flushed notes that the open group has the present content of a file. In the middle of a write it is what is stored so far: if the file got longer, all up to
// its end.
func (f follower) Flushed(ino volume.Ino, size uint64) {
	n := f.l.model.inodes[ino]
	if n == nil || n.dir {
		return
	}
	if s := f.l.storing; s.node == n {
		data := n.data()
		if int(size) > len(data) {
			data = n.with(s.off, s.data[:int(size)-s.off])
		}
		n.set(data)
		n.versions[len(n.versions)-1].partial = true
	}
	if len(n.data()) != int(size) {
		f.w.fail(fmt.Errorf("inode %d goes into a group with %d bytes, expected %d", ino, size, len(n.data())))
	}
	if n.flush() {
		f.l.model.clock++
	}
}

// Closed notes what the group stands for.
func (f follower) Closed(lsn uint64) { f.l.line.states[lsn] = f.l.model.state() }

// Short denies room to the operation that the configuration names.
func (f follower) Short() bool {
	s := f.w.cfg.Scarce
	if s.Request == 0 || f.w.step != s.Step {
		return false
	}
	f.w.requests++
	deny := f.w.requests == s.Request || f.w.requests > s.Request && !s.Once
	f.w.denied = f.w.denied || deny
	return deny
}

// during runs an operation of the volume, and what it means in the model. Of an operation in steps, groups that it closed may have
// the state after it as well.
func (w *World) during(steps bool, do, model func()) {
	last := w.vol.LSN()
	do()
	model()
	if lsn := w.vol.LSN(); steps && lsn > last {
		after := w.model.state()
		for g := last + 1; g <= lsn; g++ {
			w.line.states[g].after = after
		}
	}
}
