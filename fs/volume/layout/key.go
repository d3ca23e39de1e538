package layout

import "math"

// Types of keys.
const (
	TypeInode   = 1
	TypeDirent  = 2
	TypeExtent  = 3
	TypeXattr   = 4
	TypeSymlink = 5
	TypeOrphan  = 6
)

const subBits = 56

// MaxSub is the greatest third part of a key.
const MaxSub = 1<<subBits - 1

// Key names one value of the tree: Hi is the inode number, Lo is type << 56 | sub. Keys are ordered by Hi, then Lo.
type Key struct{ Hi, Lo uint64 }

// MakeKey puts a key together. Only the low 56 bits of sub count. The key of an orphan is MakeKey(0, TypeOrphan, ino).
func MakeKey(ino uint64, typ uint8, sub uint64) Key {
	return Key{ino, uint64(typ)<<subBits | sub&MaxSub}
}

// Type is the kind of value that k names.
func (k Key) Type() uint8 { return uint8(k.Lo >> subBits) }

// Sub is the part of k below the type: a name's hash, a logical block, a piece, or an orphan's number.
func (k Key) Sub() uint64 { return k.Lo & MaxSub }

// Less tells whether k stands before o.
func (k Key) Less(o Key) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

// Compare is -1, 0 or 1 as k stands before o, equals it, or stands after it.
func (k Key) Compare(o Key) int {
	switch {
	case k == o:
		return 0
	case k.Less(o):
		return -1
	}
	return 1
}

// Next is the smallest key greater than k. The greatest key of all is followed by itself.
func (k Key) Next() Key {
	switch {
	case k.Lo != math.MaxUint64:
		return Key{k.Hi, k.Lo + 1}
	case k.Hi != math.MaxUint64:
		return Key{k.Hi + 1, 0}
	}
	return k
}
