package wire

import "github.com/pmemfs/pmemfs/internal/poolset"

// MaxPeers is how many copy ids a state slot holds.
const MaxPeers = 8

// Flags of a state slot (docs/format.md section 1), as the wire carries them.
const (
	FlagInconsistent = uint32(poolset.Inconsistent)
	FlagClean        = uint32(poolset.Clean)
	FlagMemory       = uint32(poolset.Memory)
	FlagMayDegrade   = uint32(poolset.MayDegrade)
)

// Durability classes: what a fenced byte survives.
const (
	DurabilityMemory = 1 // the death of the process
	DurabilityMedia  = 2 // the loss of power
)

// AttrSize is the encoded size of Attr in bytes.
const AttrSize = 104

// Attr are the attributes of a pool (struct rpmem_pool_attr of librpmem).
type Attr = poolset.Attr

func appendAttr(b []byte, a *Attr) []byte {
	b = append(b, a.Signature[:]...)
	for _, v := range [...]uint32{a.Major, a.Compat, a.Incompat, a.ROCompat} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range [...]*UUID{&a.PoolUUID, &a.CopyID, &a.Next, &a.Prev} {
		b = append(b, v[:]...)
	}
	return append(b, a.UserFlags[:]...)
}

func (c *cursor) attr() (a Attr) {
	copy(a.Signature[:], c.take(len(a.Signature)))
	a.Major, a.Compat, a.Incompat, a.ROCompat = c.u32(), c.u32(), c.u32(), c.u32()
	a.PoolUUID, a.CopyID, a.Next, a.Prev, a.UserFlags = c.uuid(), c.uuid(), c.uuid(), c.uuid(), c.uuid()
	return a
}

// Hello asks for the state of a pool and changes nothing. PoolUUID zero means any pool of that name.
type Hello struct {
	CopyID, PoolUUID UUID
	Term, Gen        uint64
	Pool             string
}

func (m *Hello) Append(b []byte) []byte {
	b = append(b, m.CopyID[:]...)
	b = append(b, m.PoolUUID[:]...)
	b = le.AppendUint64(b, m.Term)
	b = le.AppendUint64(b, m.Gen)
	return appendString(b, m.Pool)
}

func (m *Hello) Decode(b []byte) error {
	c := cursor{b: b}
	m.CopyID, m.PoolUUID, m.Term, m.Gen, m.Pool = c.uuid(), c.uuid(), c.u64(), c.u64(), c.str()
	return c.end("HELLO")
}

// Create makes the pool's parts on the target. PoolSize is the least size wanted, in bytes including the header.
type Create struct {
	Attr     Attr
	PoolSize uint64
	Pool     string
}

func (m *Create) Append(b []byte) []byte {
	b = appendAttr(b, &m.Attr)
	b = le.AppendUint64(b, m.PoolSize)
	return appendString(b, m.Pool)
}

func (m *Create) Decode(b []byte) error {
	c := cursor{b: b}
	m.Attr = c.attr()
	m.PoolSize, m.Pool = c.u64(), c.str()
	return c.end("CREATE")
}

// Claim asks for a session: the right to write the pool under (Term, Writer). Durability is the least class asked for, Methods are
// those that the claimant can use and wants.
type Claim struct {
	PoolUUID, Writer  UUID
	Term, Gen         uint64
	History           [8]uint64
	Lanes, Durability uint32
	Methods           Methods
	Pool              string
}

func (m *Claim) Append(b []byte) []byte {
	b = append(b, m.PoolUUID[:]...)
	b = append(b, m.Writer[:]...)
	b = le.AppendUint64(b, m.Term)
	b = le.AppendUint64(b, m.Gen)
	b = appendHistory(b, &m.History)
	b = le.AppendUint32(b, m.Lanes)
	b = le.AppendUint32(b, m.Durability)
	b = le.AppendUint32(b, uint32(m.Methods))
	return appendString(b, m.Pool)
}

func (m *Claim) Decode(b []byte) error {
	c := cursor{b: b}
	m.PoolUUID, m.Writer, m.Term, m.Gen, m.History = c.uuid(), c.uuid(), c.u64(), c.u64(), c.history()
	m.Lanes, m.Durability, m.Methods, m.Pool = c.u32(), c.u32(), Methods(c.u32()), c.str()
	return c.end("CLAIM")
}

// SetState writes the target's state slot: flags Set then Clear are applied, the other fields replace what stands there.
type SetState struct {
	Session, Gen    uint64
	History         [8]uint64
	Set, Clear      uint32
	SyncGen, SyncID uint64
	Peers           []UUID // at most MaxPeers
}

func (m *SetState) Append(b []byte) []byte {
	b = le.AppendUint64(b, m.Session)
	b = le.AppendUint64(b, m.Gen)
	b = appendHistory(b, &m.History)
	b = le.AppendUint32(b, m.Set)
	b = le.AppendUint32(b, m.Clear)
	b = le.AppendUint64(b, m.SyncGen)
	b = le.AppendUint64(b, m.SyncID)
	b = le.AppendUint32(b, uint32(len(m.Peers)))
	for i := range m.Peers {
		b = append(b, m.Peers[i][:]...)
	}
	return b
}

func (m *SetState) Decode(b []byte) error {
	c := cursor{b: b}
	m.Session, m.Gen, m.History = c.u64(), c.u64(), c.history()
	m.Set, m.Clear, m.SyncGen, m.SyncID = c.u32(), c.u32(), c.u64(), c.u64()
	n := c.u32()
	if n > MaxPeers {
		return corrupt("SET_STATE: %d peers, at most %d", n, MaxPeers)
	}
	m.Peers = nil
	for range n {
		m.Peers = append(m.Peers, c.uuid())
	}
	return c.end("SET_STATE")
}

// SetAttr replaces the pool's attributes.
type SetAttr struct {
	Session uint64
	Attr    Attr
}

func (m *SetAttr) Append(b []byte) []byte {
	return appendAttr(le.AppendUint64(b, m.Session), &m.Attr)
}

func (m *SetAttr) Decode(b []byte) error {
	c := cursor{b: b}
	m.Session = c.u64()
	m.Attr = c.attr()
	return c.end("SET_ATTR")
}

// Close ends a session.
type Close struct{ Session uint64 }

func (m *Close) Append(b []byte) []byte { return le.AppendUint64(b, m.Session) }

func (m *Close) Decode(b []byte) error {
	c := cursor{b: b}
	m.Session = c.u64()
	return c.end("CLOSE")
}

// Remove deletes the pool's parts on the target. Force (0 or 1) removes also what cannot be opened as a pool.
type Remove struct {
	PoolUUID UUID
	Force    uint32
	Pool     string
}

func (m *Remove) Append(b []byte) []byte {
	b = append(b, m.PoolUUID[:]...)
	b = le.AppendUint32(b, m.Force)
	return appendString(b, m.Pool)
}

func (m *Remove) Decode(b []byte) error {
	c := cursor{b: b}
	m.PoolUUID, m.Force, m.Pool = c.uuid(), c.u32(), c.str()
	return c.end("REMOVE")
}

// Grow asks for a copy of at least PoolSize bytes with its header, under a session, which goes on.
type Grow struct{ Session, PoolSize uint64 }

func (m *Grow) Append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, m.Session), m.PoolSize)
}

func (m *Grow) Decode(b []byte) error {
	c := cursor{b: b}
	m.Session, m.PoolSize = c.u64(), c.u64()
	return c.end("GROW")
}

// Grown is the answer to Grow: where the session finds the copy from now on. The older keys stay good for what they covered.
type Grown struct{ Region }

func (m *Grown) Append(b []byte) []byte { return m.Region.append(b) }

func (m *Grown) Decode(b []byte) error {
	c := cursor{b: b}
	if err := m.Region.take(&c, "GROWN"); err != nil {
		return err
	}
	return c.end("GROWN")
}

// Fenced is the notice that another writer took the pool over.
type Fenced struct {
	Term uint64
	Text string
}

func (m *Fenced) Append(b []byte) []byte { return appendString(le.AppendUint64(b, m.Term), m.Text) }

func (m *Fenced) Decode(b []byte) error {
	c := cursor{b: b}
	m.Term, m.Text = c.u64(), c.str()
	return c.end("FENCED")
}

// State is what a target holds of a pool. Served is 1 while a session is open.
type State struct {
	Attr                      Attr
	PoolSize, Term            uint64
	Writer                    UUID
	Gen                       uint64
	History                   [8]uint64
	Flags, Durability, Served uint32
}

func (m *State) Append(b []byte) []byte {
	b = appendAttr(b, &m.Attr)
	b = le.AppendUint64(b, m.PoolSize)
	b = le.AppendUint64(b, m.Term)
	b = append(b, m.Writer[:]...)
	b = le.AppendUint64(b, m.Gen)
	b = appendHistory(b, &m.History)
	b = le.AppendUint32(b, m.Flags)
	b = le.AppendUint32(b, m.Durability)
	return le.AppendUint32(b, m.Served)
}

func (m *State) take(c *cursor) {
	m.Attr = c.attr()
	m.PoolSize, m.Term, m.Writer, m.Gen, m.History = c.u64(), c.u64(), c.uuid(), c.u64(), c.history()
	m.Flags, m.Durability, m.Served = c.u32(), c.u32(), c.u32()
}

func (m *State) Decode(b []byte) error {
	c := cursor{b: b}
	m.take(&c)
	return c.end("STATE")
}

// Grant is what a claimant needs to connect its lanes. A Fabric address without host means the host of the control connection. Method is
// one of those that were claimed; Why says, for people, why the others were not chosen.
type Grant struct {
	Session   uint64
	Fabric    string
	Credits   uint32 // receives posted per lane
	MaxRanges uint32
	Method    Method
	Why       string
	Region
	Scratch Area // nobody cares what is in it: for the self-test of a lane
	Staging Area // takes the place of the chunks, where there are none
}

func (m *Grant) Append(b []byte) []byte {
	b = le.AppendUint64(b, m.Session)
	b = appendString(b, m.Fabric)
	b = le.AppendUint32(b, m.Credits)
	b = le.AppendUint32(b, m.MaxRanges)
	b = le.AppendUint32(b, uint32(m.Method))
	b = appendString(b, m.Why)
	return m.Staging.append(m.Scratch.append(m.Region.append(b)))
}

func (m *Grant) Decode(b []byte) error {
	c := cursor{b: b}
	m.Session, m.Fabric = c.u64(), c.str()
	m.Credits, m.MaxRanges, m.Method, m.Why = c.u32(), c.u32(), Method(c.u32()), c.str()
	if err := m.Region.take(&c, "GRANT"); err != nil {
		return err
	}
	m.Scratch.take(&c)
	m.Staging.take(&c)
	return c.end("GRANT")
}
