package pmemtest

import (
	"bytes"
	"unsafe"
)

// Arrived says that the bytes b, which a device has stored into the region, are in the persistence domain: what they hold now is certain. Of the
// bytes beside them in their units nothing is said. It returns false if b is not of this region. It is no event.
func (r *Region) Arrived(b []byte) bool {
	off, ok := within(r.mem, b)
	if !ok {
		return false
	}
	r.compare()
	first, last := off/r.unit, (off+len(b)-1)/r.unit
	for u := first; u <= last; u++ {
		if t := r.open[u]; t != nil {
			r.fix(u, t, max(off-u*r.unit, 0), min(off+len(b)-u*r.unit, r.unit))
		}
	}
	r.collapse(func(u int, t *track) int {
		n := len(t.later) / r.unit
		if u < first || u > last || !bytes.Equal(t.later, bytes.Repeat(r.durable(u), n)) {
			return 0
		}
		return n
	})
	return true
}

// fix gives the bytes from lo to hi of unit u the same value in all versions: the latest.
func (r *Region) fix(u int, t *track, lo, hi int) {
	latest := t.later[len(t.later)-r.unit:]
	for at := 0; at < len(t.later); at += r.unit {
		copy(t.later[at+lo:at+hi], latest[lo:hi])
	}
	base := bytes.Clone(r.durable(u))
	copy(base[lo:hi], latest[lo:hi])
	r.settle(u, base)
}

// within is the offset of part in whole, if it lies in there. Neither is empty. The addresses are compared as numbers and become no pointers
// again, and both slices are alive meanwhile.
func within(whole, part []byte) (int, bool) {
	from, at := uintptr(unsafe.Pointer(unsafe.SliceData(whole))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	off := at - from
	if at < from || off > uintptr(len(whole)) || uintptr(len(part)) > uintptr(len(whole))-off {
		return 0, false
	}
	return int(off), true
}
