package crash

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/target"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file holds the network: control connections as two queues of frames each, the fabric, and who moves next.

// link is one control connection.
type link struct {
	id       target.ConnID
	life     *life
	conn     uint32 // its number at the initiator
	up, down []wire.Frame
	line     *line // of the initiator when it sent the last frame
	dialing  bool
	closed   bool // by the initiator, or with it
	hung     bool // by the target, or with it
}

var errDown = errors.New("the peer is down")

// site is the daemon of a host that serves its copy.
type site struct {
	dev    verbs.Device
	daemon *target.Stepper // nil: no daemon runs
}

// quiet is a log that nobody reads.
var quiet = func() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.PanicLevel)
	return l
}()

// serve starts the daemon of h.
func (w *World) serve(h *host) {
	h.daemon = target.NewStepper(h.dev, target.NewMachine(config.Media), target.Persistency{Inbound: w.platform(h).InboundPersistent, Bounce: bounce}, daemonWorld{w, h}, quiet)
}

// open opens the copy of h as a daemon or a mount does.
func (h *host) open(role string) (*pool.Pool, error) {
	h.region.Reopen()
	return pool.OpenRegion(h.set(), h.region, pool.OpenOptions{Role: role, Durability: pool.Media})
}

func (h *host) set() *poolset.Set { return setOf(h.name) }

// setOf is a pool set that only gives messages a name.
func setOf(name string) *poolset.Set {
	return &poolset.Set{File: name, Parts: []poolset.Part{{Path: name}}}
}

// daemonWorld is the world of a daemon.
type daemonWorld struct {
	w *World
	h *host
}

func (d daemonWorld) Open() (*pool.Pool, error) { return d.h.open("target") }

func (d daemonWorld) Inspect() (pool.Info, error) {
	return pool.InspectBytes(d.h.set(), d.h.region.Bytes())
}

func (d daemonWorld) Send(c target.ConnID, f wire.Frame) {
	if l := d.w.link(c); l != nil && !l.hung {
		l.down = append(l.down, f)
	}
}

func (d daemonWorld) Hangup(c target.ConnID) {
	if l := d.w.link(c); l != nil {
		l.hung = true
	}
}

func (w *World) link(c target.ConnID) *link {
	for _, l := range w.links {
		if l.id == c {
			return l
		}
	}
	return nil
}

// mountWorld is the world of the initiator's end of a mount.
type mountWorld struct {
	w *World
	l *life
}

func (m mountWorld) Now() time.Duration { return m.w.time }

func (m mountWorld) Dial(conn uint32) {
	m.w.conns++
	m.w.links = append(m.w.links, &link{id: target.ConnID(m.w.conns), life: m.l, conn: conn, dialing: true})
}

func (m mountWorld) Send(conn uint32, f wire.Frame) {
	for _, l := range m.w.links {
		if l.life == m.l && l.conn == conn {
			l.up, l.line = append(l.up, f), m.w.primary.line
			if f.Type == wire.TypeClaim && m.w.fuse > 0 && m.w.rnd.IntN(4) == 0 {
				m.w.fuse = 1 // a claim that outlives its sender
			}
		}
	}
}

func (m mountWorld) Lane(_ uint32, qp verbs.QP, private []byte) error {
	d := m.w.other.daemon
	if d == nil {
		return errDown
	}
	peer, err := d.Admit(private)
	if err == nil {
		err = m.w.fabric.Link(qp, peer)
	}
	m.l.qp = qp
	return err
}

func (m mountWorld) Break(conn uint32) {
	for _, l := range m.w.links {
		if l.life == m.l && l.conn == conn {
			l.closed = true
		}
	}
}

func (m mountWorld) SyncID() uint64 {
	m.w.counts.Copies.Add(1)
	return m.w.id()
}

func (m mountWorld) Drained(seq uint64, err error) {
	if m.l.engine != nil {
		m.l.engine.Run(commit.Event{Kind: commit.Drained, Copy: 1, Seq: seq, Err: err})
	}
}

func (m mountWorld) Progress() bool {
	m.w.mishap()
	return m.w.progress()
}

// progress lets one thing happen, and time pass if there is none.
func (w *World) progress() bool { return w.deliver() || w.pass() }

// deliver lets one thing happen that is under way, of all machines.
func (w *World) deliver() bool {
	if w.other == nil {
		return false
	}
	movers := []func() bool{w.remote, w.remote, w.poll}
	first := w.rnd.IntN(len(movers))
	for i := range movers {
		if movers[(first+i)%len(movers)]() {
			return true
		}
	}
	return false
}

// remote lets one thing happen beside the initiator's own threads.
func (w *World) remote() bool {
	if w.other == nil {
		return false
	}
	movers := []func() bool{w.wires, w.place, w.handle}
	first := w.rnd.IntN(len(movers))
	for i := range movers {
		if movers[(first+i)%len(movers)]() {
			return true
		}
	}
	return false
}

// place lets the fabric carry out one work request.
func (w *World) place() bool {
	if !w.fabric.Step() {
		return false
	}
	w.other.region.Observe()
	return true
}

func (w *World) handle() bool { return w.other.daemon != nil && w.other.daemon.Poll() }

// poll lets the initiator take its completions.
func (w *World) poll() bool {
	if l := w.life; l.stepper == nil || l.nested || !l.stepper.Poll() {
		return false
	}
	w.acknowledge()
	return true
}

// wires moves one frame, or the end of a connection, of one control connection.
func (w *World) wires() bool {
	if len(w.links) == 0 {
		return false
	}
	first := w.rnd.IntN(len(w.links))
	for i := range w.links {
		k := (first + i) % len(w.links)
		if w.move(w.links[k]) {
			return true
		}
	}
	return false
}

func (w *World) move(l *link) bool {
	down := w.other.daemon == nil
	toInitiator := func(ev replicate.Event) {
		if l.life != nil && l.life.stepper != nil && !l.closed {
			ev.Conn = l.conn
			l.life.stepper.Feed(ev)
		}
	}
	busy := l.life != nil && (l.life.nested || l.life != w.life)
	switch {
	case l.dialing && !busy:
		l.dialing = false
		if down {
			l.hung = true
			return true
		}
		toInitiator(replicate.Event{Kind: replicate.EvDialed})
	case len(l.up) > 0 && !l.hung && !down:
		f := w.take(&l.up)
		w.request(l, f)
	case len(l.down) > 0 && !l.closed && !busy:
		f := w.take(&l.down)
		toInitiator(replicate.Event{Kind: replicate.EvFrame, Frame: f})
	case l.hung && !busy:
		w.forgetLink(l)
		toInitiator(replicate.Event{Kind: replicate.EvLost, Err: errDown})
	case l.closed:
		w.forgetLink(l)
		if !l.hung && !down && !l.dialing {
			w.other.daemon.Lost(l.id)
		}
	default:
		return false
	}
	return true
}

// take is the next frame of a queue. If the configuration says so it may come once more, at once or after all that waits, but no more than one frame does during
// one operation: whoever gets an answer twice ends the connection, and must find his way back.
func (w *World) take(queue *[]wire.Frame) wire.Frame {
	f := (*queue)[0]
	*queue = (*queue)[1:]
	if w.cfg.Repeat && w.repeated != w.at && w.rnd.IntN(8) == 0 {
		w.repeated = w.at
		again := 0
		if w.rnd.IntN(2) == 0 {
			again = len(*queue)
		}
		*queue = slices.Insert(slices.Clone(*queue), again, f)
		w.broken = true
		w.counts.Repeated.Add(1)
	}
	return f
}

func (w *World) forgetLink(l *link) {
	for i := range w.links {
		if w.links[i] == l {
			w.links = append(w.links[:i], w.links[i+1:]...)
			return
		}
	}
}

// request hands a frame to the daemon, and keeps track of what the copy is by then.
func (w *World) request(l *link, f wire.Frame) {
	if f.Type != wire.TypeSetState {
		w.other.daemon.Frame(l.id, f)
		return
	}
	c := w.other.copyUnderTest
	var s wire.SetState
	before, marks := c.line, s.Decode(f.Body) == nil && s.Set&wire.FlagInconsistent != 0
	if !marks {
		c.follow(l.line) // from here on the copy claims to be whole
	}
	c.marking = true
	w.other.daemon.Frame(l.id, f)
	c.marking = false
	switch now := w.other.inconsistent(); {
	case now && marks:
		c.follow(nil)
	case now:
		c.follow(before)
	}
}

// inconsistent tells what the header of h says at the moment.
func (h *host) inconsistent() bool {
	info, err := pool.InspectBytes(h.set(), h.region.Bytes())
	return err == nil && info.State.Flags&poolset.Inconsistent != 0
}

// pass lets time pass until somebody wants to do something.
func (w *World) pass() bool {
	l := w.life
	if l.stepper == nil || l.nested {
		return false
	}
	at, ok := l.stepper.Next()
	if ok {
		w.time = max(w.time, at)
		l.stepper.Feed(replicate.Event{Kind: replicate.EvTick})
	}
	return ok
}
