package replicate

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// Stepper is the shell for simulations: it drives the same machine, lane and full copy as a Replica, in the goroutine of its caller, with
// a fake clock. It has the methods of a Replica that a mount uses; those that wait let the world go on meanwhile.
type Stepper struct {
	machine *Machine
	fab     *fabric
	size    uint64
	world   World

	lane     *lane
	plan     copyPlan
	run      *copyRun // step of a full copy under way
	step     CopyStep
	read     int // bytes of the READ that has ended, -1: none
	ended    bool
	err      error // of the request that has ended
	actions  []Action
	events   []Event
	outcomes []outcome
	reports  []report
}

// World is what a Stepper needs of the world. Its methods must not call the Stepper, except Progress.
type World interface {
	Now() time.Duration
	// Dial opens control connection conn; report Dialed or Lost.
	Dial(conn uint32)
	// Send sends a frame on it.
	Send(conn uint32, f wire.Frame)
	// Lane connects a queue pair with this private data; nil: connected.
	Lane(conn uint32, qp verbs.QP, private []byte) error
	// Break ends what belongs to conn.
	Break(conn uint32)
	// SyncID is the id of the next full copy.
	SyncID() uint64
	// Drained is Config.OnDrained.
	Drained(seq uint64, err error)
	// Progress lets something happen, time at least. False: nothing can happen any more.
	Progress() bool
}

// NewStepper makes a Stepper of which nothing has happened yet. method and bounce are those of Config.
func NewStepper(dev verbs.Device, region pmem.Region, id Identity, pool string, timeout time.Duration, method wire.Method, bounce uint64, world World) (*Stepper, error) {
	methods, _, err := usable(dev, method)
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	fab, err := newFabric(dev, region, bounce, log)
	if err != nil {
		return nil, err
	}
	return &Stepper{machine: NewMachine(id, pool, timeout, methods), fab: fab, size: id.Size, world: world, read: -1}, nil
}

// Feed reports an event: EvDialed, EvFrame, EvLost or EvTick.
func (s *Stepper) Feed(ev Event) { s.do(&ev) }

func (s *Stepper) do(ev *Event) {
	s.events = append(s.events, *ev)
	for len(s.events) > 0 {
		next := s.events[0]
		s.events = s.events[:copy(s.events, s.events[1:])]
		next.Now = s.world.Now()
		s.actions = s.machine.Step(&next, s.actions[:0])
		for i := range s.actions {
			a := &s.actions[i]
			if err := s.execute(a); err != nil {
				s.events = append(s.events, Event{Kind: EvLost, Conn: a.Conn, Err: err})
			}
		}
	}
}

// execute does one action. An error means that the connection is lost.
func (s *Stepper) execute(a *Action) error {
	switch a.Kind {
	case ActDial:
		s.world.Dial(a.Conn)
	case ActSend:
		s.world.Send(a.Conn, a.Frame)
	case ActLane:
		if err := s.connect(a); err != nil {
			return err
		}
		s.events = append(s.events, Event{Kind: EvLaneUp, Conn: a.Conn})
	case ActPost:
		return s.lane.start(a.Seq, a.Ranges, a.Seal, inUnits)
	case ActCopy:
		s.step, s.run = a.Step, newCopyRun(a.Step, &s.plan)
		return s.copyOn()
	case ActProve: // its devices are not tried when they connect either
		s.events = append(s.events, Event{Kind: EvProven, Conn: a.Conn})
	case ActRegrant:
		s.lane.regrant(a.Grant)
	case ActBreak:
		s.world.Break(a.Conn)
		s.unlink()
	case ActDrained:
		s.reports = append(s.reports, report{a.Seq, a.Err})
	case ActDone:
		s.ended, s.err = true, a.Err
	}
	return nil
}

func (s *Stepper) connect(a *Action) error {
	l, err := newLane(s.fab, a.Grant, s.size, 0, 1)
	if err != nil {
		return err
	}
	p := wire.Private{Session: a.Grant.Session}
	if err := s.world.Lane(a.Conn, l.qp, p.Append(nil)); err != nil {
		l.close()
		return err
	}
	s.lane = l
	return nil
}

func (s *Stepper) unlink() {
	if s.lane != nil {
		s.lane.close()
	}
	s.lane, s.run = nil, nil
}

// copyOn starts what may start of the step under way, and reports its end.
func (s *Stepper) copyOn() error {
	for n, ranges, seal, ok := s.run.next(); ok; n, ranges, seal, ok = s.run.next() {
		if err := s.lane.start(n|copyBit, ranges, seal, ahead); err != nil {
			return err
		}
	}
	if s.run.over() {
		s.run = nil
		s.events = append(s.events, Event{Kind: EvCopied, Conn: s.machine.conn, Seq: uint64(s.step)})
	}
	return nil
}

// Poll takes the completions that are there and reports drains. It tells whether there was something to do.
func (s *Stepper) Poll() bool {
	busy := false
	if l := s.lane; l != nil {
		var err error
		s.outcomes, err = l.reap(s.outcomes[:0])
		busy = len(s.outcomes) > 0 || err != nil
		for i := range s.outcomes {
			if s.lane == l {
				s.outcome(&s.outcomes[i])
			}
		}
		if err != nil && s.lane == l {
			s.do(&Event{Kind: EvLost, Conn: s.machine.conn, Err: err})
		}
	}
	for len(s.reports) > 0 {
		r := s.reports[0]
		s.reports = s.reports[:copy(s.reports, s.reports[1:])]
		s.world.Drained(r.seq, r.err)
		busy = true
	}
	return busy
}

func (s *Stepper) outcome(o *outcome) {
	ev := Event{Kind: EvProgress, Conn: s.machine.conn}
	switch {
	case o.kind == outRead:
		s.read = int(o.n)
	case o.seq&copyBit != 0 && o.kind == outDrained:
		s.copied(o)
	case o.kind == outDrained:
		ev = Event{Kind: EvAnswered, Conn: s.machine.conn, Seq: o.seq, Status: o.status, Where: o.where, Term: o.term}
	}
	s.do(&ev)
}

func (s *Stepper) copied(o *outcome) {
	if s.run == nil {
		return
	}
	s.run.drained()
	err := error(nil)
	if o.status != wire.FlushOK {
		err = fmt.Errorf("at offset %d: %w", o.where, o.status)
	} else {
		err = s.copyOn()
	}
	if err != nil {
		s.events = append(s.events, Event{Kind: EvCopied, Conn: s.machine.conn, Seq: uint64(s.step), Err: err})
	}
}

// Next is when the machine wants an EvTick at the latest; false if it waits for nothing.
func (s *Stepper) Next() (time.Duration, bool) { return s.machine.Next() }

// request hands a request to the machine and waits for its end.
func (s *Stepper) request(ev Event) error {
	s.ended, s.err = false, nil
	s.do(&ev)
	for !s.ended {
		if !s.world.Progress() {
			return ErrTimeout
		}
	}
	return s.err
}

// Connect, Claim, FullSync, Adopt, Clean, Grow, Extend and Close are those of Replica.

func (s *Stepper) Connect() error { return s.request(Event{Kind: EvConnect}) }

func (s *Stepper) Claim(_ context.Context, term uint64) error {
	return s.request(Event{Kind: EvClaim, Term: term, Durability: wire.DurabilityMedia})
}

func (s *Stepper) FullSync(_ context.Context, exclude []uint64, skip []pmem.Range, seals []pmem.Seal, _ func(done, total uint64)) error {
	s.plan = copyPlan{s.size, exclude, skip, seals}
	return s.request(Event{Kind: EvFullSync, Seq: s.world.SyncID()})
}

func (s *Stepper) Adopt(_ context.Context, gen uint64, history [8]uint64, peers []wire.UUID) error {
	return s.request(Event{Kind: EvAdopt, Gen: gen, History: history, Peers: peers})
}

func (s *Stepper) Clean(_ context.Context, flags uint32) error {
	return s.request(Event{Kind: EvClean, Flags: flags})
}

func (s *Stepper) Grow(_ context.Context, size uint64) error {
	return s.request(Event{Kind: EvGrow, Size: size})
}

func (s *Stepper) Extend(region pmem.Region, size uint64) error {
	if err := s.fab.extend(region, func(span) error { return nil }); err != nil {
		return err
	}
	s.fab.pool = region
	s.machine.Extend(size)
	s.size = size
	if s.lane != nil {
		s.lane.size = size
	}
	return nil
}

func (s *Stepper) Close(context.Context) error { return s.request(Event{Kind: EvClose}) }

// Drain is that of Replica.
func (s *Stepper) Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal) {
	s.do(&Event{Kind: EvDrain, Seq: seq, Ranges: ranges, Seal: seal, Err: checkRanges(ranges, seal, s.size)})
}

// ReadAt is that of Replica.
func (s *Stepper) ReadAt(off uint64, b []byte) error {
	for len(b) > 0 {
		l := s.lane
		if l == nil {
			return ErrClosed
		}
		s.read = -1
		n, err := l.read(off, uint64(len(b)))
		if err != nil {
			return err
		}
		for s.read < 0 {
			if s.lane != l || !s.world.Progress() {
				return ErrClosed
			}
		}
		copy(b[:n], l.bounce.Bytes())
		off, b = off+n, b[n:]
	}
	return nil
}

// Status tells the state and its cause, and the method.
func (s *Stepper) Status() Status {
	return Status{State: s.machine.State(), Err: s.machine.Err(), Method: s.machine.grant.Method, Sent: s.fab.sent.now()}
}

// Peer is the state of the target's copy as last heard; Need is what Connect found out.
func (s *Stepper) Peer() wire.State { return s.machine.peer }
func (s *Stepper) Need() Need       { return s.machine.need }
