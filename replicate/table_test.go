package replicate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

var errTest = errors.New("test")

// situations are the machine's states, and the places inside them that differ.
var situations = []struct {
	name string
	set  func(*bench)
}{
	{"Detached", func(b *bench) {}},
	{"Handshake/dialing", func(b *bench) { b.step(Event{Kind: EvConnect}) }},
	{"Handshake/state", func(b *bench) { b.hello(peerState()) }},
	{"Handshake/claimed", func(b *bench) { b.hello(peerState()); b.claim() }},
	{"FullSync", func(b *bench) {
		b.hello(peerState())
		b.claim()
		b.step(Event{Kind: EvFullSync, Seq: 1})
		b.answerState(peerState())
	}},
	{"InSync", func(b *bench) { b.inSync() }},
	{"InSync/drain", func(b *bench) { b.inSync(); b.drain(1) }},
	{"Suspended/dialing", func(b *bench) { b.inSync(); b.drain(1); b.conn(Event{Kind: EvLost, Err: errTest}) }},
	{"Suspended/waiting", func(b *bench) {
		b.inSync()
		b.drain(1)
		b.conn(Event{Kind: EvLost, Err: errTest})
		b.conn(Event{Kind: EvLost, Err: errTest})
	}},
	{"Refused", func(b *bench) {
		b.hello(peerState())
		b.step(Event{Kind: EvClaim, Term: 6})
		b.refuse(wire.StatusForeign)
	}},
	{"Failed", func(b *bench) { b.hello(peerState()); b.conn(Event{Kind: EvLost, Err: errTest}) }},
	{"Closed", func(b *bench) { b.inSync(); b.step(Event{Kind: EvClose}); b.answer(wire.StatusOK, nil) }},
}

var fencedFrame = wire.Frame{Type: wire.TypeFenced, Body: (&wire.Fenced{Term: 9, Text: "x"}).Append(nil)}

// happenings are one event of each kind, of the current connection.
var happenings = []struct {
	name string
	ev   Event
}{
	{"Connect", Event{Kind: EvConnect}},
	{"Claim", Event{Kind: EvClaim, Term: 7}},
	{"FullSync", Event{Kind: EvFullSync}},
	{"Adopt", Event{Kind: EvAdopt, Gen: 102}},
	{"Clean", Event{Kind: EvClean}},
	{"Drain", Event{Kind: EvDrain, Seq: 2}},
	{"Close", Event{Kind: EvClose}},
	{"Cancel", Event{Kind: EvCancel, Err: errTest}},
	{"Fenced", Event{Kind: EvFrame, Frame: fencedFrame}},
	{"Frame", Event{Kind: EvFrame, Frame: wire.Frame{Type: wire.TypeHello | wire.Answer, ID: 999}}},
	{"Lost", Event{Kind: EvLost, Err: errTest}},
	{"Answered", Event{Kind: EvAnswered, Seq: 1}},
	{"Copied!", Event{Kind: EvCopied, Seq: 1, Err: errTest}},
	{"Tick", Event{Kind: EvTick}},
}

// table gives for each situation and event the state after it and the actions; a missing event changes and does nothing.
var table = map[string]string{
	"Detached": `
		Connect: Handshake dial
		Claim: Detached done!
		FullSync: Detached done!
		Adopt: Detached done!
		Clean: Detached done!
		Drain: Detached drained2!
		Close: Detached done
	`,
	"Handshake/dialing": `
		Connect: Handshake done!
		Claim: Handshake done!
		FullSync: Handshake done!
		Adopt: Handshake done!
		Clean: Handshake done!
		Drain: Handshake drained2!
		Close: Detached done! break done
		Cancel: Failed break done!
		Fenced: Refused break done!
		Frame: Failed break done!
		Lost: Failed break done!
		Copied!: Failed break done!
	`,
	"Handshake/state": `
		Connect: Handshake done!
		Claim: Handshake CLAIM
		FullSync: Handshake done!
		Adopt: Handshake done!
		Clean: Handshake done!
		Drain: Handshake drained2!
		Close: Detached break done
		Fenced: Refused break
		Frame: Failed break
		Lost: Failed break
		Copied!: Failed break
	`,
	"Handshake/claimed": `
		Connect: Handshake done!
		Claim: Handshake done!
		FullSync: FullSync SET_STATE
		Adopt: Handshake SET_STATE
		Clean: Handshake done!
		Drain: Handshake drained2!
		Close: Handshake CLOSE
		Fenced: Refused break
		Frame: Failed break
		Lost: Failed break
		Copied!: Failed break
	`,
	"FullSync": `
		Connect: FullSync done!
		Claim: FullSync done!
		FullSync: FullSync done!
		Adopt: FullSync done!
		Clean: FullSync done!
		Drain: FullSync drained2!
		Close: FullSync done! CLOSE
		Cancel: Failed break done!
		Fenced: Refused break done!
		Frame: Failed break done!
		Lost: Failed break done!
		Copied!: Failed break done!
	`,
	"InSync": `
		Connect: InSync done!
		Claim: InSync done!
		FullSync: InSync done!
		Adopt: InSync done!
		Clean: InSync SET_STATE
		Drain: InSync post2
		Close: InSync CLOSE
		Fenced: Refused break
		Frame: Suspended break dial
		Lost: Suspended break dial
		Answered: Suspended break dial
		Copied!: Suspended break dial
	`,
	"InSync/drain": `
		Connect: InSync done!
		Claim: InSync done!
		FullSync: InSync done!
		Adopt: InSync done!
		Clean: InSync done!
		Drain: InSync post2
		Close: InSync drained1! CLOSE
		Fenced: Refused break drained1!
		Frame: Suspended break dial
		Lost: Suspended break dial
		Answered: InSync drained1
		Copied!: Suspended break dial
	`,
	"Suspended/dialing": `
		Connect: Suspended done!
		Claim: Suspended done!
		FullSync: Suspended done!
		Adopt: Suspended done!
		Clean: Suspended done!
		Close: Detached break drained1! done
		Fenced: Refused break drained1!
		Frame: Suspended break
		Lost: Suspended break
		Copied!: Suspended break
	`,
	"Suspended/waiting": `
		Connect: Suspended done!
		Claim: Suspended done!
		FullSync: Suspended done!
		Adopt: Suspended done!
		Clean: Suspended done!
		Close: Detached drained1! done
	`,
	"Refused": `
		Connect: Refused done!
		Claim: Refused done!
		FullSync: Refused done!
		Adopt: Refused done!
		Clean: Refused done!
		Drain: Refused drained2!
		Close: Detached done
	`,
	"Failed": `
		Connect: Failed done!
		Claim: Failed done!
		FullSync: Failed done!
		Adopt: Failed done!
		Clean: Failed done!
		Drain: Failed drained2!
		Close: Detached done
	`,
	"Closed": `
		Connect: Detached done!
		Claim: Detached done!
		FullSync: Detached done!
		Adopt: Detached done!
		Clean: Detached done!
		Drain: Detached drained2!
		Close: Detached done
	`,
}

func TestMachine_EveryStateAndEvent(t *testing.T) {
	for _, s := range situations {
		expect := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSpace(table[s.name]), "\n") {
			if event, rest, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				expect[event] = rest
			}
		}
		for _, h := range happenings {
			if h.ev.Kind >= EvDialed && h.ev.Kind < EvTick && (s.name == "Detached" || s.name == "Refused" || s.name == "Failed" || s.name == "Closed" || s.name == "Suspended/waiting") {
				continue // there is no connection that could report it
			}
			b := newBench(t, testTimeout)
			s.set(b)
			before := b.m.State()
			b.conn(h.ev)
			got := fmt.Sprintf("%v %s", b.m.State(), text(b.last))
			want, ok := expect[h.name]
			if !ok {
				want = fmt.Sprintf("%v ", before)
			}
			if got != want {
				t.Errorf("%s, %s:\n got %q\nwant %q", s.name, h.name, got, want)
			}
		}
	}
}
