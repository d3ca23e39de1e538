package wire

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Sizes of the lane messages in bytes, and their limits.
const (
	PrivateSize = 16
	FlushHeader = 48
	RangeSize   = 16
	MaxRanges   = 256
	MaxFlush    = FlushHeader + MaxRanges*RangeSize
	AnswerSize  = 48
	// StageUnit is the unit of an offset in the staging area.
	StageUnit = 64
	// MaxStage is how much of a staging area flush requests can name.
	MaxStage = StageUnit << 32
	// FirstOffset is the lowest pool offset that a range or seal may name: below it stands the header, local to each copy.
	FirstOffset = 4096
)

const (
	privateMagic = "PMFL"
	flushMagic   = "PMFQ"
	answerMagic  = "PMFR"
	flagAnswer   = 1
	flagSeal     = 2
	flagStaged   = 4
	flagFetch    = 8
	flagsKnown   = flagAnswer | flagSeal | flagStaged | flagFetch
)

// Errors of the flush decoders are values, since a decoder must not allocate; the texts name the broken field.
var (
	errFlushLen    = fmt.Errorf("%w: flush request: wrong length", ErrCorrupt)
	errFlushField  = fmt.Errorf("%w: flush request: bad magic, version, flag or reserved field", ErrCorrupt)
	errFlushSeal   = fmt.Errorf("%w: flush request: the seal is not an aligned word above the pool header, or stands without its flag", ErrCorrupt)
	errFlushStage  = fmt.Errorf("%w: flush request: an offset in the staging area without its flag, or a fetch that does more", ErrCorrupt)
	errFlushCRC    = fmt.Errorf("%w: flush request: wrong checksum", ErrCorrupt)
	errAnswerLen   = fmt.Errorf("%w: flush answer: wrong length", ErrCorrupt)
	errAnswerField = fmt.Errorf("%w: flush answer: bad magic, version or reserved field", ErrCorrupt)
	errAnswerCRC   = fmt.Errorf("%w: flush answer: wrong checksum", ErrCorrupt)
)

// Flush is a flush request. A zero Seal means none. Answer asks for an answer.
type Flush struct {
	Seq, Session uint64
	Answer       bool
	Seal         pmem.Seal
	Stage        Stage
	StageAt      uint64 // offset in the staging area, a multiple of StageUnit below MaxStage
	Ranges       []pmem.Range
}

// Stage says whether the bytes of a request's ranges stand in the staging area, one range after the other from StageAt on.
type Stage uint8

const (
	Unstaged Stage = iota // they do not: WRITEs have placed them in the pool
	Staged                // they do, and are copied into the pool before anything else
	Fetch                 // they shall: they are copied there from the pool, and nothing else is done
)

// Size is the encoded size in bytes.
func (m *Flush) Size() int { return FlushHeader + RangeSize*len(m.Ranges) }

// Encode writes the request to the front of b, which must hold Size bytes, and returns the size. At most MaxRanges ranges.
func (m *Flush) Encode(b []byte) int {
	b = b[:m.Size()]
	copy(b, flushMagic)
	b[4] = Version
	b[5] = 0
	if m.Answer {
		b[5] |= flagAnswer
	}
	if m.Seal != (pmem.Seal{}) {
		b[5] |= flagSeal
	}
	switch m.Stage {
	case Staged:
		b[5] |= flagStaged
	case Fetch:
		b[5] |= flagFetch
	}
	le.PutUint16(b[6:], uint16(len(m.Ranges)))
	le.PutUint64(b[8:], m.Seq)
	le.PutUint64(b[16:], m.Session)
	le.PutUint64(b[24:], m.Seal.Off)
	le.PutUint64(b[32:], m.Seal.Val)
	le.PutUint32(b[40:], uint32(m.StageAt/StageUnit))
	for i, r := range m.Ranges {
		le.PutUint64(b[FlushHeader+RangeSize*i:], r.Off)
		le.PutUint64(b[FlushHeader+RangeSize*i+8:], r.Len)
	}
	le.PutUint32(b[44:], sum(b, 44))
	return len(b)
}

// Decode takes a request from exactly b. It reuses the memory of m.Ranges and allocates only if that is too small.
func (m *Flush) Decode(b []byte) error {
	if len(b) < FlushHeader || len(b) > MaxFlush || len(b) != FlushHeader+RangeSize*int(le.Uint16(b[6:])) {
		return errFlushLen
	}
	if string(b[:4]) != flushMagic || b[4] != Version || b[5]&^flagsKnown != 0 {
		return errFlushField
	}
	if le.Uint32(b[44:]) != sum(b, 44) {
		return errFlushCRC
	}
	m.Answer = b[5]&flagAnswer != 0
	m.Seq, m.Session = le.Uint64(b[8:]), le.Uint64(b[16:])
	m.Seal = pmem.Seal{Off: le.Uint64(b[24:]), Val: le.Uint64(b[32:])}
	sealed := b[5]&flagSeal != 0
	if sealed && (m.Seal.Off < FirstOffset || m.Seal.Off%8 != 0) || !sealed && m.Seal != (pmem.Seal{}) {
		return errFlushSeal
	}
	if !m.takeStage(b) {
		return errFlushStage
	}
	m.Ranges = m.Ranges[:0]
	for b = b[FlushHeader:]; len(b) > 0; b = b[RangeSize:] {
		m.Ranges = append(m.Ranges, pmem.Range{Off: le.Uint64(b), Len: le.Uint64(b[8:])})
	}
	return nil
}

// takeStage takes what b says of the staging area, and tells whether it fits together.
func (m *Flush) takeStage(b []byte) bool {
	m.StageAt = uint64(le.Uint32(b[40:])) * StageUnit
	switch b[5] & (flagStaged | flagFetch) {
	case 0:
		m.Stage = Unstaged
		return m.StageAt == 0
	case flagStaged:
		m.Stage = Staged
		return true
	case flagFetch:
		m.Stage = Fetch
		return m.Answer && m.Seal == (pmem.Seal{})
	}
	return false
}

// CheckStage reports whether the bytes of all ranges, which Check has accepted, stand within a staging area of size bytes.
func (m *Flush) CheckStage(size uint64) bool {
	if m.StageAt > size {
		return false
	}
	left := size - m.StageAt
	for _, r := range m.Ranges {
		if r.Len > left {
			return false
		}
		left -= r.Len
	}
	return true
}

// Check reports whether every range and the seal lie within [FirstOffset, size); if not, where is the first bad offset.
func (m *Flush) Check(size uint64) (where uint64, ok bool) {
	for _, r := range m.Ranges {
		if !Inside(r.Off, r.Len, size) {
			return r.Off, false
		}
	}
	if m.Seal != (pmem.Seal{}) && (!Inside(m.Seal.Off, 8, size) || m.Seal.Off%8 != 0) {
		return m.Seal.Off, false
	}
	return 0, true
}

// Inside reports whether the n bytes from off lie within [FirstOffset, size). It cannot wrap.
func Inside(off, n, size uint64) bool {
	return off >= FirstOffset && off <= size && n <= size-off
}

// FlushStatus is the outcome of a flush request. It is an error whose text says what to do next.
type FlushStatus uint8

const (
	FlushOK FlushStatus = iota
	FlushBadRange
	FlushIO
	FlushFenced
	FlushBadRequest
)

var flushTexts = [...]string{
	FlushOK:         "ok",
	FlushBadRange:   "the target refused a range outside its pool: check that both copies have the same size",
	FlushIO:         "the target failed to make the bytes persistent: see the target's log, check its disk or memory; its copy needs a full copy",
	FlushFenced:     statusTexts[StatusFenced],
	FlushBadRequest: "the target did not understand the flush request: run the same release of pmemfs on both sides",
}

func (s FlushStatus) Error() string {
	if int(s) < len(flushTexts) {
		return flushTexts[s]
	}
	return fmt.Sprintf("the target answered a flush with the unknown status %d: run the same release of pmemfs on both sides", uint8(s))
}

// FlushAnswer answers the request Seq. Taken counts the Sends taken from this lane so far; Where is the offset of a failure.
type FlushAnswer struct {
	Status                  FlushStatus
	Seq, Taken, Term, Where uint64
}

// Encode writes the answer to the first AnswerSize bytes of b.
func (m *FlushAnswer) Encode(b []byte) int {
	b = b[:AnswerSize]
	copy(b, answerMagic)
	b[4], b[5], b[6], b[7] = Version, byte(m.Status), 0, 0
	le.PutUint64(b[8:], m.Seq)
	le.PutUint64(b[16:], m.Taken)
	le.PutUint64(b[24:], m.Term)
	le.PutUint64(b[32:], m.Where)
	le.PutUint32(b[40:], 0)
	le.PutUint32(b[44:], sum(b, 44))
	return AnswerSize
}

// Decode takes an answer from exactly b.
func (m *FlushAnswer) Decode(b []byte) error {
	if len(b) != AnswerSize {
		return errAnswerLen
	}
	if string(b[:4]) != answerMagic || b[4] != Version || b[6] != 0 || b[7] != 0 || le.Uint32(b[40:]) != 0 {
		return errAnswerField
	}
	if le.Uint32(b[44:]) != sum(b, 44) {
		return errAnswerCRC
	}
	*m = FlushAnswer{FlushStatus(b[5]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}
	return nil
}

// Private is the private data of a lane's connect request.
type Private struct {
	Lane    uint16
	Session uint64
}

// Append appends the encoded private data to b.
func (m *Private) Append(b []byte) []byte {
	b = append(b, privateMagic...)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, m.Lane)
	return le.AppendUint64(b, m.Session)
}

// Decode takes private data from exactly b.
func (m *Private) Decode(b []byte) error {
	if len(b) != PrivateSize || string(b[:4]) != privateMagic {
		return corrupt("private data %x is not that of a lane", b)
	}
	if v := le.Uint16(b[4:]); v != Version {
		return &VersionError{Got: v}
	}
	m.Lane, m.Session = le.Uint16(b[6:]), le.Uint64(b[8:])
	return nil
}
