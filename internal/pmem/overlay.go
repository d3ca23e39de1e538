package pmem

import "sync"

// Owner is a private region whose bytes cannot all be stored to at once. Elsewhere the kernel copies a page when it is first stored to; it
// cannot do so for a Device DAX.
type Owner interface {
	// Own must have returned before the first store to r; a store to anything else faults. It may be called while others read.
	Own(r Range) error
}

// overlay is a private region with a Device DAX among its parts. The device is mapped for reading, shared with everybody; what Own was
// called for is replaced by a copy in ordinary memory, in runs of the alignment of the device, since its mapping cannot be cut elsewhere.
type overlay struct {
	*mapping
	mu    sync.Mutex
	owned map[uint64]bool // by the pool offset of a run
}

func (o *overlay) Own(r Range) error {
	if err := checkRange("own", r.Off, r.Len, o.size()); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	start := uint64(0)
	for _, p := range *o.parts.Load() {
		end := start + p.Size
		if p.kind == DeviceDAX {
			if err := o.own(max(r.Off, start), min(r.Off+r.Len, end), start, p.align); err != nil {
				return err
			}
		}
		start = end
	}
	return nil
}

// own replaces the runs of align bytes, counted from start, that [lo, hi) touches.
func (o *overlay) own(lo, hi, start, align uint64) error {
	if lo >= hi {
		return nil
	}
	for off := lo - (lo-start)%align; off < hi; off += align {
		if o.owned[off] {
			continue
		}
		if err := replace(o.mem[off : off+align]); err != nil {
			return err
		}
		o.owned[off] = true
	}
	return nil
}
