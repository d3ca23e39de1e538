package pool

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// OpenRegion is Open for a region that is mapped already and that nobody else can have, so without a lock: for simulations. Set
// only gives the pool its name in messages.
func OpenRegion(set *poolset.Set, r pmem.Region, opt OpenOptions) (*Pool, error) {
	p := &Pool{set: set, region: r, readOnly: opt.ReadOnly}
	if err := p.load(opt); err != nil {
		return nil, err
	}
	return p, nil
}

// InspectBytes is Inspect for the bytes of a pool.
func InspectBytes(set *poolset.Set, b []byte) (Info, error) {
	if len(b) < poolset.BlockSize {
		return Info{}, fmt.Errorf("pool %s: %d bytes hold no header", set.File, len(b))
	}
	return decode(set, b[:poolset.BlockSize], uint64(len(b)))
}
