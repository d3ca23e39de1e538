package tree

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Hundreds of thousands of random edits per node size over many epochs, growing and shrinking by turns down to nothing. Each
// epoch compares everything with a map, and every immutable node with its copy.
func TestTree_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, nodeSize := range []int{1024, 2048, 4096} {
		c := newChecker(t, nodeSize, 12000, 40, seed)
		for epoch := range 40 {
			puts := []int{90, 60, 50, 10}[epoch/5%4]
			for range 1 + c.rng.IntN(7000) {
				c.edit(puts)
			}
			if epoch%7 == 0 {
				c.checkAll()
			}
			c.flip()
			if epoch%5 == 0 {
				c.reopen()
			}
			c.checkAll()
		}
		for _, k := range slices.SortedFunc(maps.Keys(c.model), Key.Compare) {
			if ok, err := c.tree.Delete(k); !ok || err != nil {
				t.Fatalf("delete %x: %v, %v", k, ok, err)
			}
			delete(c.model, k)
		}
		c.checkAll()
		if _, _, height := c.tree.Root(); height != 1 {
			t.Errorf("an empty tree has height %d", height)
		}
	}
}

// Values of all lengths, so that leaves hold two entries or dozens.
func TestTree_LongValues(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, nodeSize := range []int{1024, 4096} {
		c := newChecker(t, nodeSize, 1500, 40, seed)
		c.maxLen = MaxValue(nodeSize)
		for epoch := range 15 {
			for range 1500 {
				c.edit([]int{90, 50, 20}[epoch%3])
			}
			c.flip()
			c.checkAll()
		}
	}
}

func TestTree_SequentialPutsFillLeaves(t *testing.T) {
	p := newPool(t, 4096, 3000, nil)
	tr, _ := Create(p.config(), 1)
	const n = 50000
	for i := range n {
		if err := tr.Put(newKey(1, uint64(i)), make([]byte, 24)); err != nil {
			t.Fatal(err)
		}
	}
	if perLeaf := (4096 - slotsOff) / 48; tr.Born() > n/perLeaf*105/100 {
		t.Errorf("%d nodes for %d entries, of which %d fit into a leaf", tr.Born(), n, perLeaf)
	}
	if rs := tr.Freeze(nil); len(rs) != 1 || rs[0] != (pmem.Range{Off: 4096, Len: uint64(4096 * (3000 - len(p.free)))}) {
		t.Errorf("ranges of nodes that stand together: %v", rs)
	}
}

func TestTree_GoldenNode(t *testing.T) {
	p := newPool(t, 1024, 2, nil)
	tr, _ := Create(p.config(), 7)
	for _, k := range []Key{newKey(2, 5), newKey(1, 3)} {
		if err := tr.Put(k, []byte{byte(k.Hi), 0xaa}); err != nil {
			t.Fatal(err)
		}
	}
	tr.Freeze(nil)
	want := strings.Join(strings.Fields(`
		504d4e44 5311518b 0700000000000000 0004000000000000 0000 0200 fc03 0000
		0000000000000000000000000000000000000000000000000000000000000000
		0100000000000000 0300000000000000 fc03 0200 00000000
		0200000000000000 0500000000000000 fe03 0200 00000000`), "")
	if got := hex.EncodeToString(p.node(1024)[:112]); got != want {
		t.Errorf("node differs from the format\n got %s\nwant %s", got, want)
	}
	if got := hex.EncodeToString(p.node(1024)[1020:]); got != "01aa02aa" {
		t.Errorf("values are %s", got)
	}
}

// image is all that a change must leave alone when it fails.
func (c *checker) image() ([]byte, [4]uint64, []uint64) {
	var all []byte
	_ = c.tree.Walk(false, func(off uint64, _ int, _ uint64) error {
		all = append(all, c.node(off)...)
		return nil
	}, nil)
	root, birth, height := c.tree.Root()
	return all, [4]uint64{root, birth, uint64(height), uint64(c.tree.Born())}, slices.Clone(c.tree.Replaced())
}

// Every change is tried with 0, 1, 2 ... nodes to be had. As long as they are too few, nothing changes.
func TestTree_NoNodesChangesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, nodeSize := range []int{1024, 4096} {
		c := build(t, nodeSize, 300, seed)
		c.maxLen = MaxValue(nodeSize)
		short, most := 0, 0
		for i := range 400 {
			if i%20 == 0 {
				c.flip()
			}
			k, v, del := c.key(), c.value(), c.rng.IntN(3) == 0
			for c.limit = 0; ; short++ {
				limit, free := c.limit, len(c.free)
				bytesBefore, rootBefore, replaced := c.image()
				var err error
				if del {
					_, err = c.tree.Delete(k)
				} else {
					err = c.tree.Put(k, v)
				}
				if err == nil {
					break
				}
				if !errors.Is(err, ErrNoNodes) {
					t.Fatal(err)
				}
				bytesAfter, rootAfter, replacedAfter := c.image()
				if !bytes.Equal(bytesBefore, bytesAfter) || rootBefore != rootAfter ||
					!slices.Equal(replaced, replacedAfter) || len(c.free) != free {
					t.Fatalf("change %d, which failed with %d nodes, changed the tree", i, limit)
				}
				c.limit = limit + 1
				most = max(most, c.limit)
			}
			c.limit = -1
			if c.model[k] = v; del {
				delete(c.model, k)
			}
		}
		c.checkAll()
		if short < 100 || most < 3 {
			t.Errorf("only %d changes failed, and the largest needed %d nodes", short, most)
		}
	}
}

func TestTree_WorstIsAnUpperBound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, nodeSize := range []int{1024, 4096} {
		c := build(t, nodeSize, 3000, seed)
		for i := range 300 {
			edits := 1 + c.rng.IntN(1+c.rng.IntN(300))
			c.maxLen = 1 + c.rng.IntN(MaxValue(nodeSize))
			worst, before := c.tree.Worst(edits), c.allocs
			for range edits {
				c.edit([]int{100, 70, 30}[i%3])
			}
			if got := c.allocs - before; got > worst {
				t.Fatalf("%d edits allocated %d nodes, Worst said %d", edits, got, worst)
			}
			if i%2 == 0 {
				c.flip()
			}
		}
		if w := c.tree.Worst(0); w != 0 {
			t.Errorf("no change needs %d nodes", w)
		}
	}
}

// All leaves hold two entries and are full. One put goes below each inner node of level 1 that is full too, so that both split.
func TestTree_WorstWithFullInnerNodes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := newPool(t, 1024, 20000, nil)
	tr, _ := Create(p.config(), 1)
	rng := rand.New(rand.NewPCG(seed, 0))
	v := make([]byte, MaxValue(1024))
	for range 6000 {
		if err := tr.Put(newKey(rng.Uint64(), 0), v); err != nil {
			t.Fatal(err)
		}
	}
	clear(p.open)
	tr.Freeze(nil)
	var keys []Key
	_ = tr.Walk(false, func(off uint64, level int, _ uint64) error {
		if nd := tr.at(off); level == 1 && nd.used()+slotSize+childSize > nd.capacity() {
			for i := range nd.count() {
				if leaf, err := tr.enterChild(nd, i); err == nil && leaf.count() == 2 {
					keys = append(keys, leaf.key(1).Next())
					break
				}
			}
		}
		return nil
	}, nil)
	worst, before := tr.Worst(len(keys)), p.allocs
	for _, k := range keys {
		if err := tr.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.allocs - before; len(keys) < 3 || got < 4*len(keys) || got > worst {
		t.Errorf("%d puts allocated %d nodes, Worst said %d", len(keys), got, worst)
	}
}

func TestTree_WalkFindsEveryFlippedByte(t *testing.T) {
	c := build(t, 1024, 150, 1)
	var offs []uint64
	if err := c.tree.Walk(true, func(off uint64, _ int, _ uint64) error {
		offs = append(offs, off)
		return nil
	}, nil); err != nil || len(offs) < 5 {
		t.Fatalf("%d nodes, %v", len(offs), err)
	}
	for _, off := range offs {
		for i := range c.node(off) {
			c.node(off)[i] ^= 1 << (i % 8)
			err := c.tree.Walk(true, nil, nil)
			c.node(off)[i] ^= 1 << (i % 8)
			if err == nil {
				t.Fatalf("byte %d of node %d is flipped, and nobody sees it", i, off)
			}
		}
	}
	isCorrupt(t, c.tree.Err())
}

// below is a key in each leaf, and below each inner node.
func (c *checker) below() map[uint64]Key {
	c.t.Helper()
	below := map[uint64]Key{}
	var path [8]uint64
	if err := c.tree.Walk(true, func(off uint64, level int, _ uint64) error {
		path[level] = off
		return nil
	}, func(k Key, _ []byte) error {
		for _, off := range path[:c.tree.height] {
			if _, ok := below[off]; !ok {
				below[off] = k
			}
		}
		return nil
	}); err != nil || len(below) < 5 {
		c.t.Fatalf("%d nodes, %v", len(below), err)
	}
	return below
}

// After ProveNodes nothing is read out of a node with a flipped byte, unless it was entered before.
func TestTree_NothingIsReadFromDamage(t *testing.T) {
	c := build(t, 1024, 150, 1)
	for off, k := range c.below() {
		for i := range c.node(off) {
			c.node(off)[i] ^= 1 << (i % 8)
			for _, read := range []func(){
				func() { c.tree.Get(k) },
				func() { c.tree.Floor(k) },
				func() { c.tree.Ascend(k, k.Next(), func(Key, []byte) bool { return true }) },
			} {
				c.reopen()
				c.tree.ProveNodes()
				if read(); c.tree.Err() == nil {
					t.Fatalf("byte %d of node %d is flipped, and %x was looked up", i, off, k)
				}
			}
			c.node(off)[i] ^= 1 << (i % 8)
		}
	}
	for range 20 { // whole nodes prove themselves, and the new ones of later epochs need not
		c.reopen()
		c.tree.ProveNodes()
		for range 3 {
			for range 100 {
				c.edit(60)
			}
			c.checkAll()
			c.flip()
		}
	}
}

// No change copies a node with a flipped byte, since the copy would get a CRC that confirms it.
func TestTree_NoChangeCopiesDamage(t *testing.T) {
	c := build(t, 1024, 150, 1)
	for off, k := range c.below() {
		for i := range c.node(off) {
			c.node(off)[i] ^= 1 << (i % 8)
			for _, change := range []func() error{
				func() error { return c.tree.Put(k, []byte("new")) },
				func() error {
					if found, err := c.tree.Delete(k); found || err != nil {
						return err
					}
					return ErrNotFound // nothing was changed
				},
				func() error { return c.tree.Patch(k, 0, nil) },
			} {
				c.reopen()
				if err := change(); err == nil {
					t.Fatalf("byte %d of node %d is flipped, and a change of %x was made", i, off, k)
				}
			}
			c.node(off)[i] ^= 1 << (i % 8)
		}
	}
}

// What the CRC of a node confirms can still be wrong: keys out of order, or not those that the parent gives.
func TestTree_WalkChecksKeys(t *testing.T) {
	c := build(t, 1024, 300, 1)
	if _, err := c.tree.Delete(Key{}); err != nil { // so that no leaf shows that the first inner key is wrong
		t.Fatal(err)
	}
	c.flip()
	root, birth, height := c.tree.Root()
	first, err := c.tree.enterChild(c.tree.at(root), 0)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := c.tree.enterChild(c.tree.at(root), 1)
	if err != nil || height != 3 {
		t.Fatalf("height %d, %v", height, err)
	}
	leaf, err := c.tree.enterChild(inner, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]struct {
		nd         node
		slot, byte int
		by         byte
	}{
		"first key of an inner node": {first, 0, 8, 1},
		"key above the bound":        {leaf, leaf.count() - 1, 7, 0xff},
		"keys out of order":          {leaf, 1, 7, 0xff},
		"key below the bound":        {leaf, 0, 0, leaf[slotsOff]},
	} {
		wrong.nd.slot(wrong.slot)[wrong.byte] ^= wrong.by
		binary.LittleEndian.PutUint32(wrong.nd[crcOff:], c.tree.crc(wrong.nd))
		if wrong.by != 0 && c.tree.Walk(true, nil, nil) == nil {
			t.Errorf("%s: nobody sees it", name)
		}
		wrong.nd.slot(wrong.slot)[wrong.byte] ^= wrong.by
		binary.LittleEndian.PutUint32(wrong.nd[crcOff:], c.tree.crc(wrong.nd))
	}
	fresh := New(c.config(), root, birth, height, c.tree.Epoch())
	if err := fresh.Walk(true, nil, nil); err != nil {
		t.Errorf("all is put right again: %v", err)
	}
	leaf.slot(1)[7] = 0xff // a key far above the next ones
	last := Key{}
	fresh.Ascend(Key{}, newKey(^uint64(0), ^uint64(0)), func(k Key, _ []byte) bool {
		if k != (Key{}) && !last.Less(k) {
			t.Errorf("ascend went from %x back to %x", last, k)
		}
		last = k
		return true
	})
	isCorrupt(t, fresh.Err())
}

// damagePool lets anything be freed.
type damagePool struct{ *pool }

func (damagePool) FreeNode(uint64) {}

// Random bytes of a small tree are overwritten, immutable nodes and open ones. Whatever is called then returns.
func TestTree_DamageNeverPanics(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 100 {
		c := newChecker(t, 1024, 800, 2, seed+uint64(round))
		c.tree.nodes = damagePool{c.pool}
		for i := range 400 {
			c.tree.Put(c.key(), c.value())
			if i == 300 && round%2 == 0 {
				c.tree.Freeze(nil)
			}
		}
		for i := range 60 {
			c.damage()
			k := c.key()
			c.tree.Get(k)
			c.tree.Floor(k)
			c.tree.Ascend(Key{}, newKey(^uint64(0), 0), func(Key, []byte) bool { return true })
			_ = c.tree.Walk(i%2 == 0, nil, func(Key, []byte) error { return nil })
			for range 10 {
				_ = c.tree.Put(c.key(), c.value())
				_, _ = c.tree.Delete(c.key())
				_ = c.tree.Patch(c.key(), c.rng.IntN(9), c.value())
			}
			if i%20 == 19 {
				c.tree.Freeze(nil)
			}
		}
	}
}

// damage overwrites a byte of a node that is reached, mostly of its header and slots.
func (c *checker) damage() {
	var offs []uint64
	_ = c.tree.Walk(false, func(off uint64, _ int, _ uint64) error {
		offs = append(offs, off)
		return nil
	}, nil)
	if len(offs) == 0 {
		return
	}
	b := c.node(offs[c.rng.IntN(len(offs))])
	b[c.rng.IntN([]int{64, 300, 1024}[c.rng.IntN(3)])] = byte(c.rng.Uint32())
}

func TestTree_DamageIsReported(t *testing.T) {
	c := build(t, 1024, 300, 1)
	root, birth, height := c.tree.Root()
	c.node(root)[levelOff]++
	if _, ok := c.tree.Get(newKey(1, 0)); ok {
		t.Error("found a key below a damaged root")
	}
	isCorrupt(t, c.tree.Err())
	isCorrupt(t, c.tree.Put(newKey(1, 0), nil))
	isCorrupt(t, c.tree.Walk(false, nil, nil))
	for _, tr := range []*Tree{
		New(c.config(), root, birth, 0, 3), New(c.config(), root, birth, 99, 3), New(c.config(), root+8, birth, height, 3),
		New(c.config(), uint64(len(c.bytes)), birth, height, 3), New(c.config(), ^uint64(1023), birth, height, 3),
	} {
		_, err := tr.Delete(newKey(1, 0))
		isCorrupt(t, err)
	}
}

func TestTree_WrongArguments(t *testing.T) {
	c := build(t, 1024, 10, 1)
	if err := c.tree.Put(newKey(1, 1), make([]byte, MaxValue(1024)+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("long value: %v", err)
	}
	if err := c.tree.Put(newKey(1, 1), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int{-1, 5, 9, int(^uint(0) >> 1)} {
		if err := c.tree.Patch(newKey(1, 1), off, make([]byte, 4)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("patch at %d: %v", off, err)
		}
	}
	if err := c.tree.Patch(newKey(1, 2), 0, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("patch of nothing: %v", err)
	}
	if _, err := Create(Config{Bytes: c.bytes, NodeSize: 1024, Nodes: &pool{}}, 1); !errors.Is(err, ErrNoNodes) {
		t.Errorf("create without nodes: %v", err)
	}
}

func TestHotPath_AllocatesNothing(t *testing.T) {
	c := build(t, 4096, 5000, 1)
	v := make([]byte, 30)
	keys := make([]Key, 0, 5000)
	for k := range c.model {
		keys = append(keys, k)
	}
	for range 2 { // the lists of replaced nodes and free nodes reach their size
		for _, k := range keys {
			_ = c.tree.Put(k, v)
		}
		c.flip()
	}
	i := 0
	n := testing.AllocsPerRun(4000, func() {
		k := keys[i%len(keys)]
		i++
		c.tree.Get(k)
		c.tree.Floor(k)
		_ = c.tree.Put(k, v[:i%30])
		_ = c.tree.Patch(k, 0, v[:i%30])
		if _, err := c.tree.Delete(keys[(i*7)%len(keys)]); err != nil {
			t.Fatal(err)
		}
		c.tree.Ascend(k, newKey(k.Hi+1, 0), func(Key, []byte) bool { return true })
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
