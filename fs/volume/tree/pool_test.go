package tree

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

var testUUID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func newKey(hi, lo uint64) Key { return Key{Hi: hi, Lo: lo} }

// pool is memory for nodes. It hands them out in random order, fills freed ones with rubbish, and refuses to free what
// was not allocated in the open epoch.
type pool struct {
	bytes    []byte
	nodeSize int
	free     []uint64
	open     map[uint64]bool // allocated in the open epoch
	limit    int             // allocations still allowed, if not negative
	allocs   int             // allocations that succeeded
	t        testing.TB
}

func newPool(t testing.TB, nodeSize, nodes int, rng *rand.Rand) *pool {
	p := &pool{bytes: make([]byte, nodeSize*(nodes+1)), nodeSize: nodeSize, open: map[uint64]bool{}, limit: -1, t: t}
	for i := nodes; i > 0; i-- {
		p.free = append(p.free, uint64(i*nodeSize))
	}
	if rng != nil {
		rng.Shuffle(nodes, func(i, j int) { p.free[i], p.free[j] = p.free[j], p.free[i] })
	}
	return p
}

func (p *pool) config() Config {
	return Config{Bytes: p.bytes, NodeSize: p.nodeSize, UUID: testUUID, Nodes: p}
}

func (p *pool) node(off uint64) []byte { return p.bytes[off : off+uint64(p.nodeSize)] }

func (p *pool) AllocNode() (uint64, bool) {
	last := len(p.free) - 1
	if last < 0 || p.limit == 0 {
		return 0, false
	}
	p.limit--
	p.allocs++
	off := p.free[last]
	p.free = p.free[:last]
	p.open[off] = true
	return off, true
}

func (p *pool) FreeNode(off uint64) {
	if !p.open[off] {
		p.t.Fatalf("free of node %d, which the open epoch did not allocate", off)
	}
	delete(p.open, off)
	p.release(off)
}

func (p *pool) release(off uint64) {
	b := p.node(off)
	for i := range b {
		b[i] = 0xdb
	}
	p.free = append(p.free, off)
}

// checker drives a tree and a map side by side, over epochs.
type checker struct {
	*pool
	tree   *Tree
	model  map[Key][]byte
	rng    *rand.Rand
	frozen map[uint64][]byte // copies of all immutable nodes
	wait   [2][]uint64       // replaced nodes, by how many flips ago
	ranges []pmem.Range
	keys   int // how many different keys there are
	maxLen int
}

func newChecker(t testing.TB, nodeSize, keys, mib int, seed uint64) *checker {
	rng := rand.New(rand.NewPCG(seed, uint64(nodeSize)))
	p := newPool(t, nodeSize, mib<<20/nodeSize, rng)
	tr, err := Create(p.config(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return &checker{pool: p, tree: tr, model: map[Key][]byte{}, rng: rng, frozen: map[uint64][]byte{}, keys: keys, maxLen: 40}
}

// key is one of c.keys keys, in clusters of 16 that share Hi.
func (c *checker) key() Key {
	n := c.rng.IntN(c.keys)
	return newKey(uint64(n/16), uint64(n%16)<<56)
}

func (c *checker) value() []byte {
	n := c.rng.IntN(c.maxLen + 1)
	if c.rng.IntN(50) == 0 {
		n = c.rng.IntN(MaxValue(c.nodeSize) + 1)
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte(c.rng.Uint32())
	}
	return v
}

// edit makes one random change to both; puts of a hundred are puts.
func (c *checker) edit(puts int) {
	k := c.key()
	old, had := c.model[k]
	switch {
	case c.rng.IntN(100) >= puts:
		ok, err := c.tree.Delete(k)
		if err != nil || ok != had {
			c.t.Fatalf("delete %x: %v, %v; want %v", k, ok, err, had)
		}
		delete(c.model, k)
	case had && len(old) > 0 && c.rng.IntN(4) == 0:
		off := c.rng.IntN(len(old))
		b := c.value()
		b = b[:min(len(b), len(old)-off)]
		if err := c.tree.Patch(k, off, b); err != nil {
			c.t.Fatalf("patch %x: %v", k, err)
		}
		copy(old[off:], b)
	default:
		v := c.value()
		if had && c.rng.IntN(3) == 0 {
			v = append(v, old...)[:len(old)]
		}
		if err := c.tree.Put(k, v); err != nil {
			c.t.Fatalf("put %x: %v", k, err)
		}
		c.model[k] = v
	}
}

// checkReads compares Get, Floor and Ascend for random keys.
func (c *checker) checkReads(sorted []Key) {
	for range 50 {
		k := c.key()
		k.Lo += c.rng.Uint64N(2)
		v, ok := c.tree.Get(k)
		if want, in := c.model[k]; ok != in || !bytes.Equal(v, want) {
			c.t.Fatalf("get %x: %x, %v; want %x, %v", k, v, ok, want, in)
		}
		i, exact := slices.BinarySearchFunc(sorted, k, Key.Compare)
		if !exact {
			i--
		}
		fk, fv, ok := c.tree.Floor(k)
		if ok != (i >= 0) || ok && (fk != sorted[i] || !bytes.Equal(fv, c.model[fk])) {
			c.t.Fatalf("floor %x: %x, %v", k, fk, ok)
		}
		c.checkAscend(sorted, k)
	}
}

func (c *checker) checkAscend(sorted []Key, from Key) {
	to := from
	to.Hi += c.rng.Uint64N(20)
	i, _ := slices.BinarySearchFunc(sorted, from, Key.Compare)
	stop := i + c.rng.IntN(100)
	c.tree.Ascend(from, to, func(k Key, v []byte) bool {
		if k != sorted[i] || !bytes.Equal(v, c.model[k]) || !k.Less(to) {
			c.t.Fatalf("ascend from %x to %x: found %x, want %x", from, to, k, sorted[i])
		}
		i++
		return i != stop
	})
	if i != stop && i < len(sorted) && sorted[i].Less(to) {
		c.t.Fatalf("ascend from %x to %x ended before %x", from, to, sorted[i])
	}
}

// checkAll walks the tree and compares all of it: entries with the model, nodes with what is allocated, and immutable
// nodes with their copies.
func (c *checker) checkAll() {
	sorted := slices.SortedFunc(maps.Keys(c.model), Key.Compare)
	nodes, born, i := map[uint64]bool{}, 0, 0
	err := c.tree.Walk(true, func(off uint64, level int, birth uint64) error {
		if nodes[off] || level >= c.tree.height {
			c.t.Fatalf("node %d of level %d is met twice", off, level)
		}
		nodes[off] = true
		if birth == c.tree.Epoch() {
			born++
		} else if !bytes.Equal(c.node(off), c.frozen[off]) {
			c.t.Fatalf("node %d of epoch %d changed", off, birth)
		}
		return nil
	}, func(k Key, v []byte) error {
		if i >= len(sorted) || k != sorted[i] || !bytes.Equal(v, c.model[k]) {
			c.t.Fatalf("entry %d is %x", i, k)
		}
		i++
		return nil
	})
	if err != nil || i != len(sorted) || born != c.tree.Born() || c.tree.Err() != nil {
		c.t.Fatalf("walk: %v; %d entries of %d; %d nodes born, tree says %d", err, i, len(sorted), born, c.tree.Born())
	}
	for off, copied := range c.frozen {
		if !bytes.Equal(c.node(off), copied) {
			c.t.Fatalf("immutable node %d changed", off)
		}
	}
	all := len(c.bytes)/c.nodeSize - 1
	if got := all - len(c.free); got != len(nodes)+len(c.tree.Replaced())+len(c.wait[0])+len(c.wait[1]) {
		c.t.Fatalf("%d nodes are allocated, but %d are reached and %d wait", got, len(nodes), len(c.tree.Replaced()))
	}
	c.checkReads(sorted)
}

// flip ends the epoch; nodes replaced two flips ago become free.
func (c *checker) flip() {
	born := c.tree.Born()
	c.ranges = c.tree.Freeze(c.ranges[:0])
	covered := 0
	for i, r := range c.ranges {
		if i > 0 && c.ranges[i-1].Off+c.ranges[i-1].Len >= r.Off {
			c.t.Fatalf("ranges %v and %v are not sorted and merged", c.ranges[i-1], r)
		}
		for off := r.Off; off < r.Off+r.Len; off += uint64(c.nodeSize) {
			if !c.open[off] {
				c.t.Fatalf("range %v holds node %d, not of this epoch", r, off)
			}
			covered++
			c.frozen[off] = bytes.Clone(c.node(off))
		}
	}
	if covered != born || covered != len(c.open) {
		c.t.Fatalf("ranges cover %d nodes, %d were born, %d allocated", covered, born, len(c.open))
	}
	clear(c.open)
	for _, off := range c.wait[1] {
		delete(c.frozen, off)
		c.release(off)
	}
	c.wait[1], c.wait[0] = c.wait[0], c.tree.TakeReplaced()
}

// reopen makes a new Tree over the same bytes, as a mount does.
func (c *checker) reopen() {
	root, birth, height := c.tree.Root()
	c.tree = New(c.config(), root, birth, height, c.tree.Epoch())
}

// build is a frozen tree of n entries.
func build(t testing.TB, nodeSize, n int, seed uint64) *checker {
	c := newChecker(t, nodeSize, 4*n, 20, seed)
	for len(c.model) < n {
		c.edit(100)
	}
	c.flip()
	return c
}

func isCorrupt(t *testing.T, err error) {
	t.Helper()
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(layout.ErrCorrupt.Error())) {
		t.Errorf("got %v, want an error that wraps ErrCorrupt", err)
	}
}
