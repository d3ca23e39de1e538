package volume

import (
	"errors"
	"fmt"
	"math"

	"github.com/pmemfs/pmemfs/fs/volume/alloc"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/oplog"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

func newSpace(s *layout.Super) space {
	return space{
		Allocator: alloc.New(s.FirstBlock, s.PoolSize/layout.BlockSize, s.Chunk, s.NodeSize, s.Reserve),
		nodeSize:  uint64(s.NodeSize),
		stale:     newStale(s.PoolSize),
		watch:     nobody{},
	}
}

// slots is what the two super slots say.
type slots struct {
	best, other layout.Super
	both        bool  // other is a valid state, the one before best
	damage      error // why it is not
}

// readSlots finds the super slot to recover from: the valid one with the higher epoch.
func readSlots(read func(off uint64, b []byte) error, uuid [16]byte, poolSize uint64) (slots, error) {
	if poolSize < MinPool {
		return slots{}, fmt.Errorf("%w: pool of %d bytes: found less than the smallest pool, expected at least %d: is the file truncated?", ErrCorrupt, poolSize, MinPool)
	}
	var sup [2]layout.Super
	var errs [2]error
	for i, off := range [2]uint64{layout.SuperOff0, layout.SuperOff1} {
		var b [layout.SuperEnd]byte
		if err := read(off, b[:]); err != nil {
			return slots{}, fmt.Errorf("super slot at offset %d: %w", off, err)
		}
		sup[i], errs[i] = decodeSlot(b[:], off, uuid, poolSize)
	}
	if errs[0] != nil && errs[1] != nil {
		return slots{}, fmt.Errorf("no super slot is valid: %w", errors.Join(errs[0], errs[1]))
	}
	best := 0
	if errs[0] != nil || errs[1] == nil && sup[1].Epoch > sup[0].Epoch {
		best = 1
	}
	s := slots{best: sup[best], other: sup[1-best], damage: errs[1-best]}
	s.both = s.damage == nil && s.other.Epoch+1 == s.best.Epoch
	if s.damage == nil && !s.both {
		s.damage = fmt.Errorf("%w: super slots: found epochs %d and %d, expected one after the other", ErrCorrupt, s.best.Epoch, s.other.Epoch)
	}
	return s, nil
}

func decodeSlot(b []byte, off uint64, uuid [16]byte, poolSize uint64) (layout.Super, error) {
	s, err := layout.DecodeSuper(b, uuid)
	switch {
	case err != nil:
	case layout.SuperOff(s.Epoch) != off:
		err = fmt.Errorf("%w: found epoch %d, expected one that belongs here, not to offset %d", ErrCorrupt, s.Epoch, layout.SuperOff(s.Epoch))
	case s.PoolSize > poolSize:
		err = fmt.Errorf("%w: found a pool of %d bytes, expected at least %d: is the file truncated?", ErrCorrupt, poolSize, s.PoolSize)
	case s.LogLen < minLog:
		err = fmt.Errorf("%w: found a log of %d bytes, expected at least %d", ErrCorrupt, s.LogLen, minLog)
	}
	if err != nil {
		return s, fmt.Errorf("super slot at offset %d: %w", off, err)
	}
	return s, nil
}

// scanLog reads the records behind a super.
func scanLog(read func(off uint64, b []byte) error, s *layout.Super, fn func(rec layout.Record, body []byte) error) (pos uint64, rec Recovered, err error) {
	rec.Epoch, rec.PoolSize = s.Epoch, s.PoolSize
	pos, rec.LSN, rec.LSNSeal, rec.Term, rec.Replayed, err = oplog.Scan(read, s.LogOff, s.LogLen, s.LogPos, s.LSN, s.LSNSeal, s.Term, s.PoolUUID, fn)
	return pos, rec, err
}

// logIsWhole tests that the log ends at pos, after the record lsn, because no more was sealed, and not because a record is
// damaged: going on without it would lose what was acknowledged.
func logIsWhole(view oplog.View, s *layout.Super, pos, lsn uint64) error {
	later, off, ok, err := oplog.Later(view, s.LogOff, s.LogLen, pos, lsn, s.PoolUUID)
	if err != nil || !ok {
		return err
	}
	return fmt.Errorf("%w: log: found no valid record at offset %d, expected record %d, since record %d is sealed at offset %d",
		ErrCorrupt, s.LogOff+pos, lsn+1, later.LSN, off)
}

// Probe tells what Open would recover to, from the super slots and the log alone; it does not count orphans. Read fills
// b from a pool offset: of a replica, by RDMA Read.
func Probe(read func(off uint64, b []byte) error, uuid [16]byte, poolSize uint64) (Recovered, error) {
	s, err := readSlots(read, uuid, poolSize)
	if err != nil {
		return Recovered{}, fmt.Errorf("probe: %w", err)
	}
	pos, rec, err := scanLog(read, &s.best, func(layout.Record, []byte) error { return nil })
	if err == nil {
		err = logIsWhole(func(off, n uint64) ([]byte, error) {
			b := make([]byte, n)
			return b, read(off, b)
		}, &s.best, pos, rec.LSN)
	}
	if err != nil {
		return Recovered{}, fmt.Errorf("probe: %w", err)
	}
	rec.Slot = s.damage
	return rec, nil
}

// Open recovers the state of the last sealed record. It stores only into space that no durable state refers to, so that
// opening again, without a seal in between, finds the same. Errors wrap ErrCorrupt where bytes of the pool are wrong.
func Open(r pmem.Region, o Options) (*Volume, Recovered, error) {
	if o.Now == nil {
		return nil, Recovered{}, errors.New("open: Options.Now is missing")
	}
	var v *Volume
	var rec Recovered
	var err error
	if fault := pmem.Guard(func() { v, rec, err = open(r, o) }); fault != nil {
		err = fault
	}
	if err != nil {
		return nil, Recovered{}, fmt.Errorf("open: %w", err)
	}
	return v, rec, nil
}

func open(r pmem.Region, o Options) (*Volume, Recovered, error) {
	b := r.Bytes()
	read := reader(b)
	// A seal that sits only in a cache must not be built on: what recovery reads is made persistent first.
	if err := persist(r, pmem.Range{Off: layout.SuperOff0, Len: layout.LogOff - layout.SuperOff0}); err != nil {
		return nil, Recovered{}, err
	}
	s, err := readSlots(read, o.PoolUUID, uint64(len(b)))
	if err != nil {
		return nil, Recovered{}, err
	}
	if err := persist(r, pmem.Range{Off: s.best.LogOff, Len: s.best.LogLen}); err != nil {
		return nil, Recovered{}, err
	}
	v := newVolume(r, o, s.best)
	rec, err := v.recover(read, &s)
	if errors.Is(err, ErrCorrupt) && s.best.SnapLen > 0 && o.WalkUpTo < math.MaxUint64 { // the tree has the last word
		misled := err
		o.WalkUpTo = math.MaxUint64
		v = newVolume(r, o, s.best)
		rec, err = v.recover(read, &s)
		rec.Misled = misled
	}
	if err != nil {
		return nil, Recovered{}, err
	}
	if o.Term < rec.Term {
		return nil, Recovered{}, fmt.Errorf("found a last record of term %d, expected at most term %d, that of this mount: it was fenced off", rec.Term, o.Term)
	}
	return v, rec, nil
}

func persist(r pmem.Region, area pmem.Range) error {
	if mutant.On(mutant.UnflushedSeals) {
		return nil
	}
	size := uint64(len(r.Bytes()))
	area.Off = min(area.Off, size)
	area.Len = min(area.Len, size-area.Off)
	return pmem.Drain(r, []pmem.Range{area}, pmem.Seal{})
}

func newVolume(r pmem.Region, o Options, s layout.Super) *Volume {
	b := r.Bytes()
	v := &Volume{
		region: r, bytes: b, opts: o, super: s, space: newSpace(&s), limits: limitsOf(&s),
		log:     oplog.New(b[s.LogOff:s.LogOff+s.LogLen], s.LogOff, s.PoolUUID),
		nextIno: s.NextIno, inodes: s.Inodes,
		files: make(map[Ino]*file), trims: make(map[Ino]uint64), unnamed: make(map[Ino]bool), sweepAt: sweepMin,
	}
	if owner, ok := r.(pmem.Owner); ok {
		v.space.watch = taker{owner: owner}
	}
	v.tree = tree.New(v.treeConfig(), s.Root, s.RootBirth, int(s.Height), s.Epoch+1)
	v.group.body = make([]byte, 0, v.limits.body)
	v.value = make([]byte, 0, 2*v.limits.value)
	return v
}

func (v *Volume) treeConfig() tree.Config {
	return tree.Config{Bytes: v.bytes, NodeSize: int(v.super.NodeSize), UUID: v.super.PoolUUID, Nodes: &v.space}
}
