package pmem

import (
	"errors"
	"fmt"
	"slices"
)

// Extender is a region that can grow where it stands: what OpenFiles returns.
type Extender interface {
	// Extend maps more: the first parts are those that are mapped, only the last of which may be longer than it was, and more may
	// follow. The files have their sizes. Slices of Bytes stay valid, and other methods may be called meanwhile; they see the
	// region as it was or as it is. After an error it is as it was.
	//
	// A part whose promise is weaker than that of the region is refused with ErrWeaker, and one with which OpenFiles would refuse the parts with
	// ErrMixed.
	Extend(parts []Part) error
}

var (
	// ErrWeaker: a new part cannot promise what the region does.
	ErrWeaker = errors.New("pmem: the part is on a file system that promises less than those of the others")
	// ErrMixed: see OpenFiles. The kernel can write back a Device DAX neither by msync nor together with other parts.
	ErrMixed = errors.New("pmem: a Device DAX cannot be joined with parts that promise something else: put all parts on persistent memory, or none")
	// ErrNoRoom: the addresses behind the region are taken.
	ErrNoRoom = errors.New("pmem: the address space behind the region is used up: open the pool anew, which makes room for a TiB or for as much as it has, or grow it by less")
)

// Extend must not be called twice at the same time.
func (m *mapping) Extend(parts []Part) error {
	if m.loads() {
		return ErrReadOnly
	}
	total, err := totalSize(parts)
	if err != nil {
		return err
	}
	size, old := m.size(), *m.parts.Load()
	if err := continues(old, parts); err != nil {
		return err
	}
	align, err := alignmentOf(parts)
	if err != nil {
		return err
	}
	if uint64(address(m.mem))%align != 0 {
		return fmt.Errorf("pmem: a part is a Device DAX with an alignment of %d, and the region stands at no multiple of that: open the pool anew with the part", align)
	}
	if total > uint64(len(m.mem)) {
		return fmt.Errorf("%w: %d bytes are reserved, %d needed", ErrNoRoom, len(m.mem), total)
	}
	grown, err := m.mapBehind(old, parts)
	if err != nil {
		if total > size {
			err = errors.Join(err, vacate(m.mem[size:total]))
		}
		return err
	}
	m.publish(grown, total)
	return nil
}

// continues tells whether parts are those of old with a longer last one, or more behind them.
func continues(old []placed, parts []Part) error {
	if len(parts) < len(old) {
		return fmt.Errorf("pmem: %d parts cannot replace %d", len(parts), len(old))
	}
	for i, o := range old {
		p, last := parts[i], i == len(old)-1
		if p.Path != o.Path || p.Size < o.Size || p.Size > o.Size && !last {
			return fmt.Errorf("pmem: part %d is %s with %d bytes, expected %s with %d: only the last part can be longer, and new ones follow it",
				i, p.Path, p.Size, o.Path, o.Size)
		}
	}
	return nil
}

// mapBehind maps what parts have more than old over the addresses behind the region, and returns all of them.
func (m *mapping) mapBehind(old []placed, parts []Part) ([]placed, error) {
	off, all := m.size(), slices.Clone(old)
	for i := len(old) - 1; i < len(parts); i++ {
		p, at := parts[i], uint64(0)
		if i < len(old) {
			at = old[i].Size
		}
		n := p.Size - at
		if n == 0 {
			continue
		}
		placed, err := mapPart(p, at, m.mem[off:off+n], Options{})
		if err != nil {
			return nil, err
		}
		if placed.promise < m.promise {
			return nil, fmt.Errorf("%w: %s", ErrWeaker, p.Path)
		}
		all, off = append(all[:i], placed), off+n
	}
	return all, checkMixed(all)
}
