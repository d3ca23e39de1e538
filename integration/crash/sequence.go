package crash

import (
	"iter"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// This file enumerates all short workloads.

// prelude is what every sequence finds: one file of two blocks, durable.
var prelude = []Op{{Kind: Create}, {Kind: Write, Len: 5000}, {Kind: Sync}, {Kind: Deliver}}

// sequences are all lists of 1 to length operations that succeed, over two directories and three names, each with every
// placement of an fsync of the file concerned after an operation. With canonical, a list is left out that differs from another one by the names only: a
// name is used for the first time in the order a, b, c.
func sequences(length int, canonical bool) iter.Seq[[]Op] {
	return func(yield func([]Op) bool) {
		s := search{yield: yield, canonical: canonical, files: []Path{{}}, used: 1}
		s.extend(length)
	}
}

// search is a depth-first walk over the operations.
type search struct {
	yield     func([]Op) bool
	canonical bool
	ops       []Op
	files     []Path // names in use
	used      uint8  // names used so far, by number
	over      bool
}

func (s *search) extend(left int) {
	if len(s.ops) > 0 {
		s.emit()
	}
	if left == 0 || s.over {
		return
	}
	files, used := slices.Clone(s.files), s.used
	for _, o := range s.choices() {
		s.apply(o)
		s.ops = append(s.ops, o)
		s.extend(left - 1)
		s.ops = s.ops[:len(s.ops)-1]
		s.files, s.used = append(s.files[:0], files...), used
	}
}

// choices are the operations that succeed now.
func (s *search) choices() (out []Op) {
	free := s.free()
	for _, p := range free {
		out = append(out, Op{Kind: Create, A: p})
	}
	for _, f := range s.files {
		out = append(out, Op{Kind: Write, A: f, Off: 40, Len: 300}, Op{Kind: Write, A: f, Off: 5000, Len: 4000},
			Op{Kind: Truncate, A: f, Len: 100}, Op{Kind: Punch, A: f, Off: 100, Len: 4500}, Op{Kind: Unlink, A: f}, Op{Kind: Xattr, A: f, Len: 300})
		for _, p := range free {
			out = append(out, Op{Kind: Rename, A: f, B: p}, Op{Kind: Link, A: f, B: p})
		}
		for _, p := range s.files {
			if p != f {
				out = append(out, Op{Kind: Rename, A: f, B: p}, Op{Kind: Exchange, A: f, B: p})
			}
		}
	}
	return out
}

// free are the names that may be taken.
func (s *search) free() (out []Path) {
	names := uint8(3)
	if s.canonical {
		names = min(names, s.used+1)
	}
	for d := range uint8(2) {
		for n := range names {
			if p := (Path{d, n}); !slices.Contains(s.files, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

func (s *search) apply(o Op) {
	gone := func(p Path) { s.files = slices.DeleteFunc(s.files, func(f Path) bool { return f == p }) }
	switch o.Kind {
	case Create:
		s.files = append(s.files, o.A)
		s.used = max(s.used, o.A.Name+1)
	case Unlink:
		gone(o.A)
	case Rename:
		gone(o.A)
		gone(o.B)
		s.files = append(s.files, o.B)
	case Link:
		s.files = append(s.files, o.B)
	}
	if o.Kind == Rename || o.Kind == Link {
		s.used = max(s.used, o.B.Name+1)
	}
}

// emit yields the operations with each placement of fsync.
func (s *search) emit() {
	for mask := 0; mask < 1<<len(s.ops) && !s.over; mask++ {
		list := slices.Clone(prelude)
		for i, o := range s.ops {
			list = append(list, o)
			if mask>>i&1 == 1 {
				list = append(list, fsyncAfter(o))
			}
		}
		s.over = !s.yield(list)
	}
}

func fsyncAfter(o Op) Op {
	switch o.Kind {
	case Rename, Link, Exchange:
		return Op{Kind: Fsync, A: o.B}
	case Unlink:
		return Op{Kind: Sync}
	}
	return Op{Kind: Fsync, A: o.A}
}

// sequenceConfig is a run of a list of operations on two copies.
func sequenceConfig(seed uint64, ops []Op, effort pmemtest.Effort) Config {
	cfg := Config{Seed: seed, Setup: Mirrored, Size: 1 << 20, Effort: effort, Ops: ops,
		Volume: volume.Params{NodeSize: 1024, LogLen: 64 << 10}}
	if seed%4 == 3 {
		cfg.Mode = pmemtest.Pages
	}
	return cfg
}
