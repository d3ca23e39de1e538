package replicate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

const testTimeout = 4 * time.Second

var (
	poolUUID = wire.UUID{1}
	myID     = wire.UUID{2}
	peerID   = wire.UUID{3}
	otherID  = wire.UUID{4}
)

func testIdentity() Identity {
	return Identity{PoolUUID: poolUUID, CopyID: myID, Term: 5, Gen: 100, History: [8]uint64{99, 98}, Size: 1 << 20}
}

// peerState is that of a copy in the same generation, last written by this initiator.
func peerState() wire.State {
	return wire.State{Attr: wire.Attr{PoolUUID: poolUUID, CopyID: peerID}, PoolSize: 1 << 20, Term: 5, Writer: myID, Gen: 100,
		History: [8]uint64{99, 98}, Durability: wire.DurabilityMedia}
}

// testRegion is a pool of size bytes in one chunk with this key.
func testRegion(size uint64, rkey uint32) wire.Region {
	return wire.Region{PoolSize: size, ChunkSize: 1 << 30, Chunks: []wire.Chunk{{Base: 1 << 38, RKey: rkey}}}
}

func testGrant() wire.Grant {
	return wire.Grant{Session: 77, Fabric: ":1", Credits: 64, MaxRanges: 256, Method: wire.GPSPM, Region: testRegion(1<<20, 1)}
}

// bench drives a machine by hand.
type bench struct {
	t    testing.TB
	m    *Machine
	now  time.Duration
	peer wire.State // answer to a HELLO under a claim
	last []Action
}

func newBench(t testing.TB, timeout time.Duration) *bench {
	return &bench{t: t, m: NewMachine(testIdentity(), "p", timeout, wire.MethodSet(wire.GPSPM, wire.APM)), now: time.Second}
}

func (b *bench) step(ev Event) []Action {
	ev.Now = b.now
	b.last = b.m.Step(&ev, nil)
	return b.last
}

// conn steps with an event of the current connection.
func (b *bench) conn(ev Event) []Action {
	ev.Conn = b.m.conn
	return b.step(ev)
}

// answer answers the request on the wire.
func (b *bench) answer(status wire.Status, body []byte) []Action {
	return b.conn(Event{Kind: EvFrame, Frame: wire.Frame{Type: b.m.waitFor | wire.Answer, ID: b.m.waitID, Status: status, Body: body}})
}

func (b *bench) refuse(s wire.Status) []Action {
	var st *wire.State
	if s == wire.StatusFenced {
		p := peerState()
		st = &p
	}
	return b.answer(s, wire.AppendRefusal(nil, "no", st))
}

func (b *bench) answerState(st wire.State) []Action { return b.answer(wire.StatusOK, st.Append(nil)) }

func (b *bench) answerGrant() []Action {
	g := testGrant()
	return b.answer(wire.StatusOK, g.Append(nil))
}

func (b *bench) hello(st wire.State) {
	b.peer = st
	b.step(Event{Kind: EvConnect})
	b.conn(Event{Kind: EvDialed})
	b.answerState(st)
}

func (b *bench) claim() {
	b.step(Event{Kind: EvClaim, Term: 6, Durability: 2})
	b.answerGrant()
	b.answerState(b.peer)
	b.conn(Event{Kind: EvLaneUp})
}

func (b *bench) adopt() {
	b.step(Event{Kind: EvAdopt, Gen: 101, History: [8]uint64{100, 99}})
	st := peerState()
	st.Gen = 101
	b.answerState(st)
}

func (b *bench) inSync() {
	b.hello(peerState())
	b.claim()
	b.adopt()
	if b.m.State() != InSync {
		b.t.Fatalf("state %v: %v", b.m.State(), b.m.Err())
	}
}

func (b *bench) drain(seq uint64) []Action { return b.step(Event{Kind: EvDrain, Seq: seq}) }

// back lets a suspended machine reach the target again, up to the lane.
func (b *bench) back() {
	if b.m.link == linkNone {
		b.now = b.m.dialAt
		b.step(Event{Kind: EvTick})
	}
	b.conn(Event{Kind: EvDialed})
	st := peerState()
	st.Gen, st.Term = 101, 6
	b.answerState(st)
	b.answerGrant()
	b.answerState(st)
	b.conn(Event{Kind: EvLaneUp})
}

// text is a short form of actions.
func text(actions []Action) string {
	var out []string
	for _, a := range actions {
		switch a.Kind {
		case ActDial:
			out = append(out, "dial")
		case ActSend:
			out = append(out, a.Frame.Type.String())
		case ActLane:
			out = append(out, "lane")
		case ActPost:
			out = append(out, fmt.Sprintf("post%d", a.Seq))
		case ActCopy:
			out = append(out, fmt.Sprintf("copy%d", a.Step))
		case ActProve:
			out = append(out, fmt.Sprintf("prove%d", a.From))
		case ActRegrant:
			out = append(out, "regrant")
			if len(a.Grant.Chunks) > 0 {
				out[len(out)-1] += fmt.Sprint(a.Grant.Chunks[0].RKey)
			}
		case ActBreak:
			out = append(out, "break")
		case ActDrained:
			out = append(out, fmt.Sprintf("drained%d%s", a.Seq, mark(a.Err)))
		case ActDone:
			out = append(out, "done"+mark(a.Err))
		}
	}
	return strings.Join(out, " ")
}

func mark(err error) string {
	if err != nil {
		return "!"
	}
	return ""
}

func (b *bench) want(state State, actions string) {
	b.t.Helper()
	if b.m.State() != state || text(b.last) != actions {
		b.t.Errorf("state %v, actions %q, error %v; want %v, %q", b.m.State(), text(b.last), b.m.Err(), state, actions)
	}
}

func TestMachine_ExchangeInOrder(t *testing.T) {
	b := newBench(t, testTimeout)
	b.step(Event{Kind: EvConnect})
	b.want(Handshake, "dial")
	b.conn(Event{Kind: EvDialed})
	b.want(Handshake, "HELLO")
	b.answerState(peerState())
	b.want(Handshake, "done")
	b.step(Event{Kind: EvClaim, Term: 6, Durability: 2})
	b.want(Handshake, "CLAIM")
	var c wire.Claim
	if err := c.Decode(b.last[0].Frame.Body); err != nil || c.Term != 6 || c.Writer != myID || c.Gen != 100 || c.Durability != 2 {
		t.Errorf("claim %+v, %v", c, err)
	}
	b.answerGrant()
	b.want(Handshake, "HELLO")
	b.answerState(peerState())
	b.want(Handshake, "lane")
	b.conn(Event{Kind: EvLaneUp})
	b.want(Handshake, "done")
	b.drain(1)
	b.want(Handshake, "drained1!")
	b.step(Event{Kind: EvAdopt, Gen: 101, History: [8]uint64{100}, Peers: []wire.UUID{peerID}})
	b.want(Handshake, "SET_STATE")
	var s wire.SetState
	if err := s.Decode(b.last[0].Frame.Body); err != nil || s.Session != 77 || s.Gen != 101 || s.Set != 0 ||
		s.Clear != wire.FlagInconsistent|wire.FlagClean || len(s.Peers) != 1 {
		t.Errorf("set state %+v, %v", s, err)
	}
	st := peerState()
	st.Gen = 101
	b.answerState(st)
	b.want(InSync, "done")
	b.drain(1)
	b.want(InSync, "post1")
	b.drain(2)
	b.want(InSync, "post2")
	b.conn(Event{Kind: EvAnswered, Seq: 1})
	b.want(InSync, "drained1")
	b.step(Event{Kind: EvClean, Flags: wire.FlagClean})
	b.want(InSync, "done!") // drain 2 is under way
	b.conn(Event{Kind: EvAnswered, Seq: 2})
	b.want(InSync, "drained2")
	b.step(Event{Kind: EvClean, Flags: wire.FlagClean})
	b.want(InSync, "SET_STATE")
	if err := s.Decode(b.last[0].Frame.Body); err != nil || s.Gen != 101 || s.Set != wire.FlagClean || len(s.Peers) != 1 {
		t.Errorf("set state %+v, %v", s, err)
	}
	b.answerState(st)
	b.want(InSync, "done")
	b.step(Event{Kind: EvClose})
	b.want(InSync, "CLOSE")
	b.answer(wire.StatusOK, nil)
	b.want(Detached, "break done")
	b.drain(3)
	b.want(Detached, "drained3!")
}

func TestMachine_FullCopyInOrder(t *testing.T) {
	b := newBench(t, testTimeout)
	st := peerState()
	st.Writer, st.Gen, st.History = wire.UUID{}, 0, [8]uint64{}
	b.hello(st)
	if b.m.need != NeedFullCopy {
		t.Fatalf("need %v", b.m.need)
	}
	b.claim()
	b.step(Event{Kind: EvAdopt, Gen: 101})
	b.want(Handshake, "done!")
	b.step(Event{Kind: EvFullSync, Seq: 4242})
	b.want(FullSync, "SET_STATE")
	var s wire.SetState
	if err := s.Decode(b.last[0].Frame.Body); err != nil || s.Set != wire.FlagInconsistent || s.SyncGen != 100 || s.SyncID != 4242 || s.Gen != 0 {
		t.Errorf("mark %+v, %v", s, err)
	}
	st.Flags = wire.FlagInconsistent
	b.answerState(st)
	b.want(FullSync, "copy1")
	b.conn(Event{Kind: EvCopied, Seq: 1})
	b.want(FullSync, "copy2")
	b.conn(Event{Kind: EvCopied, Seq: 2})
	b.want(FullSync, "copy3")
	b.conn(Event{Kind: EvCopied, Seq: 3})
	b.want(FullSync, "done")
	b.step(Event{Kind: EvAdopt, Gen: 101})
	b.want(FullSync, "SET_STATE")
	b.answerState(st)
	b.want(Failed, "break done!") // the mark is still there
}

func TestJudge(t *testing.T) {
	base := peerState()
	for name, c := range map[string]struct {
		change func(*wire.State)
		need   Need
		err    error
	}{
		"same":                  {func(*wire.State) {}, NeedNothing, nil},
		"foreign":               {func(s *wire.State) { s.Attr.PoolUUID = wire.UUID{9} }, 0, wire.StatusForeign},
		"promoted":              {func(s *wire.State) { s.Term, s.Writer = 6, peerID }, 0, wire.StatusFenced},
		"promoted, also broken": {func(s *wire.State) { s.Term, s.Writer, s.Flags = 6, peerID, wire.FlagInconsistent }, 0, wire.StatusFenced},
		"former primary":        {func(s *wire.State) { s.Term, s.Writer, s.Gen = 9, peerID, 99 }, NeedFullCopy, nil},
		"older, claimed anew":   {func(s *wire.State) { s.Term, s.Writer, s.Gen = 9, otherID, 99 }, 0, wire.StatusFenced},
		"same term, another":    {func(s *wire.State) { s.Writer = otherID }, 0, wire.StatusFenced},
		"older term, another":   {func(s *wire.State) { s.Term, s.Writer, s.Gen = 4, otherID, 99 }, NeedFullCopy, nil},
		"my own higher term":    {func(s *wire.State) { s.Term = 9 }, NeedNothing, nil},
		"too small":             {func(s *wire.State) { s.PoolSize-- }, 0, wire.StatusTooSmall},
		"larger":                {func(s *wire.State) { s.PoolSize++ }, NeedNothing, nil},
		"never written":         {func(s *wire.State) { s.Writer, s.Gen, s.Term = wire.UUID{}, 0, 0 }, NeedFullCopy, nil},
		"claimed, never copied": {func(s *wire.State) { s.Gen = 0 }, NeedFullCopy, nil},
		"inconsistent":          {func(s *wire.State) { s.Flags = wire.FlagInconsistent }, NeedFullCopy, nil},
		"in my history":         {func(s *wire.State) { s.Gen = 98 }, NeedFullCopy, nil},
		"I am outdated":         {func(s *wire.State) { s.Gen, s.History = 200, [8]uint64{150, 100} }, 0, ErrOutdated},
		"split brain":           {func(s *wire.State) { s.Gen, s.History = 200, [8]uint64{99, 98} }, 0, wire.StatusSplitBrain},
		"nothing in common":     {func(s *wire.State) { s.Gen, s.History = 200, [8]uint64{} }, 0, wire.StatusSplitBrain},
	} {
		st, id := base, testIdentity()
		c.change(&st)
		need, err := judge(&id, &st)
		if need != c.need || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: need %v, error %v; want %v, %v", name, need, err, c.need, c.err)
		}
		b := newBench(t, testTimeout)
		b.hello(st)
		if c.err == nil {
			b.want(Handshake, "done")
		} else {
			b.want(Refused, "break done!")
			b.step(Event{Kind: EvClaim, Term: 9})
			b.want(Refused, "done!")
		}
	}
}

func TestMachine_LossAndReturn(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	for seq := range uint64(3) {
		b.drain(seq + 1)
	}
	b.conn(Event{Kind: EvAnswered, Seq: 1})
	old := b.m.conn
	b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
	b.want(Suspended, "break dial")
	b.step(Event{Kind: EvAnswered, Conn: old, Seq: 2})
	b.want(Suspended, "") // an answer of the old connection
	b.drain(4)
	b.want(Suspended, "")
	b.conn(Event{Kind: EvLost, Err: errors.New("refused")})
	b.want(Suspended, "break")
	b.now += firstBackoff
	b.step(Event{Kind: EvTick})
	b.want(Suspended, "dial")
	b.back()
	b.want(InSync, "post2 post3 post4")
	for seq := uint64(2); seq <= 4; seq++ {
		b.conn(Event{Kind: EvAnswered, Seq: seq})
		b.want(InSync, fmt.Sprintf("drained%d", seq))
	}
}

func TestMachine_ReturnClaimsTheSameTerm(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
	b.conn(Event{Kind: EvDialed})
	st := peerState()
	st.Gen, st.Term = 101, 6
	b.answerState(st)
	b.want(Suspended, "CLAIM")
	var c wire.Claim
	if err := c.Decode(b.last[0].Frame.Body); err != nil || c.Term != 6 || c.Gen != 101 || c.Durability != 2 {
		t.Errorf("claim %+v, %v", c, err)
	}
}

func TestMachine_ReturnOfAnotherState(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*wire.State)
		state  State
	}{
		"promoted":     {func(s *wire.State) { s.Term, s.Writer = 7, peerID }, Refused},
		"another gen":  {func(s *wire.State) { s.Gen = 99 }, Failed},
		"inconsistent": {func(s *wire.State) { s.Flags = wire.FlagInconsistent }, Failed},
		"made anew":    {func(s *wire.State) { s.Writer, s.Gen = wire.UUID{}, 0 }, Failed},
		"other pool":   {func(s *wire.State) { s.Attr.PoolUUID = wire.UUID{9} }, Refused},
	} {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
		b.conn(Event{Kind: EvDialed})
		st := peerState()
		st.Gen, st.Term = 101, 6
		c.change(&st)
		b.answerState(st)
		if b.m.State() != c.state || text(b.last) != "break drained1!" {
			t.Errorf("%s: %v, %q", name, b.m.State(), text(b.last))
		}
	}
}

// The claim ends the older session, and only then does the target find out that a flush of it failed.
func TestMachine_StateUnderTheClaimCounts(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	b.drain(1)
	b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
	b.conn(Event{Kind: EvDialed})
	st := peerState()
	st.Gen, st.Term = 101, 6
	b.answerState(st)
	b.answerGrant()
	st.Flags = wire.FlagInconsistent
	b.answerState(st)
	b.want(Failed, "break drained1!")

	b = newBench(t, testTimeout)
	b.hello(peerState())
	b.peer.Flags = wire.FlagInconsistent
	b.claim()
	b.want(Handshake, "done")
	if b.m.need != NeedFullCopy {
		t.Errorf("need %v", b.m.need)
	}
}

func TestMachine_RefusalsOfClaim(t *testing.T) {
	for s := wire.StatusVersion; s <= wire.StatusPoolSet; s++ {
		first := newBench(t, testTimeout)
		first.hello(peerState())
		first.step(Event{Kind: EvClaim, Term: 6})
		first.refuse(s)
		want := Refused
		if !isSticky(s) {
			want = Failed
		}
		first.want(want, "break done!")
		again := newBench(t, testTimeout)
		again.inSync()
		again.conn(Event{Kind: EvLost, Err: errors.New("reset")})
		again.conn(Event{Kind: EvDialed})
		again.refuse(s)
		if isSticky(s) {
			again.want(Refused, "break")
		} else {
			again.want(Suspended, "break") // worth another try
		}
	}
}

func TestMachine_Deadlines(t *testing.T) {
	t.Run("from the loss", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
		lost := b.now
		b.conn(Event{Kind: EvLost, Err: errors.New("refused")})
		b.now = lost + testTimeout - 1
		b.step(Event{Kind: EvTick})
		b.want(Suspended, "dial")
		b.now++
		b.step(Event{Kind: EvTick})
		b.want(Failed, "break")
		b.drain(1)
		b.want(Failed, "drained1!")
		if !errors.Is(b.m.Err(), ErrTimeout) || !strings.Contains(b.m.Err().Error(), "refused") {
			t.Errorf("error %v", b.m.Err())
		}
	})
	t.Run("not waited for without the device", func(t *testing.T) {
		gone := fmt.Errorf("lane: %w", verbs.ErrDeviceGone)
		for _, first := range []error{gone, errors.New("reset")} { // the device may be missed only at the next try
			b := newBench(t, testTimeout)
			b.inSync()
			b.drain(1)
			b.want(InSync, "post1")
			b.conn(Event{Kind: EvLost, Err: first})
			if !errors.Is(first, verbs.ErrDeviceGone) {
				b.want(Suspended, "break dial")
				b.conn(Event{Kind: EvLost, Err: gone})
			}
			b.want(Failed, "break drained1!")
			if !errors.Is(b.m.Err(), ErrDevice) || !errors.Is(b.m.Err(), verbs.ErrDeviceGone) {
				t.Errorf("error %v", b.m.Err())
			}
		}
	})
	t.Run("from the oldest drain", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		posted := b.now
		b.drain(1)
		b.now += testTimeout / 2
		b.drain(2)
		b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
		b.now = posted + testTimeout
		b.step(Event{Kind: EvTick})
		b.want(Failed, "break drained1! drained2!")
	})
	t.Run("an answer to a ping does not help a drain", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		end := b.now + testTimeout
		for b.now < end-pingInterval {
			b.now += pingInterval
			b.step(Event{Kind: EvTick})
			b.want(InSync, "PING")
			b.conn(Event{Kind: EvFrame, Frame: wire.Frame{Type: wire.TypePing | wire.Answer, ID: b.m.pingID}})
		}
		b.now = end
		b.step(Event{Kind: EvTick})
		b.want(Failed, "break drained1!")
	})
	t.Run("progress does", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		b.now += testTimeout - 1
		b.conn(Event{Kind: EvProgress, Seq: 1})
		b.now += testTimeout - 1
		b.conn(Event{Kind: EvAnswered, Seq: 1})
		b.want(InSync, "drained1")
	})
	t.Run("a drain behind a long one has its own time", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		b.drain(2)
		for range 4 {
			b.now += testTimeout / 2
			b.conn(Event{Kind: EvProgress, Seq: 1})
			b.step(Event{Kind: EvTick})
		}
		b.conn(Event{Kind: EvAnswered, Seq: 1})
		b.step(Event{Kind: EvTick})
		if b.m.State() != InSync {
			t.Fatalf("state %v: %v", b.m.State(), b.m.Err())
		}
		b.now += testTimeout
		b.step(Event{Kind: EvTick})
		b.want(Failed, "break drained2!")
	})
	t.Run("at once", func(t *testing.T) {
		b := newBench(t, 0)
		b.inSync()
		b.drain(1)
		b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
		b.want(Failed, "break drained1!")
	})
	t.Run("silence", func(t *testing.T) {
		b := newBench(t, testTimeout)
		b.inSync()
		b.now += pingInterval
		b.step(Event{Kind: EvTick})
		b.want(InSync, "PING")
		b.now += testTimeout / 2
		b.step(Event{Kind: EvTick})
		b.want(Suspended, "break dial")
	})
	t.Run("dial, HELLO, CLAIM, HELLO, lane", func(t *testing.T) {
		for n := range 5 {
			b := newBench(t, testTimeout)
			b.step(Event{Kind: EvConnect})
			if n > 0 {
				b.conn(Event{Kind: EvDialed})
			}
			if n > 1 {
				b.answerState(peerState())
				b.step(Event{Kind: EvClaim, Term: 6})
			}
			if n > 2 {
				b.answerGrant()
			}
			if n > 3 {
				b.answerState(peerState())
			}
			b.now += RequestTimeout
			b.step(Event{Kind: EvTick})
			b.want(Failed, "break done!")
		}
	})
}

func TestMachine_TooManyDrains(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	for seq := range uint64(MaxInFlight) {
		b.drain(seq)
	}
	b.drain(99)
	b.want(Failed, "break drained0! drained1! drained2! drained3! drained4! drained5! drained6! drained7! drained99!")
}

func TestMachine_AnswersThatFail(t *testing.T) {
	for status, want := range map[wire.FlushStatus]State{wire.FlushBadRange: Failed, wire.FlushIO: Failed,
		wire.FlushFenced: Refused, wire.FlushBadRequest: Failed, 77: Failed} {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		b.drain(2)
		b.conn(Event{Kind: EvAnswered, Seq: 1, Status: status, Where: 8192, Term: 9})
		b.want(want, "break drained1! drained2!")
	}
	b := newBench(t, testTimeout)
	b.inSync()
	b.drain(1)
	b.drain(2)
	b.conn(Event{Kind: EvAnswered, Seq: 2})
	b.want(Suspended, "break dial") // out of order: the lane is not to be trusted
}

func TestMachine_FencedNotice(t *testing.T) {
	notice := wire.Fenced{Term: 9, Text: "promoted on b"}
	b := newBench(t, testTimeout)
	b.inSync()
	b.drain(1)
	b.conn(Event{Kind: EvFrame, Frame: wire.Frame{Type: wire.TypeFenced, Body: notice.Append(nil)}})
	b.want(Refused, "break drained1!")
	if !errors.Is(b.m.Err(), wire.StatusFenced) || !strings.Contains(b.m.Err().Error(), "promoted elsewhere at term 9") {
		t.Errorf("error %v", b.m.Err())
	}
}

func TestMachine_StepAllocatesNothing(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	ranges, out := []pmem.Range{{Off: 4096, Len: 64}}, make([]Action, 0, 16)
	seq := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		seq++
		b.now += time.Microsecond
		out = b.m.Step(&Event{Kind: EvDrain, Now: b.now, Seq: seq, Ranges: ranges}, out[:0])
		b.m.Next()
		out = b.m.Step(&Event{Kind: EvAnswered, Now: b.now, Conn: b.m.conn, Seq: seq}, out[:0])
		out = b.m.Step(&Event{Kind: EvTick, Now: b.now}, out[:0])
		b.m.Next()
	})
	if n != 0 || b.m.n != 0 {
		t.Errorf("%v allocations per drain, %d drains left", n, b.m.n)
	}
}

// The device of a target may have to pin all of a huge pool before it can grant it.
func TestMachine_ClaimOfHugePoolTakesLonger(t *testing.T) {
	b := newBench(t, testTimeout)
	b.m.id.Size = 100 << 30
	peer := peerState()
	peer.PoolSize = b.m.id.Size
	b.hello(peer)
	b.step(Event{Kind: EvClaim, Term: 6})
	asked := b.now
	b.now = asked + RequestTimeout + 100*registerTime - 1
	b.step(Event{Kind: EvTick})
	if at, ok := b.m.Next(); b.m.State() != Handshake || !ok || at != asked+RequestTimeout+100*registerTime {
		t.Errorf("state %v, next look at %v", b.m.State(), at)
	}
	b.now++
	b.step(Event{Kind: EvTick})
	b.want(Failed, "break done!")
}
