package volume

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The model: what a file system is, in maps. A node keeps beside its content what a crash would leave of it (flushed),
// and what was ever written to it, since bytes written in place may survive without a flush.
type mnode struct {
	ino           Ino
	mode, uid     uint32
	nlink         uint32
	data, flushed []byte
	at            int // number of writes at the flush
	writes        []mwrite
	target        string
	xattrs        map[string]string
	names         map[string]*mnode
	parent        *mnode
	held          bool
	unnamed       bool // and never had a name
}

type mwrite struct {
	off  int
	data []byte
}

func (n *mnode) dir() bool { return isDir(n.mode) }
func (n *mnode) reg() bool { return isReg(n.mode) }

func (n *mnode) flush() {
	n.flushed = bytes.Clone(n.data)
	n.at = len(n.writes)
}

// wrote tells whether this byte was written after the flush.
func (n *mnode) wrote(off int, c byte) bool {
	for _, w := range n.writes[n.at:] {
		if off >= w.off && off < w.off+len(w.data) && w.data[off-w.off] == c {
			return true
		}
	}
	return false
}

// snapshot is a copy of the tree below n as a crash would leave it. Writes are shared: those that come later count too.
func (n *mnode) snapshot(parent *mnode, done map[*mnode]*mnode) *mnode {
	if s := done[n]; s != nil {
		return s
	}
	s := *n
	done[n] = &s
	s.data, s.flushed = bytes.Clone(n.flushed), bytes.Clone(n.flushed)
	s.xattrs, s.names, s.parent, s.held = maps.Clone(n.xattrs), nil, parent, false
	if n.names != nil {
		s.names = make(map[string]*mnode)
		for name, c := range n.names {
			s.names[name] = c.snapshot(&s, done)
		}
	}
	return &s
}

type fuzzer struct {
	*rig
	rnd   *rand.Rand
	root  *mnode
	snaps map[uint64]*mnode // by group: what a crash then leaves
	life  map[Ino]*mnode    // every file there was since the last crash: what was written to it may be found after the next
	held  []*mnode
	log   []string
}

func newFuzzer(r *rig, rnd *rand.Rand) *fuzzer {
	f := &fuzzer{rig: r, rnd: rnd}
	f.root = &mnode{ino: Root, mode: syscall.S_IFDIR | 0755, nlink: 2, names: make(map[string]*mnode)}
	f.root.parent = f.root
	f.keepOnly(0)
	return f
}

// keepOnly starts a life: only its first state can be recovered to.
func (f *fuzzer) keepOnly(lsn uint64) {
	f.life = make(map[Ino]*mnode)
	for _, n := range f.nodes((*mnode).reg) {
		n.flush()
		f.life[n.ino] = n
	}
	f.snaps = map[uint64]*mnode{lsn: f.root.snapshot(nil, make(map[*mnode]*mnode))}
}

func (f *fuzzer) op(format string, args ...any) { f.log = append(f.log, fmt.Sprintf(format, args...)) }

// dirs and files list the nodes that have a name.
func (f *fuzzer) nodes(want func(*mnode) bool) (out []*mnode) {
	seen := make(map[*mnode]bool)
	var walk func(n *mnode)
	walk = func(n *mnode) {
		if !seen[n] && want(n) {
			out = append(out, n)
		}
		seen[n] = true
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			walk(n.names[name])
		}
	}
	walk(f.root)
	return out
}

func pick[T any](rnd *rand.Rand, s []T) T { return s[rnd.IntN(len(s))] }

func (f *fuzzer) name() string {
	names := []string{"a", "b", "c", "d", "e", strings.Repeat("long", 60), "ü\xff\x01"}
	return pick(f.rnd, names)
}

// expect compares an errno with what the model says.
func (f *fuzzer) expect(err, errno error) bool {
	f.t.Helper()
	if (errno == nil) != (err == nil) || errno != nil && err != errno {
		f.fatal("%v, expected %v", err, errno)
	}
	return err == nil
}

func (f *fuzzer) fatal(format string, args ...any) {
	f.t.Helper()
	for _, l := range f.log[max(0, len(f.log)-400):] {
		f.t.Log(l)
	}
	f.t.Fatalf(format, args...)
}

func (f *fuzzer) random() {
	dirs, regs := f.nodes((*mnode).dir), f.nodes((*mnode).reg)
	for _, h := range f.held {
		if h.nlink == 0 && h.reg() {
			regs = append(regs, h)
		}
	}
	d, name := pick(f.rnd, dirs), f.name()
	switch k := f.rnd.IntN(100); {
	case k < 12:
		f.make(d, name)
	case k < 18:
		f.unlink(d, name)
	case k < 22:
		f.rmdir(d, name)
	case k < 30:
		f.rename(d, name, pick(f.rnd, dirs), f.name(), pick(f.rnd, []uint32{0, 0, RenameNoReplace, RenameExchange, whiteout}))
	case k < 79 && len(regs) == 0:
	case k < 34:
		f.link(pick(f.rnd, regs), d, name)
	case k < 54:
		f.write(pick(f.rnd, regs))
	case k < 62:
		f.truncate(pick(f.rnd, regs))
	case k < 66:
		f.fallocate(pick(f.rnd, regs))
	case k < 67:
		f.setACL(pick(f.rnd, append(dirs, regs...)))
	case k < 70:
		f.xattr(pick(f.rnd, append(dirs, regs...)))
	case k < 73:
		f.chmod(pick(f.rnd, append(dirs, regs...)))
	case k < 76:
		f.hold(pick(f.rnd, append(dirs, regs...)))
	case k < 79:
		f.flush(pick(f.rnd, regs))
	case k < 80:
		f.tmpfile(d)
	case k < 83:
		if len(f.held) > 0 {
			i := f.rnd.IntN(len(f.held))
			f.held[i].held = false
			f.v.Forget(f.held[i].ino, 1)
			f.held = slices.Delete(f.held, i, i+1)
		}
	case k < 85:
		f.op("reclaim")
		if _, err := f.v.Reclaim(); err != nil {
			f.fatal("reclaim: %v", err)
		}
	case k < 92:
		f.close()
	case k < 95:
		f.epoch()
	default:
		f.op("step")
		f.step()
	}
}

// offset is one that likes the borders of blocks and the end of the file.
func (f *fuzzer) offset(n *mnode) int {
	base := pick(f.rnd, []int{0, len(n.data), 4096, 8192, 40960, 65536})
	return max(0, base+pick(f.rnd, []int{0, 0, 1, -1, 100, -100, f.rnd.IntN(9000)}))
}

func (f *fuzzer) write(n *mnode) {
	off, size := f.offset(n), pick(f.rnd, []int{1, 64, 4095, 4096, 4097, 1 + f.rnd.IntN(20000)})
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(f.rnd.Uint32()) | 1
	}
	f.op("write %d %d+%d", n.ino, off, size)
	f.rig.write(n.ino, uint64(off), data)
	if grow := off + size - len(n.data); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	copy(n.data[off:], data)
	n.writes = append(n.writes, mwrite{off, data})
}

func (f *fuzzer) truncate(n *mnode) {
	size := f.offset(n)
	f.op("truncate %d %d", n.ino, size)
	f.rig.truncate(n.ino, uint64(size))
	if size <= len(n.data) {
		n.data = n.data[:size:size]
	} else {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
	n.flush()
}

func (f *fuzzer) fallocate(n *mnode) {
	off, size := f.offset(n), 1+f.rnd.IntN(50000)
	mode := pick(f.rnd, []string{"", "keep", "punch", "punch", "zero", "zero keep"})
	f.op("fallocate %q %d %d+%d", mode, n.ino, off, size)
	var err error
	switch mode {
	case "":
		err = f.v.Fallocate(n.ino, uint64(off), uint64(size))
	case "keep":
		err = f.v.Preallocate(n.ino, uint64(off), uint64(size))
	case "punch":
		err = f.v.PunchHole(n.ino, uint64(off), uint64(size))
	default:
		err = f.v.ZeroRange(n.ino, uint64(off), uint64(size), mode == "zero keep")
	}
	f.expect(err, nil)
	if grow := off + size - len(n.data); grow > 0 && (mode == "" || mode == "zero") {
		n.data = append(n.data, make([]byte, grow)...)
	}
	if strings.HasPrefix(mode, "punch") || strings.HasPrefix(mode, "zero") {
		clear(n.data[min(off, len(n.data)):min(off+size, len(n.data))])
	}
	n.flush()
}

func (f *fuzzer) hold(n *mnode) {
	if n.held {
		return
	}
	f.op("hold %d", n.ino)
	f.v.Hold(n.ino)
	n.held = true
	f.held = append(f.held, n)
}

func (f *fuzzer) flush(n *mnode) {
	f.op("flush %d", n.ino)
	if _, err := f.v.FlushFile(n.ino); err != nil {
		f.fatal("flush: %v", err)
	}
	n.flush()
}

func (f *fuzzer) close() {
	if f.rnd.IntN(3) == 0 {
		f.op("flush all")
		if _, err := f.v.FlushAll(); err != nil {
			f.fatal("flush: %v", err)
		}
		for _, n := range append(f.nodes((*mnode).reg), f.held...) {
			n.flush()
		}
	}
	f.op("close group")
	if _, err := f.v.CloseGroup(); err != nil {
		f.fatal("close: %v", err)
	}
	f.closed()
}

func (f *fuzzer) closed() {
	if lsn := f.v.LSN(); f.snaps[lsn] == nil {
		f.snaps[lsn] = f.root.snapshot(nil, make(map[*mnode]*mnode))
	}
}

func (f *fuzzer) epoch() {
	f.op("close epoch")
	if _, err := f.v.CloseEpoch(); err != nil {
		f.fatal("epoch: %v", err)
	}
	f.closed()
}

func TestRandomAgainstModel(t *testing.T) {
	rnd := random(t)
	const rounds, ops = 30, 150
	r := newRig(t, 16<<20, Params{NodeSize: pick(rnd, []uint32{1024, 2048, 4096}), LogLen: 2 << 20})
	f := newFuzzer(r, rnd)
	for range rounds {
		for range 1 + rnd.IntN(ops) {
			f.random()
		}
		f.compare(f.root, true, make(map[Ino]*mnode))
		f.check()
		if f.rnd.IntN(4) > 0 {
			f.crashed(pick(rnd, []float64{0, 1, 0.5, 0.1, 0.9}))
		}
	}
}
