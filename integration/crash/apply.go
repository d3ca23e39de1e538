package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// This file applies the operations of a workload to the volume and to the model. An operation whose names do not fit is
// left out, so that a list from which a reducer took some still makes sense.

// apply does one operation of the file system.
func (w *World) apply(o Op) {
	m := w.model
	n, other := m.names[o.A], m.names[o.B]
	dir, to := m.dirs[o.A.Dir], m.dirs[o.B.Dir]
	switch o.Kind {
	case Create, Mkdir:
		if n == nil {
			w.create(o, dir)
		}
	case Write:
		if n != nil && !n.dir {
			w.write(n, int(o.Off), int(o.Len))
		}
	case Truncate:
		if n != nil && !n.dir {
			w.changeInSteps(func() error {
				return second(w.vol.SetAttr(n.ino, volume.SetAttr{Valid: volume.SetSize, Size: uint64(o.Len)}))
			}, func() { n.resize(int(o.Len)) }, func() {})
		}
	case Fallocate:
		if n != nil && !n.dir {
			w.changeInSteps(func() error { return w.vol.Fallocate(n.ino, uint64(o.Off), uint64(o.Len)) },
				func() { n.resize(max(len(n.data()), int(o.Off+o.Len))) }, func() {})
		}
	case Prealloc:
		if n != nil && !n.dir {
			w.changeInSteps(func() error { return w.vol.Preallocate(n.ino, uint64(o.Off), uint64(o.Len)) }, func() { n.flush() }, func() {})
		}
	case Punch, Zero:
		if n != nil && !n.dir {
			w.zero(o, n)
		}
	case Exchange:
		if n != nil && other != nil && n != other {
			w.change(func() error { return w.vol.Rename(dir, o.A.name(), to, o.B.name(), volume.RenameExchange) },
				func() { m.names[o.A], m.names[o.B] = other, n })
		}
	case Tmpfile:
		if n == nil {
			w.tmpfile(o, dir)
		}
	case Unlink:
		if n != nil {
			w.unlink(o, n, dir)
		}
	case Rename:
		if n != nil && o.A != o.B && n != other && (other == nil || other.dir == n.dir) {
			w.rename(o, n, other, dir, to)
		}
	case Link:
		if n != nil && !n.dir && other == nil && len(m.names) < 60 {
			w.change(func() error { return second(w.vol.Link(n.ino, to, o.B.name())) }, func() { m.names[o.B] = n; n.links++ })
		}
	case Chmod:
		if n != nil {
			mode := n.mode ^ 0o111
			w.change(func() error {
				return second(w.vol.SetAttr(n.ino, volume.SetAttr{Valid: volume.SetMode, Mode: mode & 0o7777}))
			}, func() { n.mode = mode })
		}
	case Xattr:
		if n != nil {
			w.setXattr(n, int(o.Len))
		}
	case Hold:
		if n != nil && !n.held {
			w.vol.Hold(n.ino)
			n.held = true
			m.held = append(m.held, n)
		}
	case Forget:
		w.forget(n)
	case Fsync:
		if n != nil {
			w.fsync(n)
		}
	case Sync:
		w.sync()
	case Flip:
		w.startFlip(false)
	case Settle:
		w.settle()
	case Grow:
		w.grow(uint64(o.Len) * layout.BlockSize)
	case Reclaim:
		w.reclaim()
	}
}

// grow makes the pool n bytes longer. Each copy has the room from the start. Other threads go on before the super that says so is closed.
func (w *World) grow(n uint64) {
	size := min(w.vol.Size()+n, w.cfg.Size+w.cfg.Room)
	if w.stepper != nil {
		if w.stepper.Grow(context.Background(), size) != nil {
			return // the target is gone at the moment
		}
		if err := w.stepper.Extend(w.primary.region, size); err != nil {
			w.fail(err)
		}
	}
	if err := w.vol.Grow(size); err != nil {
		w.fail(err)
	}
	w.due = true
}

func second[T any](_ T, err error) error { return err }

func (w *World) create(o Op, dir volume.Ino) {
	mode := uint32(syscall.S_IFREG | 0o644)
	if o.Kind == Mkdir {
		mode = syscall.S_IFDIR | 0o755
	}
	var a volume.Attr
	w.change(func() (err error) {
		a, err = w.vol.Make(dir, o.A.name(), volume.Make{Mode: mode})
		return err
	}, func() { w.model.names[o.A] = w.model.make(a.Ino, o.Kind == Mkdir, mode) })
}

func (w *World) unlink(o Op, n *node, dir volume.Ino) {
	remove := w.vol.Unlink
	if n.dir {
		remove = w.vol.Rmdir
	}
	w.change(func() error { return remove(dir, o.A.name()) }, func() { w.model.remove(o.A) })
}

func (w *World) rename(o Op, n, other *node, dir, to volume.Ino) {
	w.change(func() error { return w.vol.Rename(dir, o.A.name(), to, o.B.name(), 0) }, func() {
		if other != nil {
			w.model.remove(o.B)
			n.flush() // what replaces a file must be whole
		}
		delete(w.model.names, o.A)
		w.model.names[o.B] = n
	})
}

// zero punches a hole or zeroes a range, which may take several groups: until it is done each byte is the old one or zero.
func (w *World) zero(o Op, n *node) {
	off, end, size := int(o.Off), int(o.Off+o.Len), len(n.data())
	do := func() error { return w.vol.PunchHole(n.ino, uint64(o.Off), uint64(o.Len)) }
	if o.Kind == Zero {
		do = func() error { return w.vol.ZeroRange(n.ino, uint64(o.Off), uint64(o.Len), false) }
		size = max(size, end)
	}
	if size > maxFile {
		return
	}
	n.writes = append(n.writes, write{off, make([]byte, end-off)})
	n.zeroed = true
	w.changeInSteps(do, func() {
		data := make([]byte, size)
		copy(data, n.data())
		clear(data[min(off, size):min(end, size)])
		n.set(data)
		n.flush()
	}, func() { w.zeroedInPart(n, off, end) })
}

// zeroedInPart takes over what ran out of room half way: of each block, the bytes of the range from off up to end are all zero or all as they were, and all
// else is as it was.
func (w *World) zeroedInPart(n *node, off, end int) {
	got, old := w.content(n), n.data()
	want := bytes.Clone(old)
	for at := off; at < min(end, len(old)); {
		next := min(at/blockSize*blockSize+blockSize, end, len(old))
		if len(got) >= next && !bytes.Equal(got[at:next], old[at:next]) {
			clear(want[at:next])
		}
		at = next
	}
	if !bytes.Equal(got, want) {
		at, _ := equal(got, want)
		w.fail(fmt.Errorf("inode %d without room to zero bytes %d to %d: found %d bytes that are wrong from byte %d on", n.ino, off, end, len(got), at))
	}
	if !bytes.Equal(want, old) {
		n.set(want)
	}
	w.flushNow(n)
}

// flushNow flushes what an operation without room left, of which the model does not know how much is in a group.
func (w *World) flushNow(n *node) {
	if _, err := w.vol.FlushFile(n.ino); err != nil {
		w.fail(err)
	}
	if n.flush() {
		w.model.clock++
	}
}

// tmpfile makes a file without a name, which is held once, writes to it and gives it a name.
func (w *World) tmpfile(o Op, dir volume.Ino) {
	const mode = syscall.S_IFREG | 0o600
	var n *node
	var a volume.Attr
	w.change(func() (err error) {
		a, err = w.vol.Tmpfile(dir, volume.Make{Mode: mode})
		return err
	}, func() {
		n = w.model.make(a.Ino, false, mode)
		n.links, n.held = 0, true
		w.model.held = append(w.model.held, n)
	})
	if n == nil {
		return
	}
	w.write(n, 0, int(o.Len))
	if w.model.names[o.A] == nil {
		w.change(func() error { return second(w.vol.Link(n.ino, dir, o.A.name())) }, func() {
			w.model.names[o.A] = n
			n.links = 1
		})
	}
}

func (w *World) setXattr(n *node, size int) {
	if size == 0 {
		if n.xattr != nil {
			w.change(func() error { return w.vol.RemoveXattr(n.ino, xattrName) }, func() { n.xattr = nil })
		}
		return
	}
	value := w.pattern(size)
	w.change(func() error { return w.vol.SetXattr(n.ino, xattrName, value, 0) }, func() { n.xattr = value })
}

// forget closes n, or the oldest held inode if n is not held.
func (w *World) forget(n *node) {
	m := w.model
	i := slices.Index(m.held, n)
	if i < 0 {
		i = 0
	}
	if len(m.held) == 0 {
		return
	}
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	h.held = false
	w.vol.Forget(h.ino, 1)
}

// write stores bytes that no other write has.
func (w *World) write(n *node, off, size int) {
	if off+size > maxFile {
		return
	}
	b := w.pattern(size)
	for tries := 0; len(b) > 0; {
		k, err := 0, error(nil)
		w.during(true, func() {
			w.storing = storing{n, off, b}
			k, err = w.vol.Write(n.ino, uint64(off), b, false)
			w.storing = storing{}
		}, func() {
			if k > 0 {
				n.write(off, b[:k])
			}
			if 0 < k && k < len(b) {
				w.flushNow(n)
			}
		})
		if k > 0 {
			off, b, tries = off+k, b[k:], 0
		}
		if k > 0 && err == nil {
			continue
		}
		if !errors.Is(err, volume.ErrShort) {
			w.fail(fmt.Errorf("write: %d bytes, %w", k, err))
		}
		if tries++; tries >= w.tries() {
			w.full++
			return
		}
		w.checkpoint()
	}
}

const blockSize = layout.BlockSize

// maxFile bounds the files of a workload in bytes.
const maxFile = 256 << 10

// pattern is size bytes that differ from those of every other write, and none of which is zero.
func (w *World) pattern(size int) []byte {
	w.writes++
	b := make([]byte, size)
	x := w.cfg.Seed*0x9e3779b97f4a7c15 + w.writes*0xd1342543de82ef95
	for i := range b {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x>>(i%8*8)) | 1
	}
	return b
}

// tries of an operation: after the first and the second a checkpoint may help, but not beside the committer at work.
func (w *World) tries() int {
	if w.nested {
		return 1
	}
	return 3
}

// change does an operation that one record holds, as the file system does it: after ErrShort a checkpoint and another try, twice.
// do changes the volume, done the model. Without room nothing changes.
func (w *World) change(do func() error, done func()) { w.attempt(false, do, done, func() {}) }

// changeInSteps does an operation that may take several records. Without room part takes over what there is of it.
func (w *World) changeInSteps(do func() error, done, part func()) { w.attempt(true, do, done, part) }

func (w *World) attempt(steps bool, do func() error, done, part func()) {
	err := volume.ErrShort
	for try := 0; try < w.tries() && errors.Is(err, volume.ErrShort); try++ {
		if try > 0 {
			w.checkpoint()
		}
		w.during(steps, func() { err = do() }, func() {
			switch {
			case err == nil:
				done()
				w.model.clock++
			case errors.Is(err, volume.ErrShort):
				part()
			}
		})
	}
	switch {
	case errors.Is(err, volume.ErrShort):
		w.full++
	case err != nil:
		w.fail(fmt.Errorf("an operation that must succeed: %w", err))
	}
}

// equal tells the first offset at which a and b differ.
func equal(a, b []byte) (at int, ok bool) {
	if bytes.Equal(a, b) {
		return 0, true
	}
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return at, false
}
