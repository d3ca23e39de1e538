package tree

import (
	"encoding/binary"
	"math/bits"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Key is the key of an entry.
type Key = layout.Key

// Places in a node, and sizes, in bytes.
const (
	magicOff = 0
	crcOff   = 4
	birthOff = 8
	selfOff  = 16
	levelOff = 24
	countOff = 26
	lowOff   = 28
	deadOff  = 30
	slotsOff = 64

	slotSize  = 24
	childSize = 16
	crcStart  = birthOff // first byte that the CRC covers

	nodeMagic = 0x444e4d50 // "PMND"
)

// node is the bytes of one node. The accessors rely on what Tree.enter checked: slots end before low, low is within
// the node.
type node []byte

func (nd node) birth() uint64 { return binary.LittleEndian.Uint64(nd[birthOff:]) }
func (nd node) self() uint64  { return binary.LittleEndian.Uint64(nd[selfOff:]) }
func (nd node) level() int    { return int(binary.LittleEndian.Uint16(nd[levelOff:])) }
func (nd node) count() int    { return int(binary.LittleEndian.Uint16(nd[countOff:])) }
func (nd node) low() int      { return int(binary.LittleEndian.Uint16(nd[lowOff:])) }
func (nd node) dead() int     { return int(binary.LittleEndian.Uint16(nd[deadOff:])) }

func (nd node) setCount(n int)  { binary.LittleEndian.PutUint16(nd[countOff:], uint16(n)) }
func (nd node) setLow(off int)  { binary.LittleEndian.PutUint16(nd[lowOff:], uint16(off)) }
func (nd node) addDead(n int)   { binary.LittleEndian.PutUint16(nd[deadOff:], uint16(nd.dead()+n)) }
func (nd node) capacity() int   { return len(nd) - slotsOff }
func (nd node) used() int       { return nd.count()*slotSize + len(nd) - nd.low() - nd.dead() }
func (nd node) contiguous() int { return nd.low() - slotsOff - nd.count()*slotSize }

// init makes an empty node.
func (nd node) init(off, birth uint64, level int) {
	clear(nd[:slotsOff])
	binary.LittleEndian.PutUint32(nd[magicOff:], nodeMagic)
	binary.LittleEndian.PutUint16(nd[levelOff:], uint16(level))
	nd.setLow(len(nd))
	nd.place(off, birth)
}

// place notes where a node stands and when it was born.
func (nd node) place(off, birth uint64) {
	binary.LittleEndian.PutUint64(nd[birthOff:], birth)
	binary.LittleEndian.PutUint64(nd[selfOff:], off)
}

// slot is the bytes of slot i.
func (nd node) slot(i int) []byte {
	at := slotsOff + i*slotSize
	return nd[at : at+slotSize : at+slotSize]
}

func (nd node) key(i int) Key {
	s := nd.slot(i)
	return Key{Hi: binary.LittleEndian.Uint64(s), Lo: binary.LittleEndian.Uint64(s[8:])}
}

// value is the value of slot i, nil if the slot points outside of the values.
func (nd node) value(i int) []byte {
	s := nd.slot(i)
	off := int(binary.LittleEndian.Uint16(s[16:]))
	end := off + int(binary.LittleEndian.Uint16(s[18:]))
	if off < nd.low() || end > len(nd) {
		return nil
	}
	return nd[off:end:end]
}

// child is what slot i of an inner node points to. Ok is false if the value is no such pointer.
func (nd node) child(i int) (off, birth uint64, ok bool) {
	v := nd.value(i)
	if len(v) != childSize {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:]), true
}

func putChild(v []byte, off, birth uint64) {
	binary.LittleEndian.PutUint64(v, off)
	binary.LittleEndian.PutUint64(v[8:], birth)
}

// stride is the distance of the slots that upper looks at first: near the square root of what a full inner node has.
const stride = 12

// upper is the number of slots whose key is at most k, 0 to count.
//
// In a large pool most nodes are in no cache of the processor, and a search waits for memory. So upper asks for much at once rather than for little
// again and again as a binary search does: first every stride-th key, then all keys between two of those. Within either step no load depends on
// another one, nor any branch on what was loaded, so that the waiting times overlap.
func (nd node) upper(k Key) int {
	n := nd.count()
	past := 0
	for i := stride - 1; i < n; i += stride {
		past += nd.atMost(i, k)
	}
	from := past * stride
	i := from
	for end := min(from+stride-1, n); from < end; from++ {
		i += nd.atMost(from, k)
	}
	return i
}

// atMost is 1 if the key of slot i is at most k, else 0: without a branch, see upper.
func (nd node) atMost(i int, k Key) int {
	s := nd[slotsOff+i*slotSize:][:slotSize]
	_, less := bits.Sub64(k.Lo, binary.LittleEndian.Uint64(s[8:]), 0)
	_, less = bits.Sub64(k.Hi, binary.LittleEndian.Uint64(s), less)
	return 1 - int(less)
}

// find is the slot of k if found, else the slot that k would get.
func (nd node) find(k Key) (i int, found bool) {
	i = nd.upper(k)
	if i > 0 && nd.key(i-1) == k {
		return i - 1, true
	}
	return i, false
}

// route is the slot of an inner node below which k belongs.
func (nd node) route(k Key) int { return max(nd.upper(k)-1, 0) }

// insert puts an entry into slot i. There must be contiguous room for it.
func (nd node) insert(i int, k Key, v []byte) {
	n := nd.count()
	low := nd.low() - len(v)
	copy(nd[low:], v)
	at := slotsOff + i*slotSize
	copy(nd[at+slotSize:], nd[at:slotsOff+n*slotSize])
	s := nd.slot(i)
	binary.LittleEndian.PutUint64(s, k.Hi)
	binary.LittleEndian.PutUint64(s[8:], k.Lo)
	binary.LittleEndian.PutUint16(s[16:], uint16(low))
	binary.LittleEndian.PutUint16(s[18:], uint16(len(v)))
	binary.LittleEndian.PutUint32(s[20:], 0)
	nd.setLow(low)
	nd.setCount(n + 1)
}

// remove drops slot i; the bytes of its value are dead.
func (nd node) remove(i int) {
	n := nd.count()
	nd.addDead(len(nd.value(i)))
	at := slotsOff + i*slotSize
	copy(nd[at:], nd[at+slotSize:slotsOff+n*slotSize])
	nd.setCount(n - 1)
}

// truncate drops the slots from m on.
func (nd node) truncate(m int) {
	for i := m; i < nd.count(); i++ {
		nd.addDead(len(nd.value(i)))
	}
	nd.setCount(m)
}

// appendFrom appends the entries from..to-1 of src, which must fit.
func (nd node) appendFrom(src node, from, to int) {
	for i := from; i < to; i++ {
		nd.insert(nd.count(), src.key(i), src.value(i))
	}
}
