package target

import (
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// Machine decides what happens to one pool. The zero session means that nobody holds the pool; then it is closed, except
// within a sequence of actions.
type Machine struct {
	durability config.Durability // least promise of a copy that is served

	rep     Replica // valid while open
	open    bool
	session session

	next func(Done) // what follows the action under way
	out  []Action
}

// session is the right of one control connection to write the pool.
type session struct {
	id   uint64
	conn ConnID // 0 once the connection is gone
	term uint64
}

// NewMachine makes the machine of a pool that must make at least the promise d to be served.
func NewMachine(d config.Durability) *Machine { return &Machine{durability: d} }

// Replica is the copy as the machine knows it; it is zero while the pool is closed.
func (m *Machine) Replica() *Replica { return &m.rep }

// Step takes one event and appends to out what is to be done about it. After an action that asks for a Done, that Done must
// be the next event.
func (m *Machine) Step(ev Event, out []Action) []Action {
	m.out = out
	switch e := ev.(type) {
	case Done:
		next := m.next
		m.next = nil
		next(e)
	case Request:
		m.request(e.Conn, e.Body)
	case Lost:
		if m.session.conn == e.Conn {
			m.end(ignore)
		}
	case Failed:
		if m.session.id == e.Session && m.session.id != 0 {
			m.markInconsistent(ignore)
		}
	case Promotion:
		m.promote(e)
	case Stop:
		if m.session.id != 0 {
			m.end(ignore)
		}
	}
	out, m.out = m.out, nil
	return out
}

// ignore is for errors that nobody waits for; the shell has logged them.
func ignore(error) {}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

// then asks for an action and goes on with next when it is done.
func (m *Machine) then(a Action, next func(Done)) {
	m.do(a)
	m.next = next
}

func (m *Machine) request(c ConnID, body any) {
	switch b := body.(type) {
	case *wire.Hello:
		m.hello(c, b)
	case *wire.Create:
		m.create(c, b)
	case *wire.Claim:
		m.claim(c, b)
	case *wire.SetState:
		m.setState(c, b)
	case *wire.SetAttr:
		m.setAttr(c, b)
	case *wire.Close:
		m.close(c, b)
	case *wire.Remove:
		m.remove(c, b)
	case *wire.Grow:
		m.grow(c, b)
	default:
		m.refuse(c, refuse(wire.StatusBadRequest, "a request of type %T is not known", body))
	}
}

func (m *Machine) hello(c ConnID, h *wire.Hello) {
	answer := func(r Replica) {
		if h.PoolUUID != (wire.UUID{}) && h.PoolUUID != r.Attr.PoolUUID {
			m.refuse(c, foreign(h.PoolUUID, r.Attr.PoolUUID))
			return
		}
		m.answerState(c, r)
	}
	if m.open {
		answer(m.rep)
		return
	}
	m.then(Inspect{}, func(d Done) {
		if d.Err != nil {
			m.refuse(c, d.Err)
			return
		}
		answer(d.Replica)
	})
}

func (m *Machine) create(c ConnID, r *wire.Create) {
	if m.open {
		m.refuse(c, refuse(wire.StatusExists, "the pool exists and is being served"))
		return
	}
	m.then(Create{r.Attr, r.PoolSize}, func(d Done) {
		if d.Err != nil {
			m.refuse(c, d.Err)
			return
		}
		m.answerState(c, d.Replica)
	})
}

func (m *Machine) setState(c ConnID, s *wire.SetState) {
	if !m.owns(c, s.Session) {
		return
	}
	r := m.rep
	r.Gen, r.History = s.Gen, s.History
	r.Flags = (r.Flags | s.Set) &^ s.Clear
	r.SyncGen, r.SyncID, r.Peers = s.SyncGen, s.SyncID, s.Peers
	m.persist(r, func(err error) {
		if err != nil {
			m.refuse(c, err)
			return
		}
		m.answerState(c, m.rep)
	})
}

func (m *Machine) setAttr(c ConnID, s *wire.SetAttr) {
	if !m.owns(c, s.Session) {
		return
	}
	if s.Attr.PoolUUID != m.rep.Attr.PoolUUID || s.Attr.CopyID != m.rep.Attr.CopyID {
		m.refuse(c, refuse(wire.StatusBadRequest, "SET_ATTR would change the identity of the copy: keep pool UUID %v and copy id %v",
			m.rep.Attr.PoolUUID, m.rep.Attr.CopyID))
		return
	}
	m.then(SetAttr{s.Attr}, func(d Done) {
		if d.Err != nil {
			m.refuse(c, d.Err)
			return
		}
		m.rep.Attr = s.Attr
		m.answer(c, nil)
	})
}

// grow enlarges the copy under the session.
//
// Order of durable steps: 1 the parts have their sizes and blocks; 2 the header has the new size; 3 the answer. A crash leaves a copy of the
// old size or of the new one; both hold what they held.
func (m *Machine) grow(c ConnID, r *wire.Grow) {
	if !m.owns(c, r.Session) {
		return
	}
	m.then(Grow{r.PoolSize}, func(d Done) {
		if d.Err != nil {
			m.refuse(c, d.Err)
			return
		}
		m.rep.PoolSize = d.Grown.PoolSize
		m.answer(c, d.Grown.Append(nil))
	})
}

func (m *Machine) close(c ConnID, r *wire.Close) {
	if !m.owns(c, r.Session) {
		return
	}
	m.end(func(err error) {
		if err != nil {
			m.refuse(c, err)
			return
		}
		m.answer(c, nil)
	})
}

func (m *Machine) remove(c ConnID, r *wire.Remove) {
	if m.open {
		m.refuse(c, refuse(wire.StatusBusy, "the pool is in use by an initiator: unmount it there first"))
		return
	}
	m.then(Inspect{}, func(d Done) {
		switch {
		case d.Err != nil && r.Force == 0:
			m.refuse(c, d.Err)
			return
		case d.Err == nil && r.PoolUUID != (wire.UUID{}) && r.PoolUUID != d.Replica.Attr.PoolUUID:
			m.refuse(c, foreign(r.PoolUUID, d.Replica.Attr.PoolUUID))
			return
		}
		m.then(Remove{}, func(d Done) {
			if d.Err != nil {
				m.refuse(c, d.Err)
				return
			}
			m.answer(c, nil)
		})
	})
}

// end ends the session and closes the pool. If that fails the session stays, without a connection, and the next claim or
// promotion tries again.
func (m *Machine) end(next func(error)) {
	m.endSession(0, func(err error) {
		m.releaseIdle()
		next(err)
	})
}

// endSession ends the session and leaves the pool open. A session that failed leaves its copy Inconsistent; if that cannot
// be made durable the session has ended, and the error is passed on. fencedBy is as in End.
func (m *Machine) endSession(fencedBy uint64, next func(error)) {
	m.session.conn = 0
	m.then(End{fencedBy}, func(d Done) {
		switch {
		case d.Err != nil:
			next(d.Err)
		case d.Failed && m.rep.Flags&wire.FlagInconsistent == 0:
			m.markInconsistent(func(err error) {
				m.session = session{}
				next(err)
			})
		default:
			m.session = session{}
			next(nil)
		}
	})
}

// releaseIdle closes the pool unless somebody holds it.
func (m *Machine) releaseIdle() {
	if m.session.id == 0 {
		m.open, m.rep = false, Replica{}
		m.do(Release{})
	}
}

// persist writes r to the state slot; rep changes only once it is durable.
func (m *Machine) persist(r Replica, next func(error)) {
	m.then(Persist{r}, func(d Done) {
		if d.Err == nil {
			m.rep = r
		}
		next(d.Err)
	})
}

func (m *Machine) markInconsistent(next func(error)) {
	r := m.rep
	r.Flags |= wire.FlagInconsistent
	m.persist(r, next)
}

// owns tells whether c holds session id, and refuses the request if not.
func (m *Machine) owns(c ConnID, id uint64) bool {
	if m.session.id != 0 && m.session.id == id && m.session.conn == c {
		return true
	}
	m.refuse(c, refuse(wire.StatusNoSession, "session %#x is not that of this connection", id))
	return false
}

func (m *Machine) answer(c ConnID, body []byte) { m.do(Answer{c, wire.StatusOK, body}) }

func (m *Machine) answerState(c ConnID, r Replica) {
	r.Served = 0
	if m.session.id != 0 {
		r.Served = 1
	}
	m.answer(c, r.State.Append(nil))
}

// refuse answers with an error. One that is no Refusal is a failure of the pool itself.
func (m *Machine) refuse(c ConnID, err error) {
	r := asRefusal(err)
	m.do(Answer{c, r.Status, wire.AppendRefusal(nil, r.Text, r.State)})
}
