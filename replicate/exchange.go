package replicate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file holds the machine's connections: requests and answers of the control connection, loss and deadlines.

func (m *Machine) dial(now time.Duration, out []Action) []Action {
	m.conn++
	m.link, m.askedAt = linkDialing, now
	return append(out, Action{Kind: ActDial, Conn: m.conn})
}

func (m *Machine) send(now time.Duration, t wire.Type, body []byte, out []Action) []Action {
	m.lastID++
	m.waitFor, m.waitID, m.askedAt = t, m.lastID, now
	return append(out, Action{Kind: ActSend, Conn: m.conn, Frame: wire.Frame{Type: t, ID: m.lastID, Body: body}})
}

// frame handles what came on the control connection.
func (m *Machine) frame(ev *Event, out []Action) []Action {
	f := &ev.Frame
	switch {
	case f.Type == wire.TypeFenced:
		err := fencedBy(f)
		if errors.Is(err, wire.StatusFenced) {
			return m.end(Refused, err, out)
		}
		return m.lost(ev.Now, err, out)
	case f.Type == wire.TypePing|wire.Answer && f.ID == m.pingID && m.pingID != 0:
		m.pingID = 0
		return out
	case m.waitFor == 0 || f.Type != m.waitFor|wire.Answer || f.ID != m.waitID:
		return m.lost(ev.Now, fmt.Errorf("unexpected %v with number %d: %w", f.Type, f.ID, wire.ErrCorrupt), out)
	}
	m.waitFor = 0
	if f.Type == wire.TypeClose|wire.Answer {
		return m.closed(out)
	}
	if f.Type == wire.TypeGrow|wire.Answer {
		return m.grown(f, ev.Now, out)
	}
	if f.Status != wire.StatusOK {
		return m.refused(ev, wire.Refusal(*f), out)
	}
	var err error
	switch f.Type &^ wire.Answer {
	case wire.TypeHello:
		if err = m.peer.Decode(f.Body); err == nil {
			return m.hello(ev.Now, out)
		}
	case wire.TypeClaim:
		if err = m.grant.Decode(f.Body); err == nil {
			return m.granted(ev.Now, out)
		}
	case wire.TypeSetState:
		if err = m.peer.Decode(f.Body); err == nil {
			return m.stateSet(out)
		}
	}
	return m.lost(ev.Now, err, out)
}

// refused handles an answer other than OK.
func (m *Machine) refused(ev *Event, err error, out []Action) []Action {
	if isRefusal(err) {
		return m.end(Refused, err, out)
	}
	return m.lost(ev.Now, err, out)
}

// sayHello asks: what is the target's state?
func (m *Machine) sayHello(now time.Duration, out []Action) []Action {
	hello := wire.Hello{CopyID: m.id.CopyID, PoolUUID: m.id.PoolUUID, Term: m.id.Term, Gen: m.id.Gen, Pool: m.pool}
	return m.send(now, wire.TypeHello, hello.Append(nil), out)
}

// hello judges the target's state: once before the claim, so that a copy that does not fit is not touched, and once under it.
func (m *Machine) hello(now time.Duration, out []Action) []Action {
	need, err := judge(&m.id, &m.peer)
	if err != nil {
		return m.end(Refused, err, out)
	}
	m.need = need
	if m.state == Suspended && need != NeedNothing {
		return m.end(Failed, fmt.Errorf("it came back with another state than it had: %w: mount again, which copies the pool", wire.StatusInconsistent), out)
	}
	if m.link == linkGranted {
		m.link, m.askedAt = linkLaning, now
		return append(out, Action{Kind: ActLane, Conn: m.conn, Grant: &m.grant})
	}
	m.link = linkState
	if m.state == Suspended {
		return m.claim(now, out)
	}
	return m.done(nil, out)
}

// granted asks for the state once more. Until the claim the older session could still change it: a flush of it that failed
// marks the copy Inconsistent, at the latest when the claim ends that session.
func (m *Machine) granted(now time.Duration, out []Action) []Action {
	if err := checkGrant(&m.grant, m.id.Size, m.methods); err != nil {
		return m.end(Refused, err, out)
	}
	m.link = linkGranted
	return m.sayHello(now, out)
}

// checkGrant says whether a lane can work with a grant for a pool of size bytes, of which these methods were claimed.
func checkGrant(g *wire.Grant, size uint64, claimed wire.Methods) error {
	switch {
	case !claimed.Has(g.Method):
		return fmt.Errorf("it grants the persistency %v, and of %v one was asked for: %w", g.Method, claimed, wire.StatusVersion)
	case g.PoolSize < size:
		return fmt.Errorf("it grants %d of %d bytes: %w", g.PoolSize, size, wire.StatusTooSmall)
	case len(g.Chunks) == 0 && (g.Staging.Len == 0 || g.Method != wire.GPSPM):
		return fmt.Errorf("it grants a pool that is out of reach, with %v and a staging area of %d bytes: %w", g.Method, g.Staging.Len, wire.StatusBadRequest)
	case g.Credits == 0 || g.MaxRanges < wire.MaxRanges:
		return fmt.Errorf("it grants %d credits and %d ranges per request: %w", g.Credits, g.MaxRanges, wire.StatusBadRequest)
	}
	return nil
}

// laneUp ends CLAIM; after a loss it sends every unanswered drain again, in order. The target may have executed some
// of them: executing one again stores the same seal after the same bytes.
func (m *Machine) laneUp(now time.Duration, out []Action) []Action {
	m.link, m.heardAt = linkClaimed, now
	if m.state != Suspended {
		m.id.Term = m.term
		return m.done(nil, out)
	}
	m.state, m.backoff = InSync, 0
	for i := range m.n {
		out = m.post(&m.drains[(m.head+i)%MaxInFlight], out)
	}
	return out
}

// stateSet goes on after SET_STATE.
func (m *Machine) stateSet(out []Action) []Action {
	switch m.op {
	case EvFullSync:
		return append(out, Action{Kind: ActCopy, Conn: m.conn, Step: CopyUnseal})
	case EvAdopt:
		if m.peer.Gen != m.set.Gen || m.peer.Flags&wire.FlagInconsistent != 0 {
			return m.end(Failed, fmt.Errorf("it did not take the generation: %w", wire.StatusInconsistent), out)
		}
		m.state = InSync
		m.id.Gen, m.id.History = m.set.Gen, m.set.History
	}
	return m.done(nil, out)
}

// lost handles the end of a connection, or an answer that makes it useless.
func (m *Machine) lost(now time.Duration, err error, out []Action) []Action {
	closing := m.op == EvClose
	out = m.unlink(out)
	switch {
	case closing:
		return m.closed(out)
	case errors.Is(err, verbs.ErrDeviceGone) && m.live(): // no try can succeed, so nobody waits for the limit
		return m.end(Failed, fmt.Errorf("%w (%w)", ErrDevice, err), out)
	case m.state == InSync && m.timeout > 0:
		m.state, m.lostAt, m.lastErr = Suspended, now, err
		m.dialAt, m.backoff = now, firstBackoff
		return m.done(err, out)
	case m.state == Suspended:
		m.lastErr = err
		m.dialAt, m.backoff = now+m.backoff, min(2*m.backoff, lastBackoff)
		return out
	case m.live():
		return m.end(Failed, err, out)
	}
	return out
}

// live tells whether the replica has, or may get again, what it was opened for.
func (m *Machine) live() bool {
	return m.state == Handshake || m.state == FullSync || m.state == InSync || m.state == Suspended
}

// grown handles the answer to GROW. A refusal leaves everything as it was, except that of a fenced session, which ends like any other. What is
// new is tested before the lane gets it.
func (m *Machine) grown(f *wire.Frame, now time.Duration, out []Action) []Action {
	switch f.Status {
	case wire.StatusOK:
	case wire.StatusFenced:
		return m.end(Refused, wire.Refusal(*f), out)
	default:
		return m.done(wire.Refusal(*f), out)
	}
	var g wire.Grown
	if err := g.Decode(f.Body); err != nil {
		return m.lost(now, err, out)
	}
	m.next = m.grant
	m.next.Region = g.Region
	err := checkGrant(&m.next, m.growTo, m.methods)
	if err == nil {
		err = checkGrown(&m.grant.Region, &g.Region)
	}
	if err != nil {
		return m.done(err, out)
	}
	if len(g.Chunks) > 0 && g.PoolSize > m.grant.PoolSize {
		return append(out, Action{Kind: ActProve, Conn: m.conn, Grant: &m.next, From: m.grant.PoolSize})
	}
	return m.regrant(out)
}

// checkGrown says whether a lane that works with a region can go on with the next one: it keeps its way, with chunks or without, and no byte that
// is in use moves, except that the last chunk is registered anew when it gets longer.
func checkGrown(old, next *wire.Region) error {
	full := len(old.Chunks)
	if next.PoolSize > old.PoolSize && old.ChunkSize > 0 {
		full = int(old.PoolSize / old.ChunkSize)
	}
	switch {
	case next.ChunkSize != old.ChunkSize || (len(next.Chunks) == 0) != (len(old.Chunks) == 0):
		return fmt.Errorf("it grants %d chunks of %d bytes in place of %d of %d: %w", len(next.Chunks), next.ChunkSize, len(old.Chunks), old.ChunkSize, wire.StatusBadRequest)
	case next.PoolSize < old.PoolSize || (old.PoolSize|next.PoolSize)%word != 0:
		return fmt.Errorf("it grants %d bytes in place of %d: %w", next.PoolSize, old.PoolSize, wire.StatusBadRequest)
	case !slices.Equal(next.Chunks[:full], old.Chunks[:full]):
		return fmt.Errorf("it grants other keys for memory that is in use: %w", wire.StatusBadRequest)
	}
	return nil
}

// proven ends GROW: the lane gets the new chunks, or nothing has changed for it.
func (m *Machine) proven(ev *Event, out []Action) []Action {
	if m.op != EvGrow { // the replica is being closed
		return out
	}
	if ev.Err != nil {
		return m.done(ev.Err, out)
	}
	return m.regrant(out)
}

func (m *Machine) regrant(out []Action) []Action {
	m.grant, m.peer.PoolSize = m.next, m.next.PoolSize
	return m.done(nil, append(out, Action{Kind: ActRegrant, Conn: m.conn, Grant: &m.grant}))
}

// Extend says that the local copy has size bytes by now, for which the target's was asked before.
func (m *Machine) Extend(size uint64) { m.id.Size = size }

// limit is how long the target may be silent, or a drain unanswered.
func (m *Machine) limit() time.Duration {
	if m.timeout == 0 {
		return atOnceLimit
	}
	return m.timeout
}

// silence is how long a question may stay unanswered before the connection counts as lost. Half the limit leaves time
// for a second try.
func (m *Machine) silence() time.Duration { return m.limit() / 2 }

// expire does what the time asks for.
func (m *Machine) expire(now time.Duration, out []Action) []Action {
	if at, ok := m.failAt(); ok && now >= at {
		err := ErrTimeout
		if m.state == Suspended {
			err = fmt.Errorf("%w (last try: %w)", ErrTimeout, m.lastErr)
		}
		return m.end(Failed, err, out)
	}
	if at, ok := m.loseAt(); ok && now >= at {
		out = m.lost(now, ErrTimeout, out)
	}
	if m.state == Suspended && m.link == linkNone && now >= m.dialAt {
		out = m.dial(now, out)
	}
	if at, ok := m.askAt(); ok && now >= at {
		m.lastID++
		m.pingID, m.pingAt = m.lastID, now
		out = append(out, Action{Kind: ActSend, Conn: m.conn, Frame: wire.Frame{Type: wire.TypePing, ID: m.lastID}})
	}
	return out
}

// failAt is when waiting has no bound left: the timeout after the loss was noticed, or after the oldest drain became the oldest or
// last made progress.
func (m *Machine) failAt() (at time.Duration, ok bool) {
	if m.state != InSync && m.state != Suspended {
		return 0, false
	}
	if m.n > 0 {
		at, ok = m.drains[m.head].since+m.limit(), true
	}
	if m.state == Suspended && (!ok || m.lostAt+m.limit() < at) {
		at, ok = m.lostAt+m.limit(), true
	}
	return at, ok
}

// loseAt is when the current connection counts as lost.
func (m *Machine) loseAt() (at time.Duration, ok bool) {
	switch {
	case m.link == linkNone:
		return 0, false
	case m.waitFor != 0 || m.link == linkDialing || m.link == linkLaning:
		at, ok = m.askedAt+RequestTimeout, true
		if m.waitFor == wire.TypeGrow {
			return m.askedAt + GrowTimeout, true // silent all the time, and what else goes wrong a drain finds out
		}
		if m.waitFor == wire.TypeClaim {
			at += time.Duration(m.id.Size>>30) * registerTime // the device may have to pin all of it
		}
		if m.state == Suspended || m.op == EvClose {
			at = m.askedAt + min(RequestTimeout, m.silence())
		}
	}
	if m.pingID != 0 {
		if t := max(m.pingAt, m.heardAt) + m.silence(); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// askAt is when a ping is due: the connection has been idle. The target answers requests in order, so none is due
// while a request is on the wire.
func (m *Machine) askAt() (at time.Duration, ok bool) {
	if m.link != linkState && m.link != linkClaimed || m.waitFor != 0 || m.pingID != 0 {
		return 0, false
	}
	return max(m.heardAt, m.pingAt) + min(pingInterval, m.silence()/2), true
}

// Next is when the machine wants an EvTick at the latest; false if it waits for nothing.
func (m *Machine) Next() (time.Duration, bool) {
	at, ok := m.failAt()
	merge := func(t time.Duration, o bool) {
		if o && (!ok || t < at) {
			at, ok = t, true
		}
	}
	merge(m.loseAt())
	merge(m.askAt())
	merge(m.dialAt, m.state == Suspended && m.link == linkNone)
	return at, ok
}
