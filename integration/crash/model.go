package crash

import (
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// The model: what the file system should hold, in maps.
//
// Names and attributes belong to the next group at once. Content belongs to it when its file is flushed: by fsync, by a
// change of the size, as the source of a rename over something, or whenever the volume likes to do it earlier. So a
// state that a copy recovers to has the names of one moment, and of each file one of the versions between its last
// flush before that moment and the moment itself. Bytes that were written in place later may show as well.

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
}

// version is a content of a file.
type version struct {
	data []byte // never changed
	at   int    // writes that came before
}

// write is what was stored at off once.
type write struct {
	off  int
	data []byte
}

func newNode(ino volume.Ino, dir bool, mode uint32) *node {
	return &node{ino: ino, dir: dir, mode: mode, links: 1, versions: []version{{}}}
}

func (n *node) data() []byte { return n.versions[len(n.versions)-1].data }

func (n *node) set(data []byte) { n.versions = append(n.versions, version{data, len(n.writes)}) }

// flush says that the group has the present content. It tells whether that is news.
func (n *node) flush() bool {
	was := n.flushed
	n.flushed = len(n.versions) - 1
	return n.flushed != was
}

// write stores b at off in the model.
func (n *node) write(off int, b []byte) {
	n.writes = append(n.writes, write{off, b})
	old := n.data()
	data := make([]byte, max(len(old), off+len(b)))
	copy(data, old)
	copy(data[off:], b)
	n.set(data)
}

// resize cuts or extends the content; like every change of the size it flushes.
func (n *node) resize(size int) {
	data := make([]byte, size)
	copy(data, n.data())
	n.set(data)
	n.flush()
}

// wrote tells whether the byte c was stored at off after version v.
func (n *node) wrote(v version, off int, c byte) bool {
	for _, w := range n.writes[v.at:] {
		if off >= w.off && off < w.off+len(w.data) && w.data[off-w.off] == c {
			return true
		}
	}
	return false
}

// model is the live state.
type model struct {
	dirs  [2]volume.Ino
	more  int // files in the root that nobody looks at
	names map[Path]*node
	held  []*node // held nodes without a name included
	// clock counts the changes that a group has got.
	clock uint64
}

// state is what a copy must hold that recovers to one group.
type state struct {
	clock   uint64
	entries []entry // sorted by path
	inodes  uint64
	more    int    // files in the root that nobody looks at
	before  *state // the group was closed in the middle of an operation: the state before it is right too
}

// entry is a name with what a state says of its inode.
type entry struct {
	path   Path
	node   *node
	mode   uint32
	links  int
	xattr  []byte
	lo, hi int // versions of the content that may show
}

func (m *model) state() *state {
	s := &state{clock: m.clock, more: m.more, inodes: uint64(len(m.dirs) + m.more)}
	seen := make(map[*node]bool, len(m.names))
	for p, n := range m.names {
		s.entries = append(s.entries, entry{p, n, n.mode, n.links, n.xattr, n.flushed, len(n.versions) - 1})
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
