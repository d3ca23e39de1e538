package replicate

import (
	"fmt"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// Identity is what the local copy is. Gen is not zero. Size is the pool's size in bytes, the header included.
type Identity struct {
	PoolUUID, CopyID wire.UUID
	Term, Gen        uint64
	History          [8]uint64 // generations before Gen, newest first, zero = none
	Size             uint64
}

// Need is what must happen before a target's copy may be adopted.
type Need uint8

const (
	// NeedNothing: same generation. The caller still decides whether both copies end in the same group.
	NeedNothing Need = iota
	// NeedFullCopy: never written, inconsistent, or of an older generation of this copy.
	NeedFullCopy
)

// judge compares the local copy with the state of a target's. A refusal wraps the wire.Status that names its kind.
//
// Generations are random, so one that stands in a history was once the generation of a state that both copies had. The copy
// whose history holds the other's generation is the newer one; if neither holds the other's, both went on separately.
//
// A higher term of another writer means that the local copy is fenced, but for one case: a former primary, whose generation is in
// my history, took that term at a mount that did not come as far as writing.
func judge(id *Identity, st *wire.State) (Need, error) {
	other := st.Writer != wire.UUID{} && st.Writer != id.CopyID
	former := st.Writer == st.Attr.CopyID && contains(&id.History, st.Gen)
	never := st.Writer == wire.UUID{} || st.Gen == 0
	switch {
	case st.Attr.PoolUUID != id.PoolUUID:
		return 0, fmt.Errorf("it holds pool %v, this is pool %v: %w", st.Attr.PoolUUID, id.PoolUUID, wire.StatusForeign)
	case st.Term >= id.Term && other && st.Term > 0 && !former:
		return 0, promoted(st)
	case st.PoolSize < id.Size:
		return 0, fmt.Errorf("it has %d bytes, %d are needed: %w", st.PoolSize, id.Size, wire.StatusTooSmall)
	case never || st.Flags&wire.FlagInconsistent != 0:
		return NeedFullCopy, nil
	case st.Gen == id.Gen:
		return NeedNothing, nil
	case contains(&id.History, st.Gen):
		return NeedFullCopy, nil
	case contains(&st.History, id.Gen):
		return 0, ErrOutdated
	}
	return 0, fmt.Errorf("generation %016x there and %016x here have no common line: %w", st.Gen, id.Gen, wire.StatusSplitBrain)
}

func promoted(st *wire.State) error {
	return fmt.Errorf("promoted elsewhere at term %d (copy %v): %w", st.Term, st.Writer, wire.StatusFenced)
}

// fencedBy is what a notice of the target means.
func fencedBy(f *wire.Frame) error {
	var n wire.Fenced
	if err := n.Decode(f.Body); err != nil {
		return err
	}
	return fmt.Errorf("promoted elsewhere at term %d (%s): %w", n.Term, n.Text, wire.StatusFenced)
}

func contains(history *[8]uint64, gen uint64) bool {
	for _, g := range history {
		if g == gen && g != 0 {
			return true
		}
	}
	return false
}
