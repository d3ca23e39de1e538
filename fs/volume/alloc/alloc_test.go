package alloc

import (
	"math/rand/v2"
	"testing"
	"time"
)

// model is the same space with one entry per block and per node, and every count taken anew.
type model struct {
	a               *Allocator
	first, end      uint64
	perChunk, slots uint64
	nodeSize        uint64
	reserve         uint64
	data            []bool          // per block
	nodes           map[uint64]bool // by offset
	perChunkNodes   map[uint64]uint64
	dataRuns        [][2]uint64
	nodeList        []uint64
}

func newModel(first, end uint64, chunk, nodeSize, reserve uint32) *model {
	return &model{
		a: New(first, end, chunk, nodeSize, reserve), first: first, end: end,
		perChunk: uint64(chunk) / blockSize, slots: uint64(chunk / nodeSize), nodeSize: uint64(nodeSize), reserve: uint64(reserve),
		data: make([]bool, end), nodes: map[uint64]bool{}, perChunkNodes: map[uint64]uint64{},
	}
}

// chunkState tells of a chunk what the allocator should know.
func (m *model) chunkState(c uint64) (freeBlocks uint64, whole bool) {
	for b := max(c*m.perChunk, m.first); b < min((c+1)*m.perChunk, m.end); b++ {
		if !m.data[b] {
			freeBlocks++
		}
	}
	return freeBlocks, freeBlocks == m.perChunk && m.perChunkNodes[c] == 0
}

func (m *model) counts() (free, wholes, freeSlots uint64) {
	for c := m.first / m.perChunk; c*m.perChunk < m.end; c++ {
		blocks, whole := m.chunkState(c)
		switch {
		case m.perChunkNodes[c] > 0:
			freeSlots += m.slots - m.perChunkNodes[c]
			continue
		case whole:
			wholes++
		}
		free += blocks
	}
	return free, wholes, freeSlots
}

func (m *model) check(t *testing.T) {
	t.Helper()
	free, wholes, slots := m.counts()
	if got := m.a.FreeBlocks(); got != free {
		t.Fatalf("FreeBlocks %d, want %d", got, free)
	}
	if got := m.a.NodesAvailable(); got != slots+wholes*m.slots {
		t.Fatalf("NodesAvailable %d, want %d", got, slots+wholes*m.slots)
	}
	keep := uint64(0)
	if have := slots / m.slots; have < m.reserve {
		keep = min(m.reserve-have, wholes)
	}
	if got := m.a.DataAvailable(); got != free-keep*m.perChunk {
		t.Fatalf("DataAvailable %d, want %d", got, free-keep*m.perChunk)
	}
}

func (m *model) takeData(t *testing.T, blk, n uint64) {
	t.Helper()
	for b := blk; b < blk+n; b++ {
		if b < m.first || b >= m.end || m.data[b] || m.perChunkNodes[b/m.perChunk] > 0 {
			t.Fatalf("block %d of run %d+%d was not free", b, blk, n)
		}
		m.data[b] = true
	}
	m.dataRuns = append(m.dataRuns, [2]uint64{blk, n})
}

func (m *model) takeNode(t *testing.T, off uint64) {
	t.Helper()
	c := off / m.nodeSize / m.slots
	_, whole := m.chunkState(c)
	if off%m.nodeSize != 0 || m.nodes[off] || !whole && m.perChunkNodes[c] == 0 || c*m.perChunk < m.first || (c+1)*m.perChunk > m.end {
		t.Fatalf("node %d was not free", off)
	}
	m.nodes[off] = true
	m.perChunkNodes[c]++
	m.nodeList = append(m.nodeList, off)
}

// A million random steps against the model, in spaces with edges that are no whole chunks. Now and then all counts are
// compared, and the reserve rule is checked at each allocation of data.
func TestAllocator_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, c := range []struct {
		first, end               uint64
		chunk, nodeSize, reserve uint32
	}{
		{5, 1003, 16 << 10, 1024, 3},
		{70, 3001, 64 << 10, 2048, 5},
		{64, 4096, 512 << 10, 4096, 2},
		{3, 30, 64 << 10, 4096, 0},
		{1, 20, 512 << 10, 4096, 1},
	} {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m := newModel(c.first, c.end, c.chunk, c.nodeSize, c.reserve)
		for step := range 60000 {
			m.step(t, rng, step/10000%2 == 0)
			if step%97 == 0 {
				m.check(t)
			}
		}
		m.drain(t)
	}
}

// step does one operation; while growing, allocations outnumber frees.
func (m *model) step(t *testing.T, rng *rand.Rand, growing bool) {
	t.Helper()
	alloc := rng.IntN(10) < 3
	if growing {
		alloc = !alloc
	}
	switch node := rng.IntN(3) == 0; {
	case alloc && node:
		want := m.a.NodesAvailable() > 0
		off, ok := m.a.AllocNode()
		if ok != want {
			t.Fatalf("AllocNode %v with NodesAvailable > 0 = %v", ok, want)
		}
		if ok {
			m.takeNode(t, off)
		}
	case alloc:
		m.allocData(t, rng)
	case node && len(m.nodeList) > 0:
		m.freeNode(rng.IntN(len(m.nodeList)))
	case len(m.dataRuns) > 0:
		m.freeData(rng.IntN(len(m.dataRuns)), rng)
	}
}

func (m *model) allocData(t *testing.T, rng *rand.Rand) {
	t.Helper()
	want, goal := 1+rng.Uint64N(1+rng.Uint64N(3*m.perChunk)), rng.Uint64N(m.end+10)
	avail := m.a.DataAvailable()
	wholesBefore := m.a.whole.n
	blk, n, ok := m.a.AllocData(goal, want)
	if ok != (avail > 0) || ok && (n == 0 || n > want) {
		t.Fatalf("AllocData(%d, %d) = %d, %d, %v with %d available", goal, want, blk, n, ok, avail)
	}
	if !ok {
		return
	}
	m.takeData(t, blk, n)
	if m.a.whole.n < wholesBefore && m.a.freeSlots/m.slots+m.a.whole.n < m.reserve {
		t.Fatalf("data broke into the reserve: %d whole chunks, %d slots", m.a.whole.n, m.a.freeSlots)
	}
}

func (m *model) freeNode(i int) {
	off := m.nodeList[i]
	m.a.FreeNode(off)
	delete(m.nodes, off)
	m.perChunkNodes[off/m.nodeSize/m.slots]--
	m.nodeList[i] = m.nodeList[len(m.nodeList)-1]
	m.nodeList = m.nodeList[:len(m.nodeList)-1]
}

// freeData gives back a part of a run.
func (m *model) freeData(i int, rng *rand.Rand) {
	blk, n := m.dataRuns[i][0], m.dataRuns[i][1]
	part := 1 + rng.Uint64N(n)
	m.a.FreeData(blk, part)
	for b := blk; b < blk+part; b++ {
		m.data[b] = false
	}
	if part < n {
		m.dataRuns[i] = [2]uint64{blk + part, n - part}
		return
	}
	m.dataRuns[i] = m.dataRuns[len(m.dataRuns)-1]
	m.dataRuns = m.dataRuns[:len(m.dataRuns)-1]
}

// drain marks all of the model in a second allocator, compares the two, and then frees all.
func (m *model) drain(t *testing.T) {
	t.Helper()
	b := New(m.first, m.end, uint32(m.perChunk*blockSize), uint32(m.nodeSize), uint32(m.reserve))
	for _, off := range m.nodeList {
		if !b.MarkNode(off) || b.MarkNode(off) || b.MarkData(off/blockSize, 1) {
			t.Fatalf("marks of node %d", off)
		}
	}
	for _, r := range m.dataRuns {
		if !b.MarkData(r[0], r[1]) || b.MarkData(r[0]+r[1]-1, 1) || b.MarkNode(r[0]*blockSize) {
			t.Fatalf("marks of run %d", r)
		}
	}
	if b.FreeBlocks() != m.a.FreeBlocks() || b.NodesAvailable() != m.a.NodesAvailable() || b.DataAvailable() != m.a.DataAvailable() {
		t.Fatal("a recovered allocator has other counts")
	}
	for len(m.nodeList) > 0 {
		m.freeNode(0)
	}
	for _, r := range m.dataRuns {
		m.a.FreeData(r[0], r[1])
	}
	if m.a.FreeBlocks() != m.a.Total() || m.a.freeSlots != 0 {
		t.Fatalf("all is freed, but %d of %d blocks are free", m.a.FreeBlocks(), m.a.Total())
	}
}

// Spaces that grow in random steps, between random operations, behave like those that had the size from the start.
func TestGrow_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, c := range []struct {
		first, end               uint64
		chunk, nodeSize, reserve uint32
	}{
		{5, 63, 16 << 10, 1024, 1},
		{70, 131, 64 << 10, 2048, 2},
		{64, 512, 512 << 10, 4096, 1},
		{1, 2, 64 << 10, 4096, 0},
	} {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m := newModel(c.first, c.end, c.chunk, c.nodeSize, c.reserve)
		for step := range 30000 {
			m.step(t, rng, step/5000%2 == 0)
			if step%300 == 0 {
				m.grow(m.end+rng.Uint64N(1+rng.Uint64N(3*m.perChunk)), uint32(m.reserve+rng.Uint64N(2)*rng.Uint64N(2)))
			}
			if step%97 == 0 || step%300 == 0 {
				m.check(t)
			}
		}
		m.drain(t)
	}
}

func (m *model) grow(end uint64, reserve uint32) {
	m.a.Grow(end, reserve)
	m.data = append(m.data, make([]bool, end-m.end)...)
	m.end, m.reserve = end, uint64(reserve)
}

// From a GiB to a TiB, while the file system waits.
func TestGrow_ToOneTiBIsFast(t *testing.T) {
	a := New(20000, 1<<18, 2<<20, 4096, 32)
	start := time.Now()
	a.Grow(1<<28, 512)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	} else {
		t.Logf("took %v", d)
	}
	if want := uint64(1<<28 - 20000); a.FreeBlocks() != want {
		t.Errorf("%d blocks are free, want %d", a.FreeBlocks(), want)
	}
}

func TestMark_OutsideIsRefused(t *testing.T) {
	a := New(10, 100, 64<<10, 4096, 0)
	free := a.FreeBlocks()
	for _, r := range [][2]uint64{{9, 1}, {9, 2}, {100, 1}, {99, 2}, {50, ^uint64(0)}, {^uint64(0), 1}, {^uint64(0) - 3, 8}} {
		if a.MarkData(r[0], r[1]) {
			t.Errorf("run %d was marked", r)
		}
	}
	for _, off := range []uint64{0, 9 * 4096, 12 * 4096, 98 * 4096, 100 * 4096, 16*4096 + 1, ^uint64(0) &^ 4095} {
		if a.MarkNode(off) {
			t.Errorf("node at block %d was marked", off/4096)
		}
	}
	if a.FreeBlocks() != free || a.NodesAvailable() != 5*16 {
		t.Error("refused marks changed something")
	}
}

func TestFree_OfWhatIsFreePanics(t *testing.T) {
	a := New(10, 100, 64<<10, 4096, 0)
	off, _ := a.AllocNode()
	for name, f := range map[string]func(){
		"free block":        func() { a.FreeData(50, 1) },
		"outside":           func() { a.FreeData(100, 1) },
		"block of a node":   func() { a.FreeData(off/4096, 1) },
		"free node":         func() { a.FreeNode(off + 4096) },
		"no node chunk":     func() { a.FreeNode(64 * 4096) },
		"unaligned node":    func() { a.FreeNode(off + 8) },
		"node outside":      func() { a.FreeNode(1 << 40) },
		"wrapping data run": func() { a.FreeData(50, ^uint64(0)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// A run at the goal grows over chunk borders, and one without room at the goal starts in a whole chunk.
func TestAllocData_ContiguousAtGoal(t *testing.T) {
	a := New(0, 4096, 64<<10, 4096, 2)
	if blk, n, ok := a.AllocData(100, 1000); !ok || blk != 100 || n != 1000 {
		t.Errorf("got %d+%d, %v", blk, n, ok)
	}
	if blk, n, ok := a.AllocData(500, 40); !ok || n != 40 {
		t.Errorf("got %d+%d, %v", blk, n, ok)
	}
	if _, n, ok := a.AllocData(2000, 1<<40); !ok || n != 4096-2000 {
		t.Errorf("got %d, %v", n, ok)
	}
	if _, _, ok := a.AllocData(0, 0); ok {
		t.Error("a run of no blocks")
	}
}

// One TiB: a million single blocks behind each other, and a million in a space of which every other block is used.
func TestAllocData_OneTiBIsFast(t *testing.T) {
	a := New(20000, 1<<28, 2<<20, 4096, 512)
	start := time.Now()
	goal := uint64(1 << 20)
	for range 1_000_000 {
		blk, _, ok := a.AllocData(goal, 1)
		if !ok || blk != goal {
			t.Fatalf("block %d, %v; want %d", blk, ok, goal)
		}
		goal = blk + 1
	}
	for b := uint64(1 << 20); b < goal; b += 2 {
		a.FreeData(b, 1)
	}
	for range 500_000 {
		if _, _, ok := a.AllocData(1<<20, 1); !ok {
			t.Fatal("no block")
		}
	}
	for range 1_000_000 {
		if _, ok := a.AllocNode(); !ok {
			t.Fatal("no node")
		}
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	} else {
		t.Logf("took %v", d)
	}
}

func TestHotPath_AllocatesNothing(t *testing.T) {
	a := New(10, 1<<16, 64<<10, 4096, 4)
	n := testing.AllocsPerRun(1000, func() {
		blk, n, _ := a.AllocData(100, 40)
		off, _ := a.AllocNode()
		a.FreeData(blk, n)
		a.FreeNode(off)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBitset_NextMember(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const size = 300_000
	s := newBitset(size)
	in := make([]bool, size)
	for range 3000 {
		i := rng.Uint64N(size)
		if rng.IntN(2) == 0 {
			s.add(i)
			in[i] = true
		} else {
			s.remove(i)
			in[i] = false
		}
		from := rng.Uint64N(size)
		want := from
		for want < size && !in[want] {
			want++
		}
		if got, ok := s.from(from); ok != (want < size) || ok && got != want {
			t.Fatalf("from %d: %d, %v; want %d", from, got, ok, want)
		}
	}
}
