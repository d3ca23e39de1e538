package crash

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// This file tests each allocation: it must not take what some copy would still recover to.

// reach is what the durable state of a copy refers to: the nodes of the trees of both super slots, and the blocks that files have after recovery.
type reach struct {
	hash  uint64 // of the bytes that this was found in
	known bool
	units []bool // by unit of reachUnit bytes
}

// reachUnit is the size of the smallest node.
const reachUnit = 1024

// Allocated tests that no copy in use reaches what the volume takes.
func (f follower) Allocated(r pmem.Range) {
	for _, h := range []*host{f.w.primary, f.w.other} {
		if h == nil || h.line != f.l.line || h.name == f.w.cfg.Blind {
			continue
		}
		if err := h.reaches(r); err != nil {
			f.w.failAt(h.name, err)
		}
	}
}

func (c *copyUnderTest) reaches(r pmem.Range) (err error) {
	c.region.Images(pmemtest.Effort{}, nil, func(m *pmemtest.Image) bool {
		if !c.reach.known || c.reach.hash != m.Hash {
			c.reach.hash, c.reach.known = m.Hash, true
			m.Bytes(func(b []byte) { err = c.reach.find(b) })
		}
		return false
	})
	for off := r.Off; err == nil && off < r.Off+r.Len; off += reachUnit {
		if c.reach.units[off/reachUnit] {
			err = fmt.Errorf("the bytes from offset %#x on are used again, and the copy still recovers to a state that has them", off)
		}
	}
	return err
}

// find recovers the volume in b.
func (r *reach) find(b []byte) error {
	if n := len(b) / reachUnit; len(r.units) != n {
		r.units = make([]bool, n) // the pool has grown
	}
	clear(r.units)
	valid := 0
	for _, off := range volume.SealWords() {
		s, err := layout.DecodeSuper(b[off:off+layout.BlockSize], poolUUID)
		if err != nil {
			continue // torn by a crash, or being written
		}
		valid++
		t := tree.New(tree.Config{Bytes: b, NodeSize: int(s.NodeSize), UUID: poolUUID}, s.Root, s.RootBirth, int(s.Height), s.Epoch+1)
		if err := t.Walk(false, func(node uint64, _ int, _ uint64) error {
			r.mark(pmem.Range{Off: node, Len: uint64(s.NodeSize)})
			return nil
		}, nil); err != nil {
			return fmt.Errorf("tree of epoch %d: %w", s.Epoch, err)
		}
	}
	if valid == 0 {
		return errors.New("no super slot is valid")
	}
	v, _, err := volume.Open(pmemtest.Plain(b), volume.Options{PoolUUID: poolUUID, Term: anyTerm, Now: fixedTime, NoAtime: true})
	if err != nil {
		return err
	}
	return v.AllocatedRanges(func(g pmem.Range) {
		// Recovery makes nodes of its own, in free space.
		if g.Off > v.LogEnd() && !bytes.HasPrefix(b[g.Off:], []byte("PMND")) {
			r.mark(g)
		}
	})
}

func (r *reach) mark(g pmem.Range) {
	for off := g.Off; off < g.Off+g.Len; off += reachUnit {
		r.units[off/reachUnit] = true
	}
}
