package tree

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Freeze ends the open epoch: it stores the CRC into each node born in it and appends their ranges to dst, those sorted
// and merged. They are immutable from now on. The nodes that the epoch replaced are handed over, see TakeReplaced.
//
// A damaged node, which only a stray store can make, is left out. So before the new root is sealed, Err must be nil.
func (t *Tree) Freeze(dst []pmem.Range) []pmem.Range {
	old := len(dst)
	if nd, err := t.enterRoot(); err == nil && t.rootBirth == t.epoch {
		dst = t.freeze(nd, dst)
	}
	dst = dst[:old+len(joinRanges(dst[old:]))]
	t.handed = append(t.handed, t.replaced...)
	t.replaced = t.replaced[:0]
	t.born = 0
	t.epoch++
	return dst
}

// freeze does so for a node of the open epoch and all such below it, bottom up.
func (t *Tree) freeze(nd node, dst []pmem.Range) []pmem.Range {
	for i := 0; nd.level() > 0 && i < nd.count(); i++ {
		if _, birth, _ := nd.child(i); birth != t.epoch {
			continue
		}
		if child, err := t.enterChild(nd, i); err == nil {
			dst = t.freeze(child, dst)
		}
	}
	binary.LittleEndian.PutUint32(nd[crcOff:], t.crc(nd))
	return append(dst, pmem.Range{Off: nd.self(), Len: uint64(t.nodeSize)})
}

// joinRanges sorts disjoint ranges and joins those that touch.
func joinRanges(rs []pmem.Range) []pmem.Range {
	slices.SortFunc(rs, func(a, b pmem.Range) int { return cmp.Compare(a.Off, b.Off) })
	out := rs[:0]
	for _, r := range rs {
		if last := len(out) - 1; last >= 0 && out[last].Off+out[last].Len == r.Off {
			out[last].Len += r.Len
		} else {
			out = append(out, r)
		}
	}
	return out
}

// TakeReplaced hands over the nodes of older epochs that were replaced or dropped in the epochs ended by Freeze since the
// last call. The caller owns the list and gives the nodes back when no state that a copy may recover to needs them.
func (t *Tree) TakeReplaced() []uint64 {
	l := t.handed
	t.handed = nil
	return l
}
