package replicate

import (
	"fmt"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// This file holds the machine's drains: started, posted, answered, reported.

// start takes a drain. While Suspended it waits for the target to come back.
func (m *Machine) start(ev *Event, out []Action) []Action {
	switch {
	case m.state != InSync && m.state != Suspended || m.op == EvClose:
		err := m.cause
		if m.op == EvClose {
			err = ErrClosed
		}
		return append(out, Action{Kind: ActDrained, Seq: ev.Seq, Err: err})
	case ev.Err != nil || m.n == MaxInFlight:
		// A fault of the caller. He hears of it after the drains before this one, which end with the same error.
		err := ev.Err
		if err == nil {
			err = errDrains
		}
		out = m.end(Failed, err, out)
		return append(out, Action{Kind: ActDrained, Seq: ev.Seq, Err: err})
	}
	d := &m.drains[(m.head+m.n)%MaxInFlight]
	*d = drain{ev.Seq, ev.Ranges, ev.Seal, ev.Now}
	m.n++
	if m.state == InSync {
		out = m.post(d, out)
	}
	return out
}

func (m *Machine) post(d *drain, out []Action) []Action {
	return append(out, Action{Kind: ActPost, Conn: m.conn, Seq: d.seq, Ranges: d.ranges, Seal: d.seal})
}

// answered handles the target's answer to the oldest drain.
func (m *Machine) answered(ev *Event, out []Action) []Action {
	if m.state != InSync {
		return out
	}
	m.heardAt = ev.Now
	switch {
	case m.n == 0 || m.drains[m.head].seq != ev.Seq:
		return m.lost(ev.Now, fmt.Errorf("answer to drain %d, which is not the oldest: %w", ev.Seq, wire.ErrCorrupt), out)
	case ev.Status == wire.FlushFenced:
		return m.end(Refused, fmt.Errorf("promoted elsewhere at term %d: %w", ev.Term, wire.StatusFenced), out)
	case ev.Status != wire.FlushOK:
		return m.end(Failed, fmt.Errorf("drain %d at offset %d: %w", ev.Seq, ev.Where, ev.Status), out)
	}
	out = m.report(nil, out)
	if m.n > 0 {
		m.drains[m.head].since = ev.Now // its turn begins: the target works on one after the other
	}
	return out
}

// report gives the oldest drain back to the caller, who owns its ranges again.
func (m *Machine) report(err error, out []Action) []Action {
	d := &m.drains[m.head]
	out = append(out, Action{Kind: ActDrained, Seq: d.seq, Err: err})
	*d = drain{}
	m.head = (m.head + 1) % MaxInFlight
	m.n--
	return out
}
