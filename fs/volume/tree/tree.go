package tree

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Errors that callers decide by.
var (
	// ErrNoNodes: the change needs more nodes than there are; nothing was changed.
	ErrNoNodes = errors.New("tree: no free nodes")
	// ErrNotFound: a patch of a key that is not there.
	ErrNotFound = errors.New("tree: no such key")
	// ErrTooLarge: a value longer than MaxValue, or a patch beyond the end of its value.
	ErrTooLarge = errors.New("tree: value too large")
)

// Nodes gives and takes the space of nodes. AllocNode returns an offset that is aligned to the node size and lies within
// Config.Bytes. FreeNode is called only for nodes that were allocated in the open epoch.
type Nodes interface {
	AllocNode() (off uint64, ok bool)
	FreeNode(off uint64)
}

// Config is what a tree works on. Bytes is the whole pool: the index of a byte is its pool offset. NodeSize is 1024, 2048
// or 4096.
type Config struct {
	Bytes    []byte
	NodeSize int
	UUID     [16]byte
	Nodes    Nodes
}

// step is one node of the path from the root to a leaf, and the slot that the path takes in it.
type step struct {
	off  uint64
	nd   node
	slot int
}

// Tree is the tree of one pool.
type Tree struct {
	bytes    []byte
	nodeSize int
	maxValue int
	uuid     [16]byte
	nodes    Nodes

	root, rootBirth uint64
	height          int
	epoch           uint64
	born            int // nodes born in the open epoch

	replaced []uint64 // older nodes that this epoch dropped
	handed   []uint64 // those of the epoch that Freeze ended
	err      atomic.Pointer[error]
	bad      map[uint64]bool // see Salvage

	proven     []uint64 // a bit per place of a node, set once its CRC was right; nil without ProveNodes
	provenFrom uint64   // nodes of this epoch and later ones need no proof

	// For changes only, to spare allocations.
	path    [layout.MaxHeight + 1]step // by level
	spare   [2*layout.MaxHeight + 2]uint64
	spares  int
	pointer [childSize]byte
	scratch node
}

// New opens a tree with a given root. Epoch is the one in which changes will be born: greater than rootBirth, unless the
// root was born in a tree that is still open.
func New(c Config, root, rootBirth uint64, height int, epoch uint64) *Tree {
	return &Tree{
		bytes: c.Bytes, nodeSize: c.NodeSize, maxValue: MaxValue(c.NodeSize), uuid: c.UUID, nodes: c.Nodes,
		root: root, rootBirth: rootBirth, height: height, epoch: epoch, scratch: make(node, c.NodeSize),
	}
}

// Create makes a tree of one empty leaf, born in the given epoch.
func Create(c Config, epoch uint64) (*Tree, error) {
	t := New(c, 0, epoch, 1, epoch)
	if !t.take(1) {
		return nil, ErrNoNodes
	}
	t.root, _ = t.birth(0)
	return t, nil
}

// MaxValue is the length in bytes of the longest value in nodes of that size: two of them fit into a node.
func MaxValue(nodeSize int) int { return (nodeSize-slotsOff)/2 - slotSize }

// Root is where the tree stands now.
func (t *Tree) Root() (off, birth uint64, height int) { return t.root, t.rootBirth, t.height }

// Epoch is the open epoch.
func (t *Tree) Epoch() uint64 { return t.epoch }

// Born is the number of nodes born in the open epoch.
func (t *Tree) Born() int { return t.born }

// Replaced lists the nodes of older epochs that the open one has dropped so far. It is a view, valid until the next change.
func (t *Tree) Replaced() []uint64 { return t.replaced }

// Extend replaces Config.Bytes by a slice that begins at the same place and is longer: the pool has grown.
func (t *Tree) Extend(b []byte) { t.bytes = b }

// at is the bytes of the node at an offset that is known to be good.
func (t *Tree) at(off uint64) node {
	end := off + uint64(t.nodeSize)
	return node(t.bytes[off:end:end])
}

// enterRoot starts every way down.
func (t *Tree) enterRoot() (node, error) {
	if t.height < 1 || t.height > layout.MaxHeight {
		return nil, t.damaged(t.root, "height", uint64(t.height), fmt.Sprintf("1 to %d", layout.MaxHeight))
	}
	return t.enter(t.root, t.rootBirth, t.height-1)
}

// descend fills the path to the leaf of k; the leaf's slot is that of k, or the one that k would get.
func (t *Tree) descend(k Key) (found bool, err error) {
	nd, err := t.enterRoot()
	for level := t.height - 1; err == nil; level-- {
		s := &t.path[level]
		s.off, s.nd = nd.self(), nd
		if level == 0 {
			s.slot, found = nd.find(k)
			return found, nil
		}
		s.slot = nd.route(k)
		nd, err = t.enterChild(nd, s.slot)
	}
	return false, err
}
