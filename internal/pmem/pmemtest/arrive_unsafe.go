package pmemtest

import "unsafe"

// Arrived says that the bytes b, which a device has stored into the region, are in the persistence domain: what their units hold now is certain.
// It returns false if b is not of this region. It is no event.
func (r *Region) Arrived(b []byte) bool {
	off, ok := within(r.mem, b)
	if !ok {
		return false
	}
	r.compare()
	first, last := off/r.unit, (off+len(b)-1)/r.unit
	r.collapse(func(u int, t *track) int {
		if u < first || u > last {
			return 0
		}
		return len(t.later) / r.unit
	})
	return true
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
