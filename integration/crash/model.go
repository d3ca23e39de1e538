package crash

import (
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// The model: what the file system should hold, in maps.
//
// Names and attributes belong to the next group at once. Content belongs to it when its file is flushed: by fsync, by a
// change of the size, as the source of a rename over something, or whenever the volume likes to do it earlier, of which it
// tells. So a state that a copy recovers to has the names of one moment, and of each file the version flushed last before that
// moment. Bytes that were written in place later may show as well.

// node is an inode.
type node struct {
	ino   volume.Ino
	dir   bool
	mode  uint32
	links int
	held  bool
	xattr []byte // nil: none

	versions []version // of the content, the last one is what readers see
	flushed  int       // the version that the open group or an earlier one has
	writes   []write
	zeroed   bool // a block of zeros may be a written one
}

// version is a content of a file.
type version struct {
	data    []byte // never changed
	at      int    // writes that came before
	partial bool   // a part of the next write is there too
}

// write is what was stored at off once.
type write struct {
	off  int
	data []byte
}

func (n *node) data() []byte { return n.versions[len(n.versions)-1].data }

func (n *node) set(data []byte) {
	n.versions = append(n.versions, version{data: data, at: len(n.writes)})
}

// flush says that the group has the present content. It tells whether that is news.
func (n *node) flush() bool {
	was := n.flushed
	n.flushed = len(n.versions) - 1
	return n.flushed != was
}

// with is the present content with b at off.
func (n *node) with(off int, b []byte) []byte {
	old := n.data()
	data := make([]byte, max(len(old), off+len(b)))
	copy(data, old)
	copy(data[off:], b)
	return data
}

// write stores b at off in the model.
func (n *node) write(off int, b []byte) {
	n.writes = append(n.writes, write{off, b})
	n.set(n.with(off, b))
}

// resize cuts or extends the content; like every change of the size it flushes. Of the block in which it cuts only zeros may be left.
func (n *node) resize(size int) {
	n.zeroed = n.zeroed || size < len(n.data()) && allZero(n.data()[size/blockSize*blockSize:size])
	data := make([]byte, size)
	copy(data, n.data())
	n.set(data)
	n.flush()
}

// wrote tells whether the byte c may be at off, stored there after version v. Where v has a whole block of zeros there is a hole, or the block is unwritten,
// so nothing is stored there in place; unless v has a part of the next write, which may have got this block.
func (n *node) wrote(v version, off int, c byte) bool {
	first := off / blockSize * blockSize
	block := v.data[first:]
	later := n.writes[v.at:]
	inPlace := n.zeroed || !allZero(block[:min(blockSize, len(block))]) ||
		v.partial && len(later) > 0 && later[0].touches(first, first+blockSize)
	for i, w := range later {
		if (inPlace || i == 0 && v.partial) && w.touches(off, off+1) && w.data[off-w.off] == c {
			return true
		}
	}
	return false
}

// touches tells whether w stores to a byte from from up to to.
func (w *write) touches(from, to int) bool { return w.off < to && from < w.off+len(w.data) }

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// model is the live state.
type model struct {
	dirs  [2]volume.Ino
	more  int // files in the root that nobody looks at
	names map[Path]*node
	held  []*node // held nodes without a name included
	// inodes are all that this life has seen, by number.
	inodes map[volume.Ino]*node
	// clock counts the changes that a group has got.
	clock uint64
}

// state is what a copy must hold that recovers to one group.
type state struct {
	clock   uint64
	entries []entry // sorted by path
	inodes  uint64
	more    int    // files in the root that nobody looks at
	after   *state // the group was closed in the middle of an operation in steps: the state after it is right too
}

// entry is a name with what a state says of its inode.
type entry struct {
	path    Path
	node    *node
	mode    uint32
	links   int
	xattr   []byte
	content version
}

func newModel(more int) *model {
	return &model{dirs: rootDirs, more: more, names: make(map[Path]*node), inodes: make(map[volume.Ino]*node)}
}

// make adds an inode.
func (m *model) make(ino volume.Ino, dir bool, mode uint32) *node {
	n := &node{ino: ino, dir: dir, mode: mode, links: 1, versions: []version{{}}}
	m.inodes[ino] = n
	return n
}

// state is what the open group makes of the groups before it.
func (m *model) state() *state { return m.snapshot(func(n *node) int { return n.flushed }) }

// present is what readers see.
func (m *model) present() *state { return m.snapshot(func(n *node) int { return len(n.versions) - 1 }) }

// snapshot is the state with the version of each file that content chooses.
func (m *model) snapshot(content func(n *node) int) *state {
	s := &state{clock: m.clock, more: m.more, inodes: uint64(len(m.dirs) + m.more)}
	seen := make(map[*node]bool, len(m.names))
	for p, n := range m.names {
		s.entries = append(s.entries, entry{p, n, n.mode, n.links, n.xattr, n.versions[content(n)]})
		if !seen[n] {
			seen[n] = true
			s.inodes++
		}
	}
	slices.SortFunc(s.entries, func(a, b entry) int { return comparePaths(a.path, b.path) })
	return s
}

func comparePaths(a, b Path) int {
	return int(a.Dir)<<8 + int(a.Name) - int(b.Dir)<<8 - int(b.Name)
}

// remove takes a name from its inode.
func (m *model) remove(p Path) {
	m.names[p].links--
	delete(m.names, p)
}

// line is a history: what each group of a copy stands for, and what was acknowledged.
type line struct {
	states map[uint64]*state // by group
	acked  uint64            // changes that an fsync has acknowledged: the clock of no copy may be behind
}

func newLine(lsn uint64, s *state) *line {
	return &line{states: map[uint64]*state{lsn: s}, acked: s.clock}
}
