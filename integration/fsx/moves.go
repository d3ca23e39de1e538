package fsx

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// turn is one operation under way.
type turn struct {
	*Game
	r    *rand.Rand
	f    *file
	text string // its parameters, for a report
}

type move struct {
	name   string
	weight int
	do     func(*turn) error
}

// moves lists what can be done, and how often.
var moves = []move{
	{"read", 120, func(t *turn) error { return t.read(t.f.plain) }},
	{"read through the mapping", 80, (*turn).mapRead},
	{"O_DIRECT read", 50, (*turn).directRead},
	{"O_DSYNC handle read", 30, func(t *turn) error { return t.read(t.f.dsync) }},
	{"write", 150, func(t *turn) error { return t.write(t.f.plain) }},
	{"O_DSYNC write", 30, func(t *turn) error { return t.write(t.f.dsync) }},
	{"O_APPEND write", 50, (*turn).appendWrite},
	{"O_DIRECT write", 50, (*turn).directWrite},
	{"store through the mapping", 100, (*turn).mapWrite},
	{"truncate", 60, (*turn).truncate},
	{"punch", 50, (*turn).punch},
	{"zero range", 40, (*turn).zeroRange},
	{"allocate", 40, (*turn).allocate},
	{"copy_file_range", 60, (*turn).copyRange},
	{"fsync", 20, func(t *turn) error { return unix.Fsync(t.f.plain) }},
	{"fdatasync", 10, func(t *turn) error { return unix.Fdatasync(t.f.direct) }},
	{"forget pages", 20, func(t *turn) error { return unix.Fadvise(t.f.plain, 0, 0, unix.FADV_DONTNEED) }},
	{"close and open", 6, (*turn).reopen},
	{"rename over", 6, (*turn).renameOver},
}

var allWeights = func() (sum int) {
	for _, m := range moves {
		sum += m.weight
	}
	return sum
}()

// dropCaches is rare: it empties the caches of the whole machine.
var dropCaches = move{"drop caches", 0, func(*turn) error {
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}}

func draw(r *rand.Rand) move {
	if r.IntN(50_000) == 0 {
		return dropCaches
	}
	n := r.IntN(allWeights)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			return m
		}
	}
	panic("unreachable: the weights do not add up")
}

// length is small most of the time, and at the borders of pages more often than chance would have it.
func (t *turn) length(most int) int {
	n := 1 + t.r.IntN(6000)
	switch t.r.IntN(16) {
	case 0:
		n = 1 + t.r.IntN(limit)
	case 1:
		n = page * (1 + t.r.IntN(16))
	case 2:
		n = 1 + t.r.IntN(20)
	}
	return min(n, most)
}

// offset is below most, or 0.
func (t *turn) offset(most int) int {
	if most <= 0 {
		return 0
	}
	off := t.r.IntN(most)
	if t.r.IntN(4) == 0 {
		off -= off % page
	}
	return off
}

// place is a range that may lie anywhere below limit.
func (t *turn) place() (off, n int) {
	most := limit
	if t.r.IntN(2) == 0 {
		most = min(len(t.f.model)+2*page, limit)
	}
	off = t.offset(most)
	n = t.length(limit - off)
	t.text = fmt.Sprintf("%d+%d", off, n)
	return off, n
}

// inside is a range within the file, empty if that is.
func (t *turn) inside() (off, n int) {
	off = t.offset(len(t.f.model))
	n = t.length(len(t.f.model) - off)
	t.text = fmt.Sprintf("%d+%d", off, n)
	return off, n
}

// bytes are the first n of t.data, filled anew.
func (t *turn) bytes(n int) []byte {
	b := t.data[:n]
	x := t.r.Uint64() | 1
	for i := range b {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (i % 8 * 8))
	}
	return b
}

func (t *turn) read(fd int) error {
	off, n := t.place()
	return t.readAt(fd, off, t.data[:n])
}

func (t *turn) readAt(fd, off int, buf []byte) error {
	n, err := unix.Pread(fd, buf, int64(off))
	if err != nil {
		return err
	}
	want := t.f.model[min(off, len(t.f.model)):]
	return compare(t.f.path, off, buf[:n], want[:min(len(buf), len(want))])
}

func (t *turn) mapRead() error {
	off, n := t.inside()
	return compare(t.f.path, off, t.f.mem[off:off+n], t.f.model[off:off+n])
}

func (t *turn) directRead() error {
	off, n := t.place()
	off -= off % sector
	n = min(n+sector-1, limit-off) &^ (sector - 1)
	t.text = fmt.Sprintf("%d+%d", off, n)
	return t.readAt(t.f.direct, off, t.aligned[:n])
}

func (t *turn) write(fd int) error {
	off, n := t.place()
	return t.writeAt(fd, off, t.bytes(n))
}

func (t *turn) writeAt(fd, off int, data []byte) error {
	n, err := unix.Pwrite(fd, data, int64(off))
	t.f.put(off, data[:max(n, 0)])
	if err == nil && n < len(data) {
		err = fmt.Errorf("%d bytes written of %d", n, len(data))
	}
	return err
}

func (t *turn) directWrite() error {
	off, n := t.place()
	off -= off % sector
	n = min(n+sector-1, limit-off) &^ (sector - 1)
	t.text = fmt.Sprintf("%d+%d", off, n)
	copy(t.aligned, t.bytes(n))
	return t.writeAt(t.f.direct, off, t.aligned[:n])
}

func (t *turn) appendWrite() error {
	end := len(t.f.model)
	data := t.bytes(t.length(limit - end))
	t.text = fmt.Sprintf("%d+%d", end, len(data))
	n, err := unix.Write(t.f.app, data)
	t.f.put(end, data[:max(n, 0)])
	if err == nil && n < len(data) {
		err = fmt.Errorf("%d bytes written of %d", n, len(data))
	}
	return err
}

func (t *turn) mapWrite() error {
	off, n := t.inside()
	data := t.bytes(n)
	copy(t.f.mem[off:], data)
	t.f.put(off, data)
	if n == 0 || t.r.IntN(2) == 0 {
		return nil
	}
	t.text += " msync"
	lo := off &^ (page - 1)
	return unix.Msync(t.f.mem[lo:off+n], unix.MS_SYNC)
}

func (t *turn) truncate() error {
	size, _ := t.place()
	t.text = fmt.Sprintf("to %d", size)
	if err := unix.Ftruncate(t.f.plain, int64(size)); err != nil {
		return err
	}
	t.f.resize(size)
	return nil
}

func (t *turn) punch() error {
	off, n := t.place()
	t.f.zero(off, n)
	return unix.Fallocate(t.f.plain, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
}

func (t *turn) zeroRange() error {
	off, n := t.place()
	t.f.zero(off, n)
	return t.fallocate(unix.FALLOC_FL_ZERO_RANGE, off, n)
}

func (t *turn) allocate() error {
	off, n := t.place()
	return t.fallocate(0, off, n)
}

// fallocate grows the file half of the time.
func (t *turn) fallocate(mode uint32, off, n int) error {
	if t.r.IntN(2) == 0 {
		mode |= unix.FALLOC_FL_KEEP_SIZE
		t.text += " keep size"
	} else {
		t.f.grow(off + n)
	}
	return unix.Fallocate(t.f.plain, mode, int64(off), int64(n))
}

// copyRange copies within a file or from another one.
func (t *turn) copyRange() error {
	from := t.files[t.r.IntN(files)]
	off := t.offset(len(from.model))
	n := t.length(len(from.model) - off)
	to := t.offset(limit - n + 1)
	t.text = fmt.Sprintf("%d from %s %d to %d", n, from.path, off, to)
	if n == 0 || from == t.f && off < to+n && to < off+n {
		return nil // the same bytes on both sides are an error
	}
	in, out := int64(off), int64(to)
	for left := n; left > 0; {
		k, err := unix.CopyFileRange(from.plain, &in, t.f.plain, &out, left, 0)
		if err != nil || k <= 0 {
			return errors.Join(fmt.Errorf("%d bytes left", left), err)
		}
		left -= k
	}
	t.f.put(to, append(t.data[:0], from.model[off:off+n]...))
	return nil
}

func (t *turn) reopen() error {
	if err := t.f.close(); err != nil {
		return err
	}
	return t.f.open(t.r.IntN(3) == 0)
}

// renameOver puts a new file in the place of t.f. The descriptors of the old one must still show what it had.
func (t *turn) renameOver() error {
	old := *t.f
	next := &file{path: old.path, model: make([]byte, 0, limit)}
	data := t.bytes(t.length(limit))
	t.text = fmt.Sprintf("with %d bytes", len(data))
	next.put(0, data)
	if err := os.WriteFile(old.path+".new", data, 0o644); err != nil {
		return err
	}
	if err := os.Rename(old.path+".new", old.path); err != nil {
		return err
	}
	if t.r.IntN(2) == 0 {
		if err := unix.Fadvise(old.plain, 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
	}
	for _, read := range []func() error{
		func() error { return t.readAt(old.plain, 0, t.data) },
		func() error {
			return compare("the mapping of the replaced "+old.path, 0, old.mem[:len(old.model)], old.model)
		},
		old.close,
	} {
		if err := read(); err != nil {
			return fmt.Errorf("replaced file: %w", err)
		}
	}
	*t.f = *next
	return t.f.open(t.r.IntN(3) == 0)
}
