package target

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// Stepper is the shell for simulations: one pool with the same machine, state slot, grants and flush handlers as in a Server, driven by
// the goroutine of its caller.
type Stepper struct {
	pool    *served
	world   World
	device  verbs.Device
	persist Persistency
	log     logrus.FieldLogger
	session uint64 // of the last grant
	grants  map[uint64]*grant
	handled []handler
	asked   map[ConnID]wire.Frame // requests being answered
}

// handler is a flush handler that somebody must poll.
type handler struct {
	g      *grant
	l      *lane
	number uint16
}

// World is what a Stepper needs of the world. Its methods must not call the Stepper.
type World interface {
	// Open opens the copy, Inspect reads header and state without opening it.
	Open() (*pool.Pool, error)
	Inspect() (pool.Info, error)
	// Send sends a frame to an initiator, Hangup closes its control connection.
	Send(c ConnID, f wire.Frame)
	Hangup(c ConnID)
}

// NewStepper makes a target with one pool.
func NewStepper(dev verbs.Device, cfg *Machine, p Persistency, world World, log logrus.FieldLogger) *Stepper {
	s := &Stepper{world: world, device: dev, persist: p, log: log, grants: map[uint64]*grant{}, asked: map[ConnID]wire.Frame{}}
	s.pool = &served{srv: s, name: "pool", log: log, machine: cfg}
	return s
}

// Frame handles what came over control connection c.
func (s *Stepper) Frame(c ConnID, f wire.Frame) {
	s.asked[c] = f
	if f.Type == wire.TypePing {
		s.answer(Answer{Conn: c})
		return
	}
	body, _, err := decode(f)
	if err != nil {
		r := asRefusal(err)
		s.answer(Answer{c, r.Status, wire.AppendRefusal(nil, r.Text, r.State)})
		return
	}
	s.pool.step(Request{c, body})
}

// Lost says that control connection c has ended.
func (s *Stepper) Lost(c ConnID) { s.pool.step(Lost{c}) }

// Promote is what `pmemfs promote` asks for. gen is the new generation.
func (s *Stepper) Promote(force bool, gen uint64) (term uint64, err error) {
	s.pool.report = Report{}
	s.pool.step(Promotion{Force: force, Gen: gen})
	return s.pool.report.Term, s.pool.report.Err
}

// Admit makes the queue pair of a lane whose connect request has this private data. The caller links it, before it polls.
func (s *Stepper) Admit(private []byte) (verbs.QP, error) {
	var p wire.Private
	if err := p.Decode(private); err != nil {
		return nil, err
	}
	g := s.grants[p.Session]
	if g == nil {
		return nil, wire.StatusNoSession
	}
	l, err := g.admit(s.device, p.Lane)
	if err != nil {
		return nil, err
	}
	l.connected()
	s.handled = append(s.handled, handler{g, l, p.Lane})
	return l.qp, nil
}

// Poll lets the flush handlers take one completion each, and tells whether there was one.
func (s *Stepper) Poll() (busy bool) {
	for i := 0; i < len(s.handled); i++ {
		h := s.handled[i]
		n, err := h.l.poll(1)
		busy = busy || n > 0 || err != nil
		if err != nil {
			s.log.Debugf("lane ended: %v", errors.Join(err, s.leave(i)))
			i--
		}
	}
	return busy
}

func (s *Stepper) leave(i int) error {
	h := s.handled[i]
	s.handled = append(s.handled[:i], s.handled[i+1:]...)
	return h.g.leave(h.l, h.number)
}

// join ends the handlers of closed lanes: here nobody else does.
func (s *Stepper) join(lanes []*lane, _ time.Duration) error {
	var errs []error
	for _, l := range lanes {
		for i := range s.handled {
			if s.handled[i].l == l {
				errs = append(errs, s.leave(i))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// The methods of host.

func (s *Stepper) openCopy(string) (*localCopy, Replica, error) {
	p, err := s.world.Open()
	if err != nil {
		return nil, Replica{}, err
	}
	c := &localCopy{pool: p}
	return c, c.replica(), nil
}

func (s *Stepper) inspectCopy(string) (Replica, error) {
	info, err := s.world.Inspect()
	return replicaOf(&info.Header, &info.State), err
}

func (s *Stepper) createCopy(string, Create) (Replica, error) {
	return Replica{}, refuse(wire.StatusExists, "the pool of a simulation exists")
}

func (s *Stepper) removeCopy(string) error {
	return refuse(wire.StatusBadRequest, "the pool of a simulation stays")
}

func (s *Stepper) growCopy(_ string, c *localCopy, size uint64) error {
	if have := c.pool.Header().PoolSize; have < size {
		return refuse(wire.StatusTooSmall, "the copy of a simulation has %d bytes, %d are wanted", have, size)
	}
	return nil
}

func (s *Stepper) choice(c *localCopy, m wire.Methods) choice {
	return choiceOf(s.device, c.region(), m, s.persist)
}

func (s *Stepper) newGrant(p *served, a Register) (*grant, error) {
	s.session++
	g, err := newGrant(s.device, p.copy.region(), s.session, a, s.persist, s.log)
	if err == nil {
		g.join = s.join
		g.report = func() {}
	}
	return g, err
}

func (s *Stepper) addGrant(g *grant)        { s.grants[g.id] = g }
func (s *Stepper) dropGrant(session uint64) { delete(s.grants, session) }
func (s *Stepper) fabricAddr() string       { return "target:1" }

func (s *Stepper) answer(a Answer) {
	f := s.asked[a.Conn]
	s.world.Send(a.Conn, wire.Frame{Type: f.Type | wire.Answer, ID: f.ID, Status: a.Status, Body: a.Body})
}

func (s *Stepper) notice(a Notice) {
	s.world.Send(a.Conn, wire.Frame{Type: wire.TypeFenced, Body: a.Fenced.Append(nil)})
	s.world.Hangup(a.Conn)
}
