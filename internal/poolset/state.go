package poolset

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// Flags of a state.
type Flags uint32

const (
	Inconsistent Flags = 1 << iota // a running copy or lost memory left bytes of different moments
	Clean                          // unmounted cleanly
	Memory                         // durability class memory
	MayDegrade                     // the primary may go on without this copy
)

func (f Flags) String() string {
	var names []string
	for i, name := range []string{"inconsistent", "clean", "memory", "may-degrade"} {
		if bit := Flags(1) << i; f&bit != 0 {
			names = append(names, name)
			f &^= bit
		}
	}
	if f != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(f)))
	}
	return strings.Join(names, ",")
}

// State is what a copy remembers of its role and its history.
type State struct {
	Seq     uint64    // +1 with each change
	Term    uint64    // highest term granted or taken
	Writer  UUID      // copy id that owns Term; zero: never written
	Gen     uint64    // current generation
	History [8]uint64 // generations before it, newest first, zero = none
	Flags   Flags
	SyncGen uint64  // with Inconsistent: generation of the source of the running copy
	SyncID  uint64  // with Inconsistent: id of the running copy
	BootID  UUID    // of the machine, for class memory
	Peers   [8]UUID // copies attached and in sync, zero = none
}

const stateCRC = 272

// Encode writes the state as one slot to the first StateLen bytes of b. The CRC is seeded with the UUID of the pool.
func (s *State) Encode(b []byte, pool UUID) {
	le := binary.LittleEndian
	b = b[:StateLen]
	clear(b)
	le.PutUint64(b[0:], s.Seq)
	le.PutUint64(b[8:], s.Term)
	copy(b[16:], s.Writer[:])
	le.PutUint64(b[32:], s.Gen)
	for i, g := range s.History {
		le.PutUint64(b[40+8*i:], g)
	}
	le.PutUint32(b[104:], uint32(s.Flags))
	le.PutUint64(b[112:], s.SyncGen)
	le.PutUint64(b[120:], s.SyncID)
	copy(b[128:], s.BootID[:])
	for i, p := range s.Peers {
		copy(b[144+16*i:], p[:])
	}
	le.PutUint32(b[stateCRC:], seededCRC(pool, b[:stateCRC]))
}

// Decode reads one slot from the start of b. It fails with a *CorruptError, whose offset counts from b, and then
// leaves s alone.
func (s *State) Decode(b []byte, pool UUID) error {
	le := binary.LittleEndian
	if len(b) < StateLen {
		return &CorruptError{"state slot", 0, fmt.Sprintf("%d bytes", StateLen), fmt.Sprintf("%d", len(b))}
	}
	if want, found := seededCRC(pool, b[:stateCRC]), le.Uint32(b[stateCRC:]); want != found {
		return &CorruptError{"state slot", stateCRC, fmt.Sprintf("CRC %#010x", want), fmt.Sprintf("%#010x", found)}
	}
	*s = State{
		Seq:     le.Uint64(b[0:]),
		Term:    le.Uint64(b[8:]),
		Writer:  UUID(b[16:]),
		Gen:     le.Uint64(b[32:]),
		Flags:   Flags(le.Uint32(b[104:])),
		SyncGen: le.Uint64(b[112:]),
		SyncID:  le.Uint64(b[120:]),
		BootID:  UUID(b[128:]),
	}
	for i := range s.History {
		s.History[i] = le.Uint64(b[40+8*i:])
	}
	for i := range s.Peers {
		s.Peers[i] = UUID(b[144+16*i:])
	}
	return nil
}

// CurrentState returns the valid state with the higher number in block 0, and its slot (0 or 1). A torn write of one slot
// leaves the other one; if neither is valid the error is a *CorruptError.
func CurrentState(block []byte, pool UUID) (State, int, error) {
	if len(block) < StateOff+2*StateLen {
		return State{}, 0, &CorruptError{"state slots", StateOff, "2 slots", fmt.Sprintf("a block of %d bytes", len(block))}
	}
	var a, b State
	errA := a.Decode(block[StateOff:], pool)
	errB := b.Decode(block[StateOff+StateLen:], pool)
	switch {
	case errA != nil && errB != nil:
		return State{}, 0, &CorruptError{"state slots", StateOff, "a valid slot",
			fmt.Sprintf("none (slot 0: %v; slot 1: %v)", errA, errB)}
	case errA != nil || errB == nil && b.Seq > a.Seq:
		return b, 1, nil
	}
	return a, 0, nil
}

// seededCRC is CRC-32C over the UUID of the pool and b, so that bytes of another pool cannot pass.
func seededCRC(pool UUID, b []byte) uint32 {
	return crc32.Update(crc32.Checksum(pool[:], castagnoli), castagnoli, b)
}
