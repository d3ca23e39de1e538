// Package snapshot is the form in which a checkpoint leaves the allocator in the pool, so that a mount need not walk the tree.
// Section 7 of docs/format.md shows the bytes.
//
// Where a snapshot stands, how long it is and its sum are in the super slot that it belongs to. Whoever reads it compares the
// sum first; Decode trusts nothing all the same.
package snapshot

import (
	"encoding/binary"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

const (
	magic      = "PMFSPACE"
	headerSize = 40
)

// Space is what a snapshot is taken of. Each function calls fn for runs in ascending order that are disjoint and not empty.
// Nodes are numbered by their pool offset divided by node_size.
type Space struct {
	Nodes   func(fn func(first, n uint64)) // of this state and the one before
	Data    func(fn func(first, n uint64)) // blocks
	Dropped func(fn func(first, n uint64)) // nodes of the state before alone
}

// Append appends the snapshot of s, which belongs to the super of an epoch.
func Append(dst []byte, epoch uint64, s Space) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	var runs [3]uint64
	for i, each := range [3]func(func(first, n uint64)){s.Nodes, s.Data, s.Dropped} {
		end := uint64(0)
		each(func(first, n uint64) {
			dst = binary.AppendUvarint(dst, first-end)
			dst = binary.AppendUvarint(dst, n)
			end = first + n
			runs[i]++
		})
	}
	h := dst[start:]
	copy(h, magic)
	binary.LittleEndian.PutUint64(h[8:], epoch)
	for i, n := range runs {
		binary.LittleEndian.PutUint64(h[16+8*i:], n)
	}
	return dst
}

// Decode calls the functions for each run of nodes, of data and of dropped nodes, until one of them returns false: then the
// run cannot be. Errors wrap layout.ErrCorrupt.
func Decode(b []byte, epoch uint64, nodes, data, dropped func(first, n uint64) bool) error {
	if len(b) < headerSize || string(b[:8]) != magic {
		return fmt.Errorf("%w: snapshot of the space: found no %q", layout.ErrCorrupt, magic)
	}
	if found := binary.LittleEndian.Uint64(b[8:]); found != epoch && !mutant.On(mutant.OldSnapshot) {
		return fmt.Errorf("%w: snapshot of the space: found epoch %d, expected %d", layout.ErrCorrupt, found, epoch)
	}
	rest := b[headerSize:]
	for i, fn := range [3]func(first, n uint64) bool{nodes, data, dropped} {
		var err error
		if rest, err = runs(rest, binary.LittleEndian.Uint64(b[16+8*i:]), fn); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: snapshot of the space: found %d bytes behind the last run", layout.ErrCorrupt, len(rest))
	}
	return nil
}

// runs decodes n runs and returns what follows them.
func runs(b []byte, n uint64, fn func(first, n uint64) bool) ([]byte, error) {
	end := uint64(0)
	for i := range n {
		gap, k := binary.Uvarint(b)
		length, l := binary.Uvarint(b[max(k, 0):])
		if k <= 0 || l <= 0 {
			return nil, fmt.Errorf("%w: snapshot of the space: run %d of %d is cut off", layout.ErrCorrupt, i, n)
		}
		b = b[k+l:]
		first := end + gap
		end = first + length
		if length == 0 || first < gap || end < first || !fn(first, length) {
			return nil, fmt.Errorf("%w: snapshot of the space: found a run of %d at %d, which cannot be", layout.ErrCorrupt, length, first)
		}
	}
	return b, nil
}
