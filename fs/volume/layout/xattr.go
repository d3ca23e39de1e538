package layout

import "encoding/binary"

// A list of extended attributes is the value of an XATTR key: all attributes whose names have one hash, ordered by name.
// An attribute is {n u8, form u8, vlen u32, name of n bytes, data}.

// Forms of an attribute's data.
const (
	XattrInline = 0 // the value itself
	XattrBlocks = 1 // an XattrRun: the value stands in blocks of the pool
)

const (
	// XattrHeader is the size of an attribute without name and data.
	XattrHeader = 6
	// XattrRunSize is the size of the data of form XattrBlocks.
	XattrRunSize = 12
	// MaxXattrInline is the longest value, in bytes, that stands in the list itself.
	MaxXattrInline = 256
)

// Xattr is one attribute. Vlen is the length of its value in bytes, Data is what Form says.
type Xattr struct {
	Name []byte
	Form uint8
	Vlen uint32
	Data []byte
}

// XattrRun is the run of blocks that holds a large value.
type XattrRun struct {
	Pblk uint64
	N    uint32
}

// Encode writes the XattrRunSize bytes of r.
func (r XattrRun) Encode(b []byte) {
	binary.LittleEndian.PutUint64(b, r.Pblk)
	binary.LittleEndian.PutUint32(b[8:], r.N)
}

// Run is where the value of an attribute of form XattrBlocks stands. Ok is false for another form, or if the blocks are
// not as many as the value needs. That they lie within the pool is for the caller to check.
func (x *Xattr) Run() (r XattrRun, ok bool) {
	if x.Form != XattrBlocks || len(x.Data) != XattrRunSize {
		return XattrRun{}, false
	}
	r = XattrRun{binary.LittleEndian.Uint64(x.Data), binary.LittleEndian.Uint32(x.Data[8:])}
	return r, uint64(r.N) == (uint64(x.Vlen)+BlockSize-1)/BlockSize
}

// cutXattr splits the first attribute off list.
func cutXattr(list []byte) (x Xattr, rest []byte, ok bool) {
	if len(list) < XattrHeader || list[0] == 0 {
		return Xattr{}, list, false
	}
	x.Form, x.Vlen = list[1], binary.LittleEndian.Uint32(list[2:])
	name := XattrHeader + int(list[0])
	size := XattrRunSize
	switch {
	case x.Form > XattrBlocks || x.Form == XattrInline && x.Vlen > MaxXattrInline:
		return Xattr{}, list, false
	case x.Form == XattrInline:
		size = int(x.Vlen)
	}
	if name+size > len(list) {
		return Xattr{}, list, false
	}
	x.Name, x.Data = list[XattrHeader:name], list[name:name+size]
	return x, list[name+size:], true
}

// seekXattr finds the place of name: list[at:end] is its attribute if ok, else at == end is where it belongs. It stops at
// bytes that are no attribute.
func seekXattr(list, name []byte) (x Xattr, at, end int, ok bool) {
	rest := list
	for {
		at = len(list) - len(rest)
		x, next, whole := cutXattr(rest)
		if !whole || string(x.Name) > string(name) {
			return Xattr{}, at, at, false
		}
		if string(x.Name) == string(name) {
			return x, at, len(list) - len(next), true
		}
		rest = next
	}
}

// FindXattr looks for name. The slices of the result point into list.
func FindXattr(list, name []byte) (x Xattr, ok bool) {
	x, _, _, ok = seekXattr(list, name)
	return x, ok
}

// PutXattr appends to dst the list with x in it; one of the same name is replaced. The name has 1 to 255 bytes, the data
// are as the form says. Dst must not overlap list.
func PutXattr(dst, list []byte, x Xattr) []byte {
	_, at, end, _ := seekXattr(list, x.Name)
	dst = append(dst, list[:at]...)
	dst = append(dst, uint8(len(x.Name)), x.Form)
	dst = binary.LittleEndian.AppendUint32(dst, x.Vlen)
	dst = append(dst, x.Name...)
	dst = append(dst, x.Data...)
	return append(dst, list[end:]...)
}

// RemoveXattr appends to dst the list without the attribute of that name.
func RemoveXattr(dst, list, name []byte) []byte {
	_, at, end, _ := seekXattr(list, name)
	dst = append(dst, list[:at]...)
	return append(dst, list[end:]...)
}

// EachXattr calls fn for each attribute in order until fn returns false. A list that is not whole attributes in ascending
// order of their names is an error.
func EachXattr(list []byte, fn func(x Xattr) bool) error {
	var last []byte
	for rest := list; len(rest) > 0; {
		x, next, ok := cutXattr(rest)
		if !ok || string(x.Name) <= string(last) {
			return corrupt("extended attribute at byte %d of a list of %d: found one not whole or not in order, expected ascending names", len(list)-len(rest), len(list))
		}
		if !fn(x) {
			return nil
		}
		last, rest = x.Name, next
	}
	return nil
}
