package replicate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// This file drives the machine: it steps it, executes its actions, and owns the goroutines of a Replica.

const (
	never    = time.Duration(math.MaxInt64)
	reapWait = 200 * time.Millisecond // how long the reaper sleeps in the lane before it looks around
	// copyBit marks the drains of a full copy, which the machine does not count.
	copyBit = 1 << 63
)

func (r *Replica) now() time.Duration { return time.Since(r.begun) }

func (r *Replica) step(ev *Event) {
	r.mu.Lock()
	r.stepLocked(ev)
	r.mu.Unlock()
}

// stepLocked steps the machine with ev and with what executing the actions leads to. Caller holds mu.
func (r *Replica) stepLocked(ev *Event) {
	before := r.machine.State()
	ev.Now = r.now()
	r.actions = r.machine.Step(ev, r.actions[:0])
	r.execute()
	for len(r.events) > 0 {
		next := r.events[0]
		r.events = r.events[:copy(r.events, r.events[1:])]
		next.Now = r.now()
		r.actions = r.machine.Step(&next, r.actions[:0])
		r.execute()
	}
	if after := r.machine.State(); after != before {
		r.logState(before, after)
	}
	if at, ok := r.machine.Next(); ok && at < r.armed {
		r.armed = at
		poke(r.rearm)
	}
	if len(r.reports) > 0 {
		poke(r.wake)
	}
}

func (r *Replica) logState(before, after State) {
	log := r.cfg.Log.WithField("target", r.cfg.Name).WithField("term", r.machine.id.Term)
	if err := r.machine.Err(); err != nil {
		log.WithError(err).Warnf("replica %v, was %v", after, before)
		return
	}
	if after == InSync {
		log = log.WithField("method", r.machine.grant.Method)
	}
	log.Infof("replica %v, was %v", after, before)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *Replica) execute() {
	for i := range r.actions {
		a := &r.actions[i]
		if err := r.do(a); err != nil {
			r.events = append(r.events, Event{Kind: EvLost, Conn: a.Conn, Err: err})
		}
	}
}

// do executes one action. An error means that the connection is lost.
func (r *Replica) do(a *Action) error {
	switch a.Kind {
	case ActDial:
		l := &connection{conn: a.Conn, steps: make(chan CopyStep, 1), copied: make(chan outcome, MaxInFlight), read: make(chan uint32, 1)}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		r.link = l
		r.group.Go(func() { r.reader(l) })
	case ActSend:
		return r.link.ctl.send(a.Frame)
	case ActLane:
		l, grant := r.link, *a.Grant
		r.group.Go(func() { r.connectLane(l, &grant) })
	case ActPost:
		return r.link.lane.start(a.Seq, a.Ranges, a.Seal, inUnits)
	case ActCopy:
		r.link.steps <- a.Step
	case ActProve:
		l, grant, from := r.link, *a.Grant, a.From
		r.group.Go(func() { r.proveGrown(l, &grant, from) })
	case ActRegrant:
		r.link.lane.regrant(a.Grant)
	case ActBreak:
		r.unlink()
	case ActDrained:
		r.reports = append(r.reports, report{a.Seq, a.Err})
	case ActDone:
		r.done <- a.Err
	}
	return nil
}

// unlink ends the connections of the current link. The lane's memory is freed by the reaper, which may be waiting in it.
func (r *Replica) unlink() {
	l := r.link
	r.link = nil
	l.cancel()
	if l.ctl != nil {
		l.ctl.close()
	}
	if l.lane != nil {
		l.lane.disconnect()
		r.dead = append(r.dead, l.lane)
		poke(r.wake)
	}
}

// reader dials the control connection of l and reads its frames until it ends.
func (r *Replica) reader(l *connection) {
	ctl, err := dialControl(l.ctx, r.cfg.Addr)
	if err != nil {
		r.step(&Event{Kind: EvLost, Conn: l.conn, Err: err})
		return
	}
	defer ctl.close()
	r.mu.Lock()
	if r.link == l {
		l.ctl = ctl
		r.stepLocked(&Event{Kind: EvDialed, Conn: l.conn})
	}
	r.mu.Unlock()
	for l.ctx.Err() == nil {
		f, err := ctl.recv()
		if err != nil {
			r.step(&Event{Kind: EvLost, Conn: l.conn, Err: err})
			return
		}
		r.step(&Event{Kind: EvFrame, Conn: l.conn, Frame: f})
	}
}

// connectLane makes the lane of a grant.
func (r *Replica) connectLane(l *connection, g *wire.Grant) {
	ctx, cancel := context.WithTimeout(l.ctx, RequestTimeout)
	ln, err := r.dialLane(ctx, g, drainLane)
	if err == nil {
		err = ln.prove(ctx)
	}
	cancel()
	r.mu.Lock()
	stale := r.link != l
	if err == nil && !stale {
		l.lane = ln
		ln.size = r.size.Load() // it may have grown meanwhile
		r.stepLocked(&Event{Kind: EvLaneUp, Conn: l.conn})
		poke(r.wake)
	} else if err != nil {
		r.stepLocked(&Event{Kind: EvLost, Conn: l.conn, Err: err})
	}
	r.mu.Unlock()
	if ln != nil && (err != nil || stale) {
		ln.close()
	}
}

// dialLane makes and connects a lane of a grant. The one for drains alone uses the target's staging area.
func (r *Replica) dialLane(ctx context.Context, g *wire.Grant, number uint16) (*lane, error) {
	addr, err := laneAddr(g.Fabric, r.cfg.Addr)
	if err != nil {
		return nil, err
	}
	ln, err := newLane(r.fab, g, r.size.Load(), 0, 1)
	if err != nil {
		return nil, err
	}
	if err := ln.connect(ctx, addr, number); err != nil {
		ln.close()
		return nil, err
	}
	return ln, nil
}

// reap waits for completions of the lane and reports drains, until stop; then it reports what is left.
func (r *Replica) reap() {
	var out []report
	for {
		r.mu.Lock()
		ln := r.currentLane()
		dead := r.dead
		r.dead = nil
		out, r.reports = r.reports, out[:0]
		r.mu.Unlock()
		for _, d := range dead {
			d.close()
		}
		for _, d := range out {
			r.report(d)
		}
		if ln == nil {
			select {
			case <-r.wake:
				continue
			case <-r.stop:
				r.mu.Lock()
				over := len(r.reports) == 0 && len(r.dead) == 0
				r.mu.Unlock()
				if over {
					return
				}
				continue
			}
		}
		if ln.wait(reapWait) == nil {
			r.collect(ln)
		}
	}
}

func (r *Replica) report(d report) {
	if d.err != nil {
		d.err = &Error{r.cfg.Name, fmt.Sprintf("drain %d", d.seq), NoOffset, d.err}
	}
	r.cfg.OnDrained(d.seq, d.err)
}

func (r *Replica) currentLane() *lane {
	if r.link == nil {
		return nil
	}
	return r.link.lane
}

// collect turns the completions of ln into events.
func (r *Replica) collect(ln *lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.link
	if l == nil || l.lane != ln {
		return
	}
	var err error
	r.outcomes, err = ln.reap(r.outcomes[:0])
	for i := range r.outcomes {
		r.outcome(l, &r.outcomes[i])
	}
	if err != nil {
		r.stepLocked(&Event{Kind: EvLost, Conn: l.conn, Err: err})
	}
}

func (r *Replica) outcome(l *connection, o *outcome) {
	ev := Event{Kind: EvProgress, Conn: l.conn}
	switch {
	case o.kind == outRead:
		l.read <- o.n
	case o.seq&copyBit != 0 && o.kind == outDrained:
		l.copied <- *o
	case o.kind == outDrained:
		ev = Event{Kind: EvAnswered, Conn: l.conn, Seq: o.seq, Status: o.status, Where: o.where, Term: o.term}
	}
	r.stepLocked(&ev)
}

// tick lets the machine look at the time, after what has come from the lane: the reaper may be held up in OnDrained.
func (r *Replica) tick() {
	r.mu.Lock()
	ln := r.currentLane()
	r.mu.Unlock()
	if ln != nil {
		r.collect(ln)
	}
	r.step(&Event{Kind: EvTick})
}

// clock steps the machine when it wants to be, until stop.
func (r *Replica) clock() {
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.rearm:
		case <-timer.C:
			r.tick()
		}
		r.mu.Lock()
		r.armed = never
		if at, ok := r.machine.Next(); ok {
			r.armed = at
		}
		timer.Reset(r.armed - r.now())
		r.mu.Unlock()
	}
}
