package volume

import (
	"errors"
	"fmt"
	"math"

	"github.com/pmemfs/pmemfs/fs/volume/oplog"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// ErrReadOnly: the volume was opened for reading alone.
var ErrReadOnly = errors.New("opened for reading alone")

// OpenReadOnly recovers like Open, by a walk of the tree, for a caller who will only look: every change returns ErrStopped, which wraps ErrReadOnly. It
// needs a region that can be stored to, since the log is replayed there; a private one keeps the pool as it is.
//
// With salvage, a pool that is too damaged for Open is opened all the same, in the state of its last checkpoint, without the
// log. Salvage hears of each damage. What needs a damaged node then gives an error that wraps ErrCorrupt, beside what could be
// read of it; all else is there. Such a volume must not be used by several goroutines at a time.
func OpenReadOnly(r pmem.Region, uuid [16]byte, salvage func(Finding)) (*Volume, Recovered, error) {
	o := Options{PoolUUID: uuid, Term: math.MaxUint64, Now: func() Time { return Time{} }, NoAtime: true, WalkUpTo: math.MaxUint64}
	v, rec, err := Open(r, o)
	if salvage != nil && errors.Is(err, ErrCorrupt) {
		why := err
		fault := pmem.Guard(func() { v, rec, err = openDamaged(r, o, why, salvage) })
		err = errors.Join(err, fault)
	}
	if err != nil {
		return nil, Recovered{}, err
	}
	v.Stop(ErrReadOnly)
	return v, rec, nil
}

func openDamaged(r pmem.Region, o Options, why error, salvage func(Finding)) (*Volume, Recovered, error) {
	s, err := readSlots(reader(r.Bytes()), o.PoolUUID, uint64(len(r.Bytes())))
	if err != nil {
		return nil, Recovered{}, fmt.Errorf("open: %w", err)
	}
	v := newVolume(r, o, s.best)
	v.log.Reset(s.best.LogPos, s.best.LSN, s.best.LSNSeal, s.best.Term)
	salvage(Finding{Where: "recovery", What: fmt.Sprintf("%v; what follows is the last checkpoint, group %d, without the log", why, s.best.LSN)})
	sp := newSpace(&v.super)
	bad := make(map[uint64]bool)
	survey(v, sp.MarkNode, nil, func(d tree.Damage) {
		bad[d.Off] = true
		salvage(damageFinding(&d))
	})
	v.tree.Salvage(bad)
	v.salvage = true
	return v, Recovered{Epoch: s.best.Epoch, LSN: s.best.LSN, LSNSeal: s.best.LSNSeal, Term: s.best.Term, Slot: s.damage}, nil
}

// reader reads the bytes of a pool as far as they go.
func reader(b []byte) func(off uint64, dst []byte) error {
	view := viewer(b)
	return func(off uint64, dst []byte) error {
		from, err := view(off, uint64(len(dst)))
		copy(dst, from)
		return err
	}
}

// viewer shows the bytes of a pool as far as they go.
func viewer(b []byte) oplog.View {
	return func(off, n uint64) ([]byte, error) {
		if off > uint64(len(b)) || n > uint64(len(b))-off {
			return nil, fmt.Errorf("%w: read of %d bytes at offset %d of a pool of %d", ErrCorrupt, n, off, len(b))
		}
		return b[off : off+n], nil
	}
}

// survey goes through the tree of v's super as far as it is there; see tree.Survey.
func survey(v *Volume, nodes func(off uint64) bool, leaf func(k tree.Key, val []byte), damaged func(tree.Damage)) {
	if leaf == nil {
		leaf = func(tree.Key, []byte) {}
	}
	t := tree.New(v.treeConfig(), v.super.Root, v.super.RootBirth, int(v.super.Height), v.super.Epoch+1)
	t.Survey(nodes, leaf, damaged)
}

// damageFinding is a damaged node for people.
func damageFinding(d *tree.Damage) Finding {
	f := Finding{Where: fmt.Sprintf("tree node at offset %d", d.Off), What: d.Err.Error(), Off: d.Off, damage: d}
	var what *tree.DamageError
	if errors.As(d.Err, &what) {
		f.What = fmt.Sprintf("%s: found %d, expected %s", what.Field, what.Found, what.Want)
		if what.Off != d.Off {
			f.Where, f.Off = fmt.Sprintf("tree node at offset %d", what.Off), what.Off
		}
	}
	hi := "the end"
	if d.Hi != nil {
		hi = keyName(*d.Hi)
	}
	f.What += fmt.Sprintf("; lost: from %s to %s", keyName(d.Lo), hi)
	return f
}
