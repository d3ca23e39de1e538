package pmem

import "errors"

// heap is a region in the Go heap, where the race detector sees every access.
type heap struct {
	mem    []byte
	closed bool
}

// NewHeap returns a volatile region of size bytes, all zero.
func NewHeap(size uint64) Region {
	return &heap{mem: make([]byte, size)}
}

func (h *heap) Bytes() []byte    { return h.mem }
func (h *heap) Promise() Promise { return Volatile }
func (h *heap) Kind() Kind       { return Heap }
func (h *heap) Fence() error     { return nil }
func (h *heap) Sync() error      { return nil }

func (h *heap) Flush(rs []Range) error {
	for _, r := range rs {
		if err := checkRange("flush", r.Off, r.Len, uint64(len(h.mem))); err != nil {
			return err
		}
	}
	return nil
}

func (h *heap) Store64(off, val uint64) error {
	if err := checkWord(off, uint64(len(h.mem))); err != nil {
		return err
	}
	store64(h.mem[off:], val)
	return nil
}

func (h *heap) Prefault(r Range) error {
	return checkRange("prefault", r.Off, r.Len, uint64(len(h.mem)))
}

func (h *heap) Close() error {
	if h.closed {
		return errors.New("pmem: region closed twice")
	}
	h.closed = true
	return nil
}
