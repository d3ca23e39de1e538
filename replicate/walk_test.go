package replicate

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// TestMachine_RandomWalk lets chance play user, network, clock and target, and checks what must hold in every run:
//
//   - a drain is posted only to a copy that has the adopted generation and is not marked Inconsistent
//   - after Refused, Failed or Close nothing is sent
//   - every drain is reported exactly once, in the order started, and without error only if the target executed it
//   - every request of the user ends exactly once
func TestMachine_RandomWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	drained := 0
	for run := range uint64(4000) {
		w := &walk{bench: newBench(t, testTimeout), rng: rand.New(rand.NewPCG(seed, run)), peer: peerState(), executed: map[uint64]bool{}}
		if w.rng.IntN(3) == 0 {
			w.bench.m.timeout = 0
		}
		if w.rng.IntN(2) == 0 {
			w.peer.Writer, w.peer.Gen = wire.UUID{}, 0
		}
		for range 200 {
			w.turn()
			if t.Failed() {
				t.Fatalf("run %d of seed %d, state %v, error %v", run, seed, w.m.State(), w.m.Err())
			}
		}
		w.settle()
		w.ask(Event{Kind: EvClose})
		w.settle()
		drained += len(w.executed)
		if w.reported != w.started {
			t.Fatalf("run %d of seed %d: %d drains started, %d reported", run, seed, w.started, w.reported)
		}
	}
	if drained < 1000 {
		t.Errorf("only %d drains were executed: the walk does not reach what it tests", drained)
	}
}

// settle lets time pass until the request under way has ended.
func (w *walk) settle() {
	for w.asked {
		w.now += time.Second
		w.do(Event{Kind: EvTick})
	}
}

// walk is one run. The target executes what is posted at a random later time, unless the connection breaks before.
type walk struct {
	*bench
	rng               *rand.Rand
	peer              wire.State
	gen               uint64 // adopted
	asked             bool   // a request of the user is under way
	sent              []wire.Frame
	dialed, lane      bool // asked for and not yet there
	posted            []uint64
	copying           CopyStep
	proving, proven   bool   // a self-test is under way, and the last one went well
	reach             uint64 // bytes that the lane has
	started, reported uint64
	executed          map[uint64]bool
	over              bool
}

func (w *walk) ask(ev Event) {
	if w.asked {
		return // the shell lets one request in at a time
	}
	w.asked = true
	w.do(ev)
}

func (w *walk) do(ev Event) {
	ev.Conn = w.m.conn
	for _, a := range w.step(ev) {
		w.action(a)
	}
	w.over = w.over || w.m.State() == Refused || w.m.State() == Failed || errors.Is(w.m.cause, ErrClosed)
}

func (w *walk) action(a Action) {
	if w.over && (a.Kind == ActDial || a.Kind == ActSend || a.Kind == ActLane || a.Kind == ActPost || a.Kind == ActCopy) {
		w.t.Errorf("%q after the end", text([]Action{a}))
	}
	switch a.Kind {
	case ActDial:
		w.dialed = true
	case ActSend:
		w.sent = append(w.sent, a.Frame)
	case ActLane:
		w.lane, w.reach = true, a.Grant.PoolSize
	case ActProve:
		if a.Grant == &w.m.grant || a.From != w.m.grant.PoolSize {
			w.t.Errorf("%d bytes from %d on are tested, the lane has %d", a.Grant.PoolSize, a.From, w.m.grant.PoolSize)
		}
		w.proving, w.proven = true, false
	case ActRegrant:
		if size := w.m.grant.PoolSize; !w.proven && size > w.reach {
			w.t.Errorf("the lane gets %d bytes that nobody has tested", size)
		}
		w.reach = w.m.grant.PoolSize
		if w.m.State() != InSync || a.Grant.PoolSize < w.m.growTo {
			w.t.Errorf("state %v: another region of %d bytes, %d were asked for", w.m.State(), a.Grant.PoolSize, w.m.growTo)
		}
	case ActPost:
		if w.gen == 0 || w.peer.Gen != w.gen || w.peer.Flags&wire.FlagInconsistent != 0 {
			w.t.Errorf("drain %d posted to a copy of generation %d with flags %d", a.Seq, w.peer.Gen, w.peer.Flags)
		}
		w.posted = append(w.posted, a.Seq)
	case ActCopy:
		w.copying = a.Step
	case ActBreak:
		w.sent, w.posted, w.dialed, w.lane, w.copying, w.proving = nil, nil, false, false, 0, false
	case ActDrained:
		w.reported++
		if a.Seq != w.reported {
			w.t.Errorf("drain %d reported in place of %d", a.Seq, w.reported)
		}
		if a.Err == nil && !w.executed[a.Seq] {
			w.t.Errorf("drain %d reported without error, and never executed", a.Seq)
		}
	case ActDone:
		if !w.asked {
			w.t.Error("a request ended twice")
		}
		w.asked = false
	}
}

// turn is one random event that the situation allows.
func (w *walk) turn() {
	w.now += time.Duration(w.rng.Int64N(int64(testTimeout / 40)))
	switch n := w.rng.IntN(40); {
	case n < 8:
		w.user()
	case n < 14 && w.started-w.reported < MaxInFlight:
		w.started++
		w.do(Event{Kind: EvDrain, Seq: w.started})
	case n < 20 && len(w.sent) > 0:
		f := w.sent[0]
		w.sent = w.sent[1:]
		w.target(f)
	case n < 24 && w.dialed:
		w.dialed = false
		w.do(Event{Kind: EvDialed})
	case n < 28 && w.lane:
		w.lane = false
		w.do(Event{Kind: EvLaneUp})
	case n < 34 && len(w.posted) > 0:
		seq := w.posted[0]
		w.posted = w.posted[1:]
		w.executed[seq] = true
		w.do(Event{Kind: EvAnswered, Seq: seq})
	case n < 37 && w.copying != 0:
		step := w.copying
		w.copying = 0
		w.do(Event{Kind: EvCopied, Seq: uint64(step)})
	case n < 37 && w.proving:
		err := error(nil)
		if w.proving, w.proven = false, w.rng.IntN(3) > 0; !w.proven {
			err = errTest
		}
		w.do(Event{Kind: EvProven, Err: err})
	case n == 37 && w.m.link != linkNone && w.rng.IntN(4) == 0:
		w.do(Event{Kind: EvLost, Err: errTest})
	case n == 38 && w.asked && w.rng.IntN(8) == 0:
		w.do(Event{Kind: EvCancel, Err: errTest})
	default:
		w.do(Event{Kind: EvTick})
	}
}

// user asks for what comes next, or for something out of order.
func (w *walk) user() {
	next := []Event{{Kind: EvConnect}, {Kind: EvClaim, Term: 6, Durability: 2}, {Kind: EvFullSync, Seq: 1},
		{Kind: EvAdopt, Gen: 101, History: [8]uint64{100}}, {Kind: EvClean, Flags: wire.FlagClean}, {Kind: EvGrow, Size: w.peer.PoolSize + 4096}}
	w.ask(next[w.rng.IntN(len(next))])
}

// target handles a frame as a real one does, and now and then refuses it.
func (w *walk) target(f wire.Frame) {
	body, status := []byte(nil), wire.StatusOK
	refuse := w.rng.IntN(60) == 0
	switch {
	case refuse && w.rng.IntN(2) == 0:
		body, status = wire.AppendRefusal(nil, "no", nil), wire.StatusBusy
	case refuse:
		body, status = wire.AppendRefusal(nil, "no", nil), wire.StatusCorrupt
	case f.Type == wire.TypeHello:
		body = w.peer.Append(nil)
	case f.Type == wire.TypeClaim:
		var c wire.Claim
		if err := c.Decode(f.Body); err != nil {
			w.t.Error(err)
		}
		w.peer.Term, w.peer.Writer = c.Term, c.Writer
		if w.rng.IntN(8) == 0 { // a flush of the older session failed
			w.peer.Flags |= wire.FlagInconsistent
		}
		g := testGrant()
		body = g.Append(nil)
	case f.Type == wire.TypeGrow:
		var g wire.Grow
		if err := g.Decode(f.Body); err != nil {
			w.t.Error(err)
		}
		w.peer.PoolSize = max(w.peer.PoolSize, g.PoolSize)
		a := wire.Grown{Region: testRegion(w.peer.PoolSize, 2)}
		body = a.Append(nil)
	case f.Type == wire.TypeSetState:
		var s wire.SetState
		if err := s.Decode(f.Body); err != nil {
			w.t.Error(err)
		}
		w.peer.Gen, w.peer.History, w.peer.Flags = s.Gen, s.History, (w.peer.Flags|s.Set)&^s.Clear
		if s.Clear&wire.FlagInconsistent != 0 {
			w.gen = s.Gen
		}
		body = w.peer.Append(nil)
	}
	w.do(Event{Kind: EvFrame, Frame: wire.Frame{Type: f.Type | wire.Answer, ID: f.ID, Status: status, Body: body}})
}
