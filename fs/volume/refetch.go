package volume

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Source is another copy of the pool, of the same generation: a node of the same birth in the same place has the same bytes there.
type Source struct {
	Name   string
	ReadAt func(off uint64, b []byte) error
	Lacks  func(err error) // hears of each node that was looked for here and is not there; nil: nobody wants to know
}

// RefetchNodes replaces each damaged node of the last checkpoint by that of a source, from the root down, as far as the node
// proves itself: by its checksum, its place, its birth and level as its parent says, and the bounds of its keys. A node that has
// another damaged one above it is looked at again when that one is whole. Say hears of each node before it is stored, refused of
// each that no source has.
//
// This is no change of the pool: the node is stored where it stood, as it was sealed, and a crash in the middle leaves it
// damaged or whole. Nobody may have the volume open.
//
// Sources is called once, and only if a node is damaged.
func RefetchNodes(r pmem.Region, uuid [16]byte, sources func() ([]Source, error), say func(f Finding, action string), refused func(Finding)) error {
	s, err := readSlots(reader(r.Bytes()), uuid, uint64(len(r.Bytes())))
	if err != nil {
		return err
	}
	v := newVolume(r, Options{PoolUUID: uuid, Now: func() Time { return Time{} }}, s.best)
	found, err := v.damagedNodes()
	if err != nil || len(found) == 0 {
		return err
	}
	from, err := sources()
	if err != nil {
		return err
	}
	missing := make(map[uint64]bool) // no source has them
	for stored := true; stored; {
		stored = false
		for _, d := range found {
			if d.Doubtful || missing[d.Off] {
				continue
			}
			ok, err := v.refetch(&d, from, say, refused)
			if err != nil {
				return err
			}
			missing[d.Off] = !ok
			stored = stored || ok
		}
		if found, err = v.damagedNodes(); err != nil {
			return err
		}
	}
	return nil
}

// refetch stores one node anew, and tells whether a source had it.
func (v *Volume) refetch(d *tree.Damage, sources []Source, say func(f Finding, action string), refused func(Finding)) (bool, error) {
	f := damageFinding(d)
	b, from, err := v.fetchNode(d, sources)
	if err != nil {
		f.What += fmt.Sprintf("; not refetched: %v", err)
		refused(f)
		return false, nil
	}
	say(f, "store the node of "+from)
	if err := pmem.Copy(v.bytes[d.Off:], b); err != nil {
		return false, err
	}
	return true, pmem.Drain(v.region, []pmem.Range{{Off: d.Off, Len: uint64(len(b))}}, pmem.Seal{})
}

// damagedNodes are those of the last checkpoint.
func (v *Volume) damagedNodes() (found []tree.Damage, err error) {
	sp := newSpace(&v.super)
	fault := pmem.Guard(func() {
		survey(v, sp.MarkNode, nil, func(d tree.Damage) { found = append(found, d) })
	})
	return found, fault
}

// fetchNode reads the node that should stand in the place of d from the first source that has it.
func (v *Volume) fetchNode(d *tree.Damage, sources []Source) (b []byte, from string, err error) {
	t := tree.New(v.treeConfig(), v.super.Root, v.super.RootBirth, int(v.super.Height), v.super.Epoch+1)
	size := uint64(v.super.NodeSize)
	if d.Off%size != 0 || d.Off/layout.BlockSize < v.super.FirstBlock || d.Off > v.super.PoolSize-size {
		return nil, "", fmt.Errorf("offset %d is no place for a node", d.Off)
	}
	errs := []error{errors.New("no copy to take it from")}
	b = make([]byte, size)
	for _, s := range sources {
		err := s.ReadAt(d.Off, b)
		if err == nil {
			err = t.CheckNode(d, b)
		}
		if err == nil {
			return b, s.Name, nil
		}
		if s.Lacks != nil {
			s.Lacks(err)
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
	}
	if len(errs) > 1 {
		errs = errs[1:]
	}
	return nil, "", errors.Join(errs...)
}
