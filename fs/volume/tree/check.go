package tree

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// enter returns the node at off if it can be one of that birth and level: everything that the accessors of node rely on
// is checked.
func (t *Tree) enter(off, birth uint64, level int) (node, error) {
	size := uint64(t.nodeSize)
	if off%size != 0 || off > uint64(len(t.bytes)) || size > uint64(len(t.bytes))-off {
		return nil, t.damaged(off, "place", off, "an aligned node within the pool")
	}
	nd := t.at(off)
	if !t.isNode(nd, off, birth, level) {
		return nil, t.badHeader(nd, off, birth, level)
	}
	if t.bad != nil && t.bad[off] {
		return nil, t.damaged(off, "node", off, "one that a survey found whole")
	}
	if t.proven != nil && birth < t.provenFrom {
		if err := t.prove(nd); err != nil {
			return nil, err
		}
	}
	return nd, nil
}

// ProveNodes makes every node of the epochs so far prove itself by its CRC when it is entered for the first time: for a tree that nobody
// has walked since it was opened. It takes a bit per node that the pool has room for.
func (t *Tree) ProveNodes() {
	t.proven, t.provenFrom = make([]uint64, (len(t.bytes)/t.nodeSize+63)/64), t.epoch
}

// prove checks the CRC of an entered node once. A place gets another node only in a later epoch, which needs no proof.
func (t *Tree) prove(nd node) error {
	i := nd.self() / uint64(t.nodeSize)
	if i/64 >= uint64(len(t.proven)) {
		return t.damaged(nd.self(), "place", nd.self(), "one within the pool as it was when it was opened")
	}
	word, bit := &t.proven[i/64], uint64(1)<<(i%64)
	if atomic.LoadUint64(word)&bit != 0 {
		return nil
	}
	if err := t.checkCRC(nd); err != nil {
		return err
	}
	atomic.OrUint64(word, bit)
	return nil
}

// isNode tells whether the header of nd is that of a node of this place, birth and level.
func (t *Tree) isNode(nd node, off, birth uint64, level int) bool {
	n, low := nd.count(), nd.low()
	return binary.LittleEndian.Uint32(nd[magicOff:]) == nodeMagic && nd.self() == off && nd.birth() == birth && birth <= t.epoch &&
		nd.level() == level && slotsOff+n*slotSize <= low && low <= t.nodeSize && (n > 0 || level == 0)
}

// badHeader names the field of a header for which enter refused it.
func (t *Tree) badHeader(nd node, off, birth uint64, level int) error {
	magic := binary.LittleEndian.Uint32(nd[magicOff:])
	switch {
	case magic != nodeMagic:
		return t.damaged(off, "magic", uint64(magic), fmt.Sprint(uint32(nodeMagic)))
	case nd.self() != off:
		return t.damaged(off, "self", nd.self(), fmt.Sprint(off))
	case nd.birth() != birth || birth > t.epoch:
		return t.damaged(off, "birth", nd.birth(), fmt.Sprintf("%d, as its parent says, and at most %d", birth, t.epoch))
	case nd.level() != level:
		return t.damaged(off, "level", uint64(nd.level()), fmt.Sprint(level))
	case nd.low() > t.nodeSize:
		return t.damaged(off, "low", uint64(nd.low()), fmt.Sprintf("at most %d", t.nodeSize))
	}
	return t.damaged(off, "n", uint64(nd.count()), fmt.Sprintf("slots that end before %d, at least one in an inner node", nd.low()))
}

// enterChild enters what slot i of an inner node points to.
func (t *Tree) enterChild(nd node, i int) (node, error) {
	off, birth, ok := nd.child(i)
	if !ok || birth > nd.birth() {
		return nil, t.damaged(nd.self(), "child", uint64(i), "a slot with a pointer to a node that is not younger")
	}
	return t.enter(off, birth, nd.level()-1)
}

// verify checks an entered node, so that it can be copied and rearranged: values lie within the node, and with the dead bytes they
// make up exactly what is in use, so that they fit wherever they are moved. One of an older epoch has the right CRC: a copy gets a
// CRC of its own, under which damage would pass for content, here and on every replica.
func (t *Tree) verify(nd node) error {
	if nd.birth() < t.epoch {
		if err := t.checkCRC(nd); err != nil {
			return err
		}
	}
	low, sum := nd.low(), nd.dead()
	for i := range nd.count() {
		s := nd.slot(i)
		off, n := int(binary.LittleEndian.Uint16(s[16:])), int(binary.LittleEndian.Uint16(s[18:]))
		if off < low || off+n > t.nodeSize || n > t.maxValue || nd.level() > 0 && n != childSize {
			return t.damaged(nd.self(), "slot", uint64(i), "a value within the node")
		}
		sum += n
	}
	if sum != t.nodeSize-low {
		return t.damaged(nd.self(), "bytes of values", uint64(sum), fmt.Sprint(t.nodeSize-low))
	}
	return nil
}

// crcField names the CRC in a DamageError.
const crcField = "crc"

// checkCRC is for nodes of older epochs: one of the open epoch has no CRC yet.
func (t *Tree) checkCRC(nd node) error {
	if found, want := binary.LittleEndian.Uint32(nd[crcOff:]), t.crc(nd); found != want {
		return t.damaged(nd.self(), crcField, uint64(found), fmt.Sprint(want))
	}
	return nil
}

func (t *Tree) crc(nd node) uint32 { return layout.CRC(t.uuid, nd[crcStart:]) }

// damaged makes the error for a damaged node and keeps the first one for Err.
func (t *Tree) damaged(off uint64, field string, found uint64, want string) error {
	var err error = &DamageError{off, field, found, want}
	t.err.CompareAndSwap(nil, &err)
	return err
}

// DamageError is a field of a node that is not what it must be. It wraps layout.ErrCorrupt.
type DamageError struct {
	Off   uint64 // pool offset of the node
	Field string
	Found uint64
	Want  string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: tree node at offset %d: %s: found %d, expected %s", layout.ErrCorrupt, e.Off, e.Field, e.Found, e.Want)
}

func (e *DamageError) Unwrap() error { return layout.ErrCorrupt }

// Err is the first damage that anything met in this tree, or nil.
func (t *Tree) Err() error {
	if err := t.err.Load(); err != nil {
		return *err
	}
	return nil
}
