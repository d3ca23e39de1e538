package target

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// host is what a served pool needs of the world: its parts, a device, and the connections. The Server is the real one, a
// Stepper that of a simulation.
type host interface {
	openCopy(name string) (*localCopy, Replica, error)
	inspectCopy(name string) (Replica, error)
	createCopy(name string, a Create) (Replica, error)
	removeCopy(name string) error
	growCopy(name string, c *localCopy, size uint64) error
	choice(c *localCopy, m wire.Methods) choice
	newGrant(p *served, a Register) (*grant, error)
	addGrant(g *grant)
	dropGrant(session uint64)
	fabricAddr() string
	answer(a Answer)
	notice(a Notice)
}

// served is the shell of a pool's machine: it takes one event at a time and carries out what the machine decides.
type served struct {
	srv  host
	name string
	log  logrus.FieldLogger

	mu      sync.Mutex // all below, and the order of events
	machine *Machine
	copy    *localCopy // nil: closed
	grant   *grant     // nil: no session
	report  Report     // outcome of the last Promotion
	actions []Action
}

// lookup finds the pool called name: the pool set file of that name in the pool directory, which must exist.
func (s *Server) lookup(name string) (*served, error) {
	if err := poolset.CheckName(name); err != nil {
		return nil, refuse(wire.StatusBadRequest, "%v", err)
	}
	path := filepath.Join(s.cfg.PoolDir, name)
	if _, err := readSet(path); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[name]
	if p == nil {
		p = &served{srv: s, name: name, log: s.log.WithField("pool", name), machine: NewMachine(s.cfg.Durability)}
		s.pools[name] = p
	}
	return p, nil
}

// readSet reads a pool set file of the pool directory. Each time anew, since the administrator may have changed it.
func readSet(path string) (*poolset.Set, error) {
	set, err := poolset.ParseFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(wire.StatusNoPool, "there is no pool set file %s", path)
	case err != nil:
		return nil, refuse(wire.StatusPoolSet, "%v", err)
	case len(set.Replicas) > 0:
		return nil, refuse(wire.StatusPoolSet, "pool set %s has a REPLICA line: a target serves the end of the chain, remove the line", path)
	}
	return set, nil
}

// step runs one event and all that follows from it.
func (p *served) step(ev Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run(ev)
}

func (p *served) run(ev Event) {
	for ev != nil {
		p.actions = p.machine.Step(ev, p.actions[:0])
		ev = nil
		for _, a := range p.actions {
			ev = p.perform(a)
		}
	}
}

// promote runs a promotion and returns its outcome.
func (p *served) promote(force bool) (term uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = Report{}
	p.run(Promotion{Force: force, Gen: randomID()})
	return p.report.Term, p.report.Err
}

// perform carries out an action. The event is the Done of an action that asks for one, else nil.
func (p *served) perform(a Action) Event {
	switch a := a.(type) {
	case Answer:
		p.srv.answer(a)
	case Notice:
		p.log.WithField("term", a.Fenced.Term).Warnf("the initiator is fenced: %s", a.Fenced.Text)
		p.srv.notice(a)
	case Report:
		p.report = a
	case Release:
		if err := p.release(); err != nil {
			p.log.Errorf("close the pool: %v", err)
		}
	default:
		d := p.ask(a)
		if d.Err != nil {
			p.log.Warnf("%s: %v", nameOf(a), d.Err)
		}
		return d
	}
	return nil
}

// ask carries out an action that asks for a Done.
func (p *served) ask(a Action) (d Done) {
	switch a := a.(type) {
	case Open:
		d.Replica, d.Err = p.open()
	case Inspect:
		d.Replica, d.Err = p.srv.inspectCopy(p.name)
	case Create:
		d.Replica, d.Err = p.srv.createCopy(p.name, a)
	case Remove:
		d.Err = p.srv.removeCopy(p.name)
	case Persist:
		d.Err = p.copy.persist(&a.Replica)
	case SetAttr:
		d.Err = p.copy.setAttr(a.Attr)
	case Sync:
		d.Err = p.copy.region().Sync()
	case Choose:
		c := p.srv.choice(p.copy, a.Methods)
		_, _, d.Err = c.choose()
	case Register:
		d.Grant, d.Err = p.register(a)
	case Grow:
		d.Grown, d.Err = p.grow(a.Size)
	case End:
		d.Failed, d.Err = p.end(a.FencedBy)
	}
	return d
}

func nameOf(a Action) string { return fmt.Sprintf("%T", a)[len("target."):] }

func (p *served) open() (r Replica, err error) {
	if p.copy, r, err = p.srv.openCopy(p.name); err == nil {
		p.log.WithField("term", r.Term).Info("pool opened")
		for _, doubt := range p.copy.doubts {
			p.log.Warn(doubt)
		}
	}
	return r, err
}

func (p *served) release() error {
	c := p.copy
	p.copy = nil
	p.log.Info("pool closed")
	return c.close()
}

func (p *served) register(a Register) (wire.Grant, error) {
	g, err := p.srv.newGrant(p, a)
	if err != nil {
		return wire.Grant{}, err
	}
	p.grant = g
	p.srv.addGrant(g)
	p.log.WithField("term", a.Term).WithField("method", g.method).Info("session registered")
	return g.wire(p.srv.fabricAddr()), nil
}

// grow enlarges the copy, if it is smaller than size, and registers it anew.
func (p *served) grow(size uint64) (wire.Grown, error) {
	if err := p.srv.growCopy(p.name, p.copy, size); err != nil {
		return wire.Grown{}, err
	}
	g, err := p.grant.extend()
	if err == nil {
		p.log.WithField("bytes", g.PoolSize).Info("pool grown")
	}
	return g, err
}

func (p *served) end(fencedBy uint64) (failed bool, err error) {
	g := p.grant
	p.srv.dropGrant(g.id)
	if err := g.end(fencedBy); err != nil {
		return false, err
	}
	p.grant = nil
	p.log.WithField("term", g.term).Info("session ended")
	return g.ioFailed.Load(), nil
}
