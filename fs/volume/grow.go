package volume

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

// Grow makes the pool size bytes long with the next epoch that is closed; what it gains is free once the super of that epoch is sealed, so
// a full pool can grow. Every copy has that many bytes already, and zeros in those that are new. A pool of that size stays as it is.
func (v *Volume) Grow(size uint64) error {
	return v.change(func() error {
		b, have := v.region.Bytes(), v.size()
		switch {
		case size < have:
			return fmt.Errorf("volume: a pool of %d bytes cannot shrink to %d", have, size)
		case size%layout.BlockSize != 0 || size > uint64(len(b)):
			return fmt.Errorf("volume: growth to %d bytes: the local copy has %d, and whole blocks are needed", size, len(b))
		}
		v.growTo = size
		v.bytes = b
		v.tree.Extend(b)
		if mutant.On(mutant.GrowEarly) {
			early := v.super
			early.PoolSize = size
			v.space.grow(&early)
		}
		return nil
	})
}

// Size is the number of bytes of the pool, with those of a growth that is under way.
func (v *Volume) Size() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.size()
}

func (v *Volume) size() uint64 { return max(v.super.PoolSize, v.growTo) }

// growSuper enters a growth into the super that is about to be written.
func (v *Volume) growSuper() {
	s := &v.super
	if v.growTo > s.PoolSize {
		s.PoolSize = v.growTo
		s.Reserve = max(s.Reserve, reserveOf(s.PoolSize, s.Chunk))
	}
}

// grown makes the space that a sealed super has gained free.
func (v *Volume) grown() {
	if v.super.PoolSize/layout.BlockSize > v.space.End() {
		v.space.grow(&v.super)
		v.limits = limitsOf(&v.super)
	}
}

// grow gives the allocator the size of a super.
func (s *space) grow(super *layout.Super) {
	s.Allocator.Grow(super.PoolSize/layout.BlockSize, super.Reserve)
	s.stale.grow(super.PoolSize)
}
