package replicate

import (
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// MaxInFlight drains may be started and not yet reported.
const MaxInFlight = 8

// Times of the machine.
const (
	RequestTimeout = 15 * time.Second // for one answer on the control connection, and for connecting
	registerTime   = time.Second      // more for each GiB of a pool that a target has to register
	GrowTimeout    = 5 * time.Minute  // for the answer to GROW: the target allocates
	pingInterval   = time.Second
	atOnceLimit    = 5 * time.Second // with Timeout 0 a lost connection fails at once, a silent one after this
	firstBackoff   = 50 * time.Millisecond
	lastBackoff    = time.Second
)

// drain is one that was started and not yet reported.
type drain struct {
	seq    uint64
	ranges []pmem.Range
	seal   pmem.Seal
	since  time.Duration // posted, or the answer to the one before, or last progress
}

// Machine is the replication state machine of one replica.
//
// Invariants: ActPost only while InSync. InSync only after the target's state slot has this copy's generation and no
// Inconsistent mark. After Refused or Failed nothing is sent any more. Each drain is reported exactly once, in order.
type Machine struct {
	id      Identity
	pool    string
	timeout time.Duration
	methods wire.Methods // to claim

	state State
	cause error  // of Refused, Failed and the end
	conn  uint32 // number of the current connections; events of others are ignored
	link  link
	need  Need
	op    EventKind // the user's request under way, 0 = none
	set   wire.SetState

	peer       wire.State
	grant      wire.Grant
	term       uint64
	durability uint32
	copied     bool       // a full copy of this claim has ended
	growTo     uint64     // bytes asked for
	next       wire.Grant // what they were answered with, until it is proven

	waitFor wire.Type // request on the wire, 0 = none
	waitID  uint32
	pingID  uint32 // ping on the wire, 0 = none
	lastID  uint32
	askedAt time.Duration // when waitFor was sent, or the dial or lane begun
	pingAt  time.Duration
	heardAt time.Duration // last sign of life

	lostAt  time.Duration // Suspended since
	lastErr error         // last loss while Suspended
	dialAt  time.Duration // next try
	backoff time.Duration

	drains [MaxInFlight]drain // ring; head is the oldest
	head   int
	n      int
}

// link is how far the current connections have come.
type link uint8

const (
	linkNone link = iota
	linkDialing
	linkHello   // control connection stands, HELLO not answered
	linkState   // the target's state is known
	linkGranted // granted, second HELLO not answered
	linkLaning  // the target's state under the claim is known, lane connecting
	linkClaimed // lane connected
)

// NewMachine makes a machine for the target's pool of that name. timeout is how long a lost target may take to come back; 0 = it may
// not. methods are those of persistency that the lane can use and the target may choose from.
func NewMachine(id Identity, pool string, timeout time.Duration, methods wire.Methods) *Machine {
	return &Machine{id: id, pool: pool, timeout: timeout, methods: methods, cause: ErrOrder}
}

// State of the replica.
func (m *Machine) State() State { return m.state }

// Err is why the replica is Refused or Failed, or why it is Suspended at the moment; nil in all other states.
func (m *Machine) Err() error {
	switch m.state {
	case Refused, Failed:
		return m.cause
	case Suspended:
		return m.lastErr
	}
	return nil
}

// Step takes one event and appends what to do to out. It allocates nothing for EvDrain, EvAnswered and EvTick in state InSync.
func (m *Machine) Step(ev *Event, out []Action) []Action {
	if ev.Kind >= EvDialed && ev.Kind < EvTick && ev.Conn != m.conn {
		return out
	}
	switch ev.Kind {
	case EvConnect, EvClaim, EvFullSync, EvAdopt, EvClean, EvGrow, EvClose, EvCancel:
		out = m.request(ev, out)
	case EvDrain:
		out = m.start(ev, out)
	case EvAnswered:
		out = m.answered(ev, out)
	case EvProgress:
		m.heardAt = ev.Now
		if m.n > 0 {
			m.drains[m.head].since = ev.Now
		}
	case EvLost:
		out = m.lost(ev.Now, ev.Err, out)
	case EvDialed:
		m.link, m.heardAt = linkHello, ev.Now
		out = m.sayHello(ev.Now, out)
	case EvFrame:
		m.heardAt = ev.Now
		out = m.frame(ev, out)
	case EvLaneUp:
		out = m.laneUp(ev.Now, out)
	case EvCopied:
		out = m.copyStep(ev, out)
	case EvProven:
		out = m.proven(ev, out)
	}
	if m.state == InSync && (ev.Kind == EvAnswered || ev.Kind == EvProgress) {
		return out // the answer to the next drain may have come too: a tick tells whether it is late
	}
	return m.expire(ev.Now, out)
}

// request handles what the user asks for.
func (m *Machine) request(ev *Event, out []Action) []Action {
	switch {
	case ev.Kind == EvCancel:
		if m.op == 0 {
			return out
		}
		return m.lost(ev.Now, ev.Err, out)
	case ev.Kind == EvClose:
		return m.close(ev.Now, out)
	case m.op != 0:
		return append(out, Action{Kind: ActDone, Err: ErrOrder})
	case m.state == Refused || m.state == Failed:
		return append(out, Action{Kind: ActDone, Err: m.cause})
	case m.state == Detached && m.cause == ErrClosed:
		return append(out, Action{Kind: ActDone, Err: ErrClosed})
	case m.state == Suspended:
		err := fmt.Errorf("%w: state %v: the target is away (%w): wait until it is InSync, then try again", ErrOrder, m.state, m.Err())
		return append(out, Action{Kind: ActDone, Err: err})
	case !m.allowed(ev.Kind):
		return append(out, Action{Kind: ActDone, Err: fmt.Errorf("%w: state %v", ErrOrder, m.state)})
	}
	m.op = ev.Kind
	switch ev.Kind {
	case EvConnect:
		m.state = Handshake
		return m.dial(ev.Now, out)
	case EvClaim:
		m.term, m.durability = ev.Term, ev.Durability
		return m.claim(ev.Now, out)
	case EvGrow:
		g := wire.Grow{Session: m.grant.Session, PoolSize: ev.Size}
		m.growTo = ev.Size
		return m.send(ev.Now, wire.TypeGrow, g.Append(nil), out)
	case EvFullSync:
		// Durable step 1 of a full copy: the mark, before the first byte.
		m.state, m.copied = FullSync, false
		m.set = wire.SetState{Gen: m.peer.Gen, History: m.peer.History, Set: wire.FlagInconsistent,
			Clear: wire.FlagClean, SyncGen: m.id.Gen, SyncID: ev.Seq}
		if mutant.On(mutant.NoInconsistent) {
			m.set.Set = 0
		}
	case EvAdopt:
		// Durable step 5: the generation, and the mark goes.
		m.set = wire.SetState{Gen: ev.Gen, History: ev.History, Clear: wire.FlagInconsistent | wire.FlagClean, Peers: ev.Peers}
	case EvClean:
		m.set = wire.SetState{Gen: m.id.Gen, History: m.id.History, Set: ev.Flags, Peers: m.set.Peers}
	}
	m.set.Session = m.grant.Session
	return m.send(ev.Now, wire.TypeSetState, m.set.Append(nil), out)
}

func (m *Machine) allowed(k EventKind) bool {
	switch k {
	case EvConnect:
		return m.state == Detached
	case EvClaim:
		return m.state == Handshake && m.link == linkState
	case EvFullSync:
		return m.state == Handshake && m.link == linkClaimed
	case EvAdopt:
		return m.link == linkClaimed && (m.state == Handshake && m.need == NeedNothing || m.state == FullSync && m.copied)
	case EvClean:
		return m.state == InSync && m.n == 0
	case EvGrow:
		return m.state == InSync
	}
	return false
}

func (m *Machine) claim(now time.Duration, out []Action) []Action {
	c := wire.Claim{PoolUUID: m.id.PoolUUID, Writer: m.id.CopyID, Term: m.term, Gen: m.id.Gen, History: m.id.History,
		Lanes: lanes, Durability: m.durability, Methods: m.methods, Pool: m.pool}
	return m.send(now, wire.TypeClaim, c.Append(nil), out)
}

// done ends the user's request under way, if there is one.
func (m *Machine) done(err error, out []Action) []Action {
	if m.op == 0 {
		return out
	}
	m.op = 0
	return append(out, Action{Kind: ActDone, Err: err})
}

// copyStep goes on with a full copy when its last step has ended.
func (m *Machine) copyStep(ev *Event, out []Action) []Action {
	if ev.Err != nil {
		return m.lost(ev.Now, ev.Err, out)
	}
	m.heardAt = ev.Now
	if next := CopyStep(ev.Seq) + 1; next <= CopySeal {
		return append(out, Action{Kind: ActCopy, Conn: m.conn, Step: next})
	}
	m.copied = true
	return m.done(nil, out)
}

// end makes a sticky end of the replica: nothing is sent any more, and all drains are reported.
func (m *Machine) end(s State, cause error, out []Action) []Action {
	m.state, m.cause = s, cause
	out = m.unlink(out)
	for m.n > 0 {
		out = m.report(cause, out)
	}
	return m.done(cause, out)
}

// unlink gives up the current connections; what they still report is ignored.
func (m *Machine) unlink(out []Action) []Action {
	if m.link != linkNone {
		out = append(out, Action{Kind: ActBreak, Conn: m.conn})
	}
	m.conn++
	m.link, m.waitFor, m.pingID = linkNone, 0, 0
	return out
}

func (m *Machine) close(now time.Duration, out []Action) []Action {
	out = m.done(ErrClosed, out)
	session := m.link == linkClaimed && m.waitFor == 0 && (m.state == InSync || m.state == Handshake || m.state == FullSync)
	if !session {
		m.op = EvClose
		return m.closed(out)
	}
	for m.n > 0 {
		out = m.report(ErrClosed, out)
	}
	m.op = EvClose
	bye := wire.Close{Session: m.grant.Session}
	return m.send(now, wire.TypeClose, bye.Append(nil), out)
}

// closed ends the replica for good. Close succeeds also where the target cannot be told any more: it ends the session itself
// when it sees the connections gone.
func (m *Machine) closed(out []Action) []Action {
	out = m.unlink(out)
	for m.n > 0 {
		out = m.report(ErrClosed, out)
	}
	m.state, m.cause = Detached, ErrClosed
	return m.done(nil, out)
}

// errDrains is the answer to a drain too many.
var errDrains = fmt.Errorf("%w: more than %d drains in flight", ErrOrder, MaxInFlight)

// isSticky says whether an answer of the target means that trying again within the timeout is of no use.
func isSticky(s wire.Status) bool {
	switch s {
	case wire.StatusBusy, wire.StatusIO, wire.StatusNoPool, wire.StatusNoSession, wire.StatusPoolSet, wire.StatusRegister:
		return false
	}
	return true
}

// isRefusal says whether an answer means that the copies do not fit, rather than that something failed.
func isRefusal(err error) bool {
	var s wire.Status
	if errors.As(err, &s) {
		return isSticky(s)
	}
	return errors.Is(err, ErrOutdated)
}
