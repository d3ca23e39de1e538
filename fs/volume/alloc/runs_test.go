package alloc

import (
	"math/rand/v2"
	"testing"
)

// TestRuns_Model allocates and frees at random and compares what is listed with what was given out.
func TestRuns_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, c := range []struct {
		first, end      uint64
		chunk, nodeSize uint32
	}{{5, 1003, 16 << 10, 1024}, {70, 3001, 64 << 10, 2048}, {64, 4096, 512 << 10, 4096}} {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m := newModel(c.first, c.end, c.chunk, c.nodeSize, 2)
		for step := range 20000 {
			m.step(t, rng, step/5000%2 == 0)
			if step%37 == 0 {
				m.checkRuns(t, 1+rng.Uint64N(40))
			}
		}
	}
}

func (m *model) checkRuns(t *testing.T, want uint64) {
	t.Helper()
	blocks, nodes := uint64(0), 0
	m.a.EachData(func(blk, n uint64) {
		for b := blk; b < blk+n; b++ {
			if !m.data[b] {
				t.Fatalf("block %d is listed and holds no data", b)
			}
		}
		blocks += n
	})
	m.a.EachNode(func(first, n uint64) {
		for i := first; i < first+n; i++ {
			if !m.nodes[i*m.nodeSize] {
				t.Fatalf("node %d is listed and free", i)
			}
		}
		nodes += int(n)
	})
	held := uint64(0)
	for _, used := range m.data {
		held += uint64(btoi(used))
	}
	if blocks != held || nodes != len(m.nodes) {
		t.Fatalf("%d blocks and %d nodes are listed, expected %d and %d", blocks, nodes, held, len(m.nodes))
	}
	best, run := uint64(0), uint64(0) // behind the last run that is long enough
	for b := m.first; b < m.end; b++ {
		if run++; m.data[b] || m.perChunkNodes[b/m.perChunk] > 0 {
			run = 0
		}
		if run >= want {
			best = b + 1
		}
	}
	if blk, ok := m.a.LastFreeRun(want); ok != (best > 0) || ok && blk+want != best {
		t.Fatalf("last run of %d free blocks: %d, %v; expected its end at %d", want, blk, ok, best)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
