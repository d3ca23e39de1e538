package volume

import (
	"errors"
	"fmt"
	"math"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Examine is Check for a pool that nobody has open. Where the pool opens, that is the state which the next mount would find. Where
// it does not, it is that of the last checkpoint, and whatever is left of it is checked; the log is then looked at by
// itself. The region must be one that can be stored to, a private one for instance, since the log is replayed there. An error means
// that nothing could be checked: no super slot is valid, or a fault.
func Examine(r pmem.Region, uuid [16]byte, report func(Finding)) error {
	var err error
	if fault := pmem.Guard(func() { err = examine(r, uuid, report) }); fault != nil {
		err = fault
	}
	if err != nil {
		return fmt.Errorf("examine: %w", err)
	}
	return nil
}

func examine(r pmem.Region, uuid [16]byte, report func(Finding)) error {
	b := r.Bytes()
	s, err := readSlots(reader(b), uuid, uint64(len(b)))
	if err != nil {
		return err
	}
	if s.damage != nil {
		report(Finding{Where: "super slot", What: s.damage.Error(), Off: layout.SuperOff(s.best.Epoch + 1), Note: true, fix: fix{kind: fixSuper}})
	}
	o := Options{PoolUUID: uuid, Term: math.MaxUint64, Now: func() Time { return Time{} }, NoAtime: true, ForCheck: true}
	walk := o
	walk.WalkUpTo = math.MaxUint64
	_, _, err = Open(r, walk)
	switch {
	case err == nil: // once more as a mount does it, so that a snapshot of the allocator is compared with the tree too
		v, rec, err := Open(r, o)
		if err != nil {
			return err
		}
		if rec.Misled != nil {
			report(Finding{Where: "snapshot of the allocator", What: fmt.Sprintf("does not fit the log, and the next checkpoint replaces it: %v", rec.Misled)})
		}
		return v.Check(report)
	case !errors.Is(err, ErrCorrupt):
		return err
	}
	v := newVolume(r, o, s.best)
	v.salvage = true
	c := newChecker(v, report)
	c.ruins(err)
	return nil
}

// ruins checks what is left of the last checkpoint of a pool that does not open, for the reason why.
func (c *checker) ruins(why error) {
	sp := newSpace(&c.v.super)
	survey(c.v, func(off uint64) bool {
		once := sp.MarkNode(off)
		if !once {
			c.report(Finding{Where: fmt.Sprintf("node at offset %d", off), What: "is reached twice, or stands outside of a node chunk", Off: off})
		}
		return once
	}, nil, func(d tree.Damage) {
		c.lost = append(c.lost, d)
		c.report(damageFinding(&d))
	})
	if len(c.lost) == 0 {
		c.find("recovery", "%v", why)
	}
	survey(c.v, c.shadow.MarkNode, func(k layout.Key, val []byte) { _ = c.value(k, val) }, func(tree.Damage) {})
	c.finish()
	sp = newSpace(&c.v.super)
	survey(c.v, sp.MarkNode, func(k layout.Key, val []byte) { _ = c.names(k, val) }, func(tree.Damage) {})
	c.links()
	c.records()
}

// records looks at the log by itself.
func (c *checker) records() {
	s := &c.v.super
	p := replay{v: c.v}
	_, rec, err := scanLog(reader(c.v.bytes), s, p.mark)
	if err != nil {
		c.find("log", "%v", err)
	}
	if rec.Replayed > 0 {
		c.find("log", "its %d records after group %d are not part of what was checked", rec.Replayed, s.LSN)
	}
}

// lostKey tells whether the entry of k may be in a part of the tree that is lost.
func (c *checker) lostKey(k layout.Key) bool {
	for i := range c.lost {
		if c.lost[i].Lost(k) {
			return true
		}
	}
	return false
}

// lostPart tells whether some of an inode may be lost.
func (c *checker) lostPart(ino Ino) bool {
	for i := range c.lost {
		if d := &c.lost[i]; d.Lo.Hi <= ino && (d.Hi == nil || inodeKey(ino).Less(*d.Hi) || d.Hi.Hi == ino) {
			return true
		}
	}
	return false
}
