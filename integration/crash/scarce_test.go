package crash

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// stage is what the operations under test find: /a durable, with a change that is pending; /b with nothing but pending content; /dir/a open and without a
// name; an attribute in blocks of its own.
var stage = []Op{{Kind: Create}, {Kind: Write, Len: 9000}, {Kind: Xattr, Len: 5000}, {Kind: Create, A: Path{1, 0}}, {Kind: Write, A: Path{1, 0}, Len: 9000}, {Kind: Sync}, {Kind: Flip},
	{Kind: Hold, A: Path{1, 0}}, {Kind: Unlink, A: Path{1, 0}}, {Kind: Create, A: Path{0, 1}}, {Kind: Write, A: Path{0, 1}, Len: 13000},
	{Kind: Write, Off: 100, Len: 5000}, {Kind: Deliver}}

// hungry is an operation of each kind that looks for room.
var hungry = []Op{
	{Kind: Create, A: Path{1, 2}}, {Kind: Mkdir, A: Path{1, 2}}, {Kind: Tmpfile, A: Path{0, 2}, Len: 5000},
	{Kind: Write, Off: 40, Len: 300}, {Kind: Write, Off: 8000, Len: 20000}, {Kind: Write, Off: 60000, Len: 5000},
	{Kind: Truncate, Len: 100}, {Kind: Truncate, Len: 30000}, {Kind: Truncate, A: Path{0, 1}, Len: 5000},
	{Kind: Fallocate, Off: 4000, Len: 30000}, {Kind: Prealloc, Off: 4000, Len: 30000},
	{Kind: Punch, Off: 100, Len: 8500}, {Kind: Punch, A: Path{0, 1}, Off: 4096, Len: 4096}, {Kind: Zero, Off: 100, Len: 20000}, {Kind: Zero, A: Path{0, 1}, Off: 5000, Len: 5000},
	{Kind: Unlink}, {Kind: Rename, B: Path{1, 2}}, {Kind: Rename, A: Path{0, 1}, B: Path{0, 0}}, {Kind: Exchange, B: Path{0, 1}}, {Kind: Link, B: Path{1, 2}},
	{Kind: Chmod}, {Kind: Xattr}, {Kind: Xattr, Len: 300}, {Kind: Xattr, Len: 6000}, {Kind: Forget, A: Path{1, 0}}, {Kind: Reclaim}, {Kind: Flip}, {Kind: Settle},
}

// after is what must work afterwards.
var after = []Op{{Kind: Fsync}, {Kind: Create, A: Path{1, 3}}, {Kind: Write, A: Path{1, 3}, Len: 6000}, {Kind: Fsync, A: Path{1, 3}}, {Kind: Write, Off: 3000, Len: 3000},
	{Kind: Unlink, A: Path{0, 1}}, {Kind: Reclaim}, {Kind: Sync}, {Kind: Deliver}}

// TestScarce denies room to an operation at its first, second, third ... request, that one alone or all from then on. The volume must be what the model says, which
// is as before or a part that is documented, later operations must succeed, and so must every crash image. Beside single operations it takes pairs,
// of which the second one is denied.
func TestScarce(t *testing.T) {
	var lists [][]Op
	for i, o := range hungry {
		lists = append(lists, []Op{o})
		for k, p := range hungry {
			if (i+k)%27 == 0 {
				lists = append(lists, []Op{p, o})
			}
		}
	}
	work := make(chan []Op)
	var c Counts
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for ops := range work {
				scarce(t, &c, ops)
			}
		})
	}
	for i, ops := range lists {
		if i%share == 0 {
			work <- ops
		}
	}
	close(work)
	wg.Wait()
	t.Logf("%d images, %d runs, %d operations without space", c.Images.Load(), c.Sequences.Load(), c.Full.Load())
	if share == 1 && c.Full.Load() < 100 {
		t.Error("that is too few operations without space to prove anything")
	}
}

// scarce denies each request of the last of ops.
func scarce(t *testing.T, c *Counts, ops []Op) {
	all := slices.Concat(stage, ops, after)
	for _, once := range []bool{false, true} {
		denied := true
		for n := 1; denied; n++ {
			cfg := sequenceConfig(uint64(n), all, pmemtest.Effort{Random: 1})
			cfg.Scarce = Scarce{Step: len(stage) + len(ops) - 1, Request: n, Once: once}
			w := newWorld(cfg, c)
			if f := w.outcome(); f != nil {
				t.Errorf("%+v, in %s: %v", cfg.Scarce, list(all), f)
				return
			}
			denied = w.denied
		}
	}
}
