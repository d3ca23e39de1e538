package crash

import (
	"math/rand/v2"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// profile is a kind of workload.
type profile struct {
	weights [kinds]int
	names   int  // in each directory
	big     bool // files of many blocks
	ballast int  // blocks
	factor  int  // of the number of operations
}

var usual = [kinds]int{Create: 10, Mkdir: 2, Write: 22, Truncate: 5, Fallocate: 2, Prealloc: 2, Punch: 4, Zero: 3, Unlink: 8, Rename: 8, Exchange: 3, Link: 3, Tmpfile: 2, Chmod: 2, Xattr: 4,
	Hold: 2, Forget: 2, Fsync: 14, Sync: 2, Flip: 3, Settle: 1, Reclaim: 2, Grow: 1, Deliver: 8}

// profiles: small files; large ones that fill the pool; little space, so that what is freed is used again at once; and so many changes
// of attributes that the log wraps.
var profiles = []profile{
	{weights: usual, names: 8, factor: 1},
	{weights: usual, names: 4, factor: 1, big: true},
	{weights: [kinds]int{Create: 6, Write: 20, Truncate: 8, Punch: 6, Zero: 3, Prealloc: 2, Unlink: 8, Rename: 6, Exchange: 2, Xattr: 4, Fsync: 16, Sync: 3, Flip: 2, Reclaim: 8, Grow: 2, Deliver: 4},
		names: 3, factor: 1, ballast: 1},
	{weights: [kinds]int{Create: 6, Unlink: 1, Write: 2, Xattr: 60, Chmod: 20, Fsync: 2, Flip: 1, Deliver: 2}, names: 8, factor: 4},
}

// Random is a configuration of about n operations that follows from seed.
func Random(seed uint64, n int) Config {
	return profiles[seed%uint64(len(profiles))].config(seed, n)
}

// config is a workload of this kind.
func (p *profile) config(seed uint64, n int) Config {
	rnd := rand.New(rand.NewPCG(seed, 0x6f7073))
	cfg := Config{Seed: seed, Size: 1 << 20, Room: 128 << 10, Effort: Quick}
	if rnd.IntN(4) == 0 {
		cfg.Mode = pmemtest.Pages
	}
	cfg.Volume = volume.Params{NodeSize: []uint32{1024, 1024, 2048, 4096}[rnd.IntN(4)], LogLen: 64 << 10}
	if p.ballast > 0 {
		cfg.Ballast = uint64(120+rnd.IntN(60)) << 12
	}
	sum := 0
	for _, w := range p.weights {
		sum += w
	}
	names := 2 + rnd.IntN(p.names)
	for range n * p.factor {
		cfg.Ops = append(cfg.Ops, randomOp(rnd, p, sum, names))
	}
	return cfg
}

func randomOp(rnd *rand.Rand, p *profile, sum, names int) Op {
	path := func() Path { return Path{uint8(rnd.IntN(2)), uint8(rnd.IntN(names))} }
	o := Op{A: path(), B: path()}
	x := rnd.IntN(sum)
	for k, w := range p.weights {
		if x -= w; x < 0 {
			o.Kind = Kind(k)
			break
		}
	}
	switch o.Kind {
	case Write, Fallocate, Prealloc, Punch, Zero, Truncate, Tmpfile:
		o.Off, o.Len = place(rnd, p.big)
	case Xattr:
		o.Len = []uint32{0, 1, 200, 250, 256, 257, 5000}[rnd.IntN(7)]
	case Deliver:
		o.Len = uint32(rnd.IntN(6))
	case Grow:
		o.Len = 1 + uint32(rnd.IntN(12))
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
	cfg.Setup, cfg.Mounts = Mirrored, true
	cfg.Unordered, cfg.Early = rnd.IntN(4) == 0, rnd.IntN(4) == 0
	return cfg.with(rnd, PowerLoss, PowerLoss, Restart, TargetLoss, TargetLoss, Promote, Unmount, LinkLoss, LinkLoss)
}

// Bounced is the same on ordinary files behind bounce buffers.
func Bounced(seed uint64, n int) Config {
	cfg := Lives(seed, n)
	cfg.Mode, cfg.Device = pmemtest.Pages, Caching
	return cfg
}

// BareLives is the same for a volume on one copy alone, which no pool opens for it.
func BareLives(seed uint64, n int) Config {
	return Random(seed, n).with(rand.New(rand.NewPCG(seed, 0x6c6976)), PowerLoss, Restart, Restart)
}

// Refill is a pool that is full, so that what a group frees is all that the next write finds.
func Refill(seed uint64) Config {
	cfg := mirror(profiles[2].config(seed, 0))
	a, b, c := Path{0, 0}, Path{0, 1}, Path{1, 0}
	cfg.Ops = []Op{{Kind: Create, A: a}, {Kind: Write, A: a, Len: 60000}, {Kind: Create, A: b}, {Kind: Create, A: c}, {Kind: Sync}, {Kind: Deliver}, {Kind: Write, A: c, Len: maxFile}}
	for range 6 {
		cfg.Ops = append(cfg.Ops, Op{Kind: Sync}, Op{Kind: Deliver}, Op{Kind: Truncate, A: a, Len: 100}, Op{Kind: Sync}, Op{Kind: Write, A: b, Len: 60000})
		a, b = b, a
	}
	return cfg
}

// Disks are lives on ordinary files whose disks refuse to write.
func Disks(seed uint64, n int) Config {
	cfg := mirror(Random(seed, n))
	cfg.Mode, cfg.Mounts = pmemtest.Pages, true
	return cfg.with(rand.New(rand.NewPCG(seed, 0x6469)), DiskLoss, DiskLoss, PowerLoss, Restart, TargetLoss)
}

// Methods are lives in which the target's CPU has no part in a drain.
func Methods(seed uint64, n int) Config { return Lives(seed, n).by(seed) }

// Repeats are lives in which frames of the control connection arrive twice.
func Repeats(seed uint64, n int) Config {
	cfg := Lives(seed, n)
	cfg.Repeat = true
	return cfg
}

// Restarts are lives that end with the process, while what its last writes stored in place is in caches only: a new process finds it, and so must see to it that it stays.
func Restarts(seed uint64) Config {
	cfg := mirror(Random(seed, 0))
	rnd := rand.New(rand.NewPCG(seed, 0x7265))
	cfg.Ops = []Op{{Kind: Create}, {Kind: Write, Len: 9000}, {Kind: Create, A: Path{1, 0}}, {Kind: Write, A: Path{1, 0}, Len: 5000}}
	for range 4 {
		p := Path{uint8(rnd.IntN(2)), 0}
		off, n := place(rnd, false)
		cfg.Ops = append(cfg.Ops, Op{Kind: Sync}, Op{Kind: Deliver}, Op{Kind: Write, A: p, Off: off % 4096, Len: n%4000 + 1}, Op{Kind: Restart}, Op{Kind: Fsync, A: p})
	}
	return cfg
}

// with replaces some operations by ends of a life.
func (cfg Config) with(rnd *rand.Rand, ends ...Kind) Config {
	for i := range cfg.Ops {
		if rnd.IntN(16) == 0 {
			cfg.Ops[i] = Op{Kind: ends[rnd.IntN(len(ends))]}
		}
	}
	return cfg
}
