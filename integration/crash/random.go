package crash

import (
	"math/rand/v2"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// weights of the operations of a random workload, in order of Kind.
var weights = [kinds]int{Create: 10, Mkdir: 2, Write: 22, Truncate: 5, Fallocate: 3, Unlink: 8, Rename: 8, Link: 3, Chmod: 2, Xattr: 4,
	Hold: 2, Forget: 2, Fsync: 14, Sync: 2, Flip: 3, Settle: 1, Reclaim: 2, Deliver: 8}

// Random is a configuration of n operations that follows from seed.
func Random(seed uint64, n int) Config {
	rnd := rand.New(rand.NewPCG(seed, 0x6f7073))
	cfg := Config{Seed: seed, Size: 1 << 20, Effort: pmemtest.Effort{Subsets: 5, Singles: 6, Random: 6}}
	if rnd.IntN(4) == 0 {
		cfg.Mode = pmemtest.Pages
	}
	cfg.Volume = volume.Params{NodeSize: []uint32{1024, 1024, 2048, 4096}[rnd.IntN(4)], LogLen: 64 << 10}
	sum := 0
	for _, w := range weights {
		sum += w
	}
	names := 2 + rnd.IntN(8)
	big := rnd.IntN(3) == 0 // large files fill the pool
	for range n {
		cfg.Ops = append(cfg.Ops, randomOp(rnd, sum, names, big))
	}
	return cfg
}

func randomOp(rnd *rand.Rand, sum, names int, big bool) Op {
	path := func() Path { return Path{uint8(rnd.IntN(2)), uint8(rnd.IntN(names))} }
	o := Op{A: path(), B: path()}
	x := rnd.IntN(sum)
	for k, w := range weights {
		if x -= w; x < 0 {
			o.Kind = Kind(k)
			break
		}
	}
	switch o.Kind {
	case Write, Fallocate, Truncate:
		o.Off, o.Len = place(rnd, big)
	case Xattr:
		o.Len = []uint32{0, 1, 200, 257, 5000}[rnd.IntN(5)]
	case Deliver:
		o.Len = uint32(rnd.IntN(6))
	}
	return o
}

// place likes the borders of lines, sectors and blocks.
func place(rnd *rand.Rand, big bool) (off, n uint32) {
	border := func(blocks int) uint32 {
		at := rnd.IntN(blocks)*4096 + []int{0, 0, 64, 512, 4095, 4032, rnd.IntN(4096)}[rnd.IntN(7)]
		return uint32(at)
	}
	if big {
		return border(24), 1 + border(16)
	}
	return border(3), 1 + border(2)
}

// Lives is a random configuration with several lives on two machines.
func Lives(seed uint64, n int) Config {
	cfg := Random(seed, n)
	rnd := rand.New(rand.NewPCG(seed, 0x6c6976))
	cfg.Setup = Mirrored
	cfg.Mounts = true
	cfg.Unordered = rnd.IntN(4) == 0
	ends := []Kind{PowerLoss, PowerLoss, Restart, TargetLoss, TargetLoss, Promote, Unmount, LinkLoss, LinkLoss}
	for i := range cfg.Ops {
		if rnd.IntN(16) == 0 {
			cfg.Ops[i] = Op{Kind: ends[rnd.IntN(len(ends))]}
		}
	}
	return cfg
}
