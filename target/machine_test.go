package target

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

func id(b byte) (u wire.UUID) {
	for i := range u {
		u[i] = b
	}
	return u
}

// The copy that the tests of the machine are about, and its claimants.
var (
	poolID, copyID   = id(0xaa), id(0xc0)
	writerA, writerB = id(0xa), id(0xb)
)

func newReplica() Replica {
	return Replica{State: wire.State{
		Attr:     wire.Attr{PoolUUID: poolID, CopyID: copyID},
		PoolSize: 1 << 20, Term: 5, Writer: writerA, Gen: 50, History: [8]uint64{49, 48}, Durability: wire.DurabilityMedia,
	}}
}

func claimOf(writer wire.UUID, term, gen uint64, history ...uint64) *wire.Claim {
	c := &wire.Claim{PoolUUID: poolID, Writer: writer, Term: term, Gen: gen, Lanes: 1, Durability: wire.DurabilityMedia, Methods: wire.AllMethods, Pool: "p"}
	copy(c.History[:], history)
	return c
}

func TestCheckClaim(t *testing.T) {
	with := func(change func(*Replica)) Replica { r := newReplica(); change(&r); return r }
	self := with(func(r *Replica) { r.Writer = copyID })
	for _, c := range []struct {
		name  string
		rep   Replica
		claim *wire.Claim
		want  wire.Status
		text  string
	}{
		{"same writer, same term", newReplica(), claimOf(writerA, 5, 50), wire.StatusOK, ""},
		{"same writer, higher term", newReplica(), claimOf(writerA, 6, 50), wire.StatusOK, ""},
		{"other writer, higher term", newReplica(), claimOf(writerB, 6, 50), wire.StatusOK, ""},
		{"later generation", newReplica(), claimOf(writerA, 6, 51, 50, 49), wire.StatusOK, ""},
		{"oldest generation of the history", newReplica(), claimOf(writerA, 6, 58, 57, 56, 55, 54, 53, 52, 51, 50), wire.StatusOK, ""},
		{"never written", with(func(r *Replica) { r.Writer, r.Term, r.Gen = wire.UUID{}, 0, 0 }), claimOf(writerA, 1, 7), wire.StatusOK, ""},
		{"never written, term 0", with(func(r *Replica) { r.Writer, r.Term, r.Gen = wire.UUID{}, 0, 0 }), claimOf(writerA, 0, 7), wire.StatusOK, ""},
		{"other pool", newReplica(), &wire.Claim{PoolUUID: id(1), Writer: writerA, Term: 9, Lanes: 1}, wire.StatusForeign, "belongs to pool"},
		{"no pool named", newReplica(), &wire.Claim{Writer: writerA, Term: 9, Lanes: 1}, wire.StatusForeign, "belongs to pool"},
		{"no writer", newReplica(), claimOf(wire.UUID{}, 9, 50), wire.StatusBadRequest, "copy id"},
		{"the copy itself", newReplica(), claimOf(copyID, 9, 50), wire.StatusBadRequest, "copy id"},
		{"no lane", newReplica(), &wire.Claim{PoolUUID: poolID, Writer: writerA, Term: 5, Gen: 50}, wire.StatusBadRequest, "0 lanes"},
		{"too many lanes", newReplica(), &wire.Claim{PoolUUID: poolID, Writer: writerA, Term: 5, Gen: 50, Lanes: 1 << 31}, wire.StatusBadRequest, "lanes"},
		{"lower term", newReplica(), claimOf(writerA, 4, 50), wire.StatusFenced, "holds term 5"},
		{"same term, other writer", newReplica(), claimOf(writerB, 5, 50), wire.StatusFenced, "holds term 5"},
		{"promoted here", self, claimOf(writerA, 5, 50), wire.StatusFenced, "promoted elsewhere at term 5"},
		{"promoted here, lower term", self, claimOf(writerA, 3, 50), wire.StatusFenced, "promoted elsewhere at term 5"},
		{"back as a replica", self, claimOf(writerA, 6, 51, 50), wire.StatusOK, ""},
		{"promoted here, claimant went on alone", with(func(r *Replica) { r.Writer, r.Gen, r.History[0] = copyID, 99, 50 }),
			claimOf(writerA, 6, 51, 50), wire.StatusSplitBrain, "neither"},
		{"claimant is older", newReplica(), claimOf(writerA, 6, 49, 48), wire.StatusSplitBrain, "newer"},
		{"no relation", newReplica(), claimOf(writerA, 6, 7, 8), wire.StatusSplitBrain, "neither"},
		{"claimed, but never filled", with(func(r *Replica) { r.Gen = 0 }), claimOf(writerB, 6, 7), wire.StatusOK, ""},
		{"full copy from the claimant did not finish", with(func(r *Replica) { r.Gen, r.Flags, r.SyncGen = 9, wire.FlagInconsistent, 70 }),
			claimOf(writerA, 6, 71, 70), wire.StatusOK, ""},
		{"full copy from another line did not finish", with(func(r *Replica) { r.Gen, r.Flags, r.SyncGen = 9, wire.FlagInconsistent, 70 }),
			claimOf(writerA, 6, 7), wire.StatusSplitBrain, "neither"},
		{"full copy of an unknown source", with(func(r *Replica) { r.Gen, r.Flags, r.SyncGen = 9, wire.FlagInconsistent, 0 }),
			claimOf(writerA, 6, 7), wire.StatusSplitBrain, "neither"},
		{"zero generation is no ancestor", with(func(r *Replica) { r.History = [8]uint64{} }), claimOf(writerA, 6, 0), wire.StatusSplitBrain, "neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref := checkClaim(&c.rep, c.claim)
			switch {
			case ref == nil && c.want == wire.StatusOK:
			case ref == nil || ref.Status != c.want || !strings.Contains(ref.Text, c.text):
				t.Errorf("got %v, want status %d and %q", ref, c.want, c.text)
			case (ref.State != nil) != (c.want == wire.StatusFenced):
				t.Errorf("state %v with status %d", ref.State, c.want)
			}
		})
	}
}

func TestCheckDurability(t *testing.T) {
	for _, c := range []struct {
		have, asked uint32
		least       config.Durability
		want        wire.Status
		text        string
	}{
		{wire.DurabilityMedia, wire.DurabilityMedia, config.Media, wire.StatusOK, ""},
		{wire.DurabilityMedia, wire.DurabilityMemory, config.Media, wire.StatusOK, ""},
		{wire.DurabilityMemory, wire.DurabilityMemory, config.Memory, wire.StatusOK, ""},
		{wire.DurabilityMemory, wire.DurabilityMemory, config.Media, wire.StatusDurability, "target.toml"},
		{wire.DurabilityMemory, wire.DurabilityMedia, config.Memory, wire.StatusDurability, "pmemfs.toml"},
		{wire.DurabilityMedia, 0, config.Media, wire.StatusBadRequest, "not known"},
		{wire.DurabilityMedia, 3, config.Media, wire.StatusBadRequest, "not known"},
	} {
		ref := checkDurability(&Replica{State: wire.State{Durability: c.have}}, &wire.Claim{Durability: c.asked}, c.least)
		if ref == nil {
			ref = &Refusal{}
		}
		if ref.Status != c.want || !strings.Contains(ref.Text, c.text) {
			t.Errorf("have %d, asked %d, least %v: %v", c.have, c.asked, c.least, ref)
		}
	}
}

func TestPromoted(t *testing.T) {
	r := newReplica()
	r.Flags, r.SyncGen, r.SyncID, r.Peers = wire.FlagInconsistent|wire.FlagClean|wire.FlagMemory, 1, 2, []wire.UUID{writerA}
	r.History = [8]uint64{49, 48, 47, 46, 45, 44, 43, 42}
	p := promoted(r, 51)
	if p.Term != 6 || p.Writer != copyID || p.Gen != 51 || p.History != [8]uint64{50, 49, 48, 47, 46, 45, 44, 43} ||
		p.Flags != wire.FlagMemory || p.SyncGen != 0 || p.SyncID != 0 || p.Peers != nil {
		t.Errorf("got %+v", p)
	}
	if r.History[0] != 49 {
		t.Error("the old state was changed")
	}
}

// world plays the shell: it carries out actions on a model of a pool, in which any of them may fail, and checks what must
// be true at each of them.
type world struct {
	t       *rapid.T
	m       *Machine
	disk    Replica // durable
	locked  bool    // by another process
	opened  bool
	synced  bool // nothing of earlier writers is in a cache only
	granted uint64
	pending uint64 // term of the grant, which nobody has been told of yet; 0: none is pending

	claiming bool   // the request under way is a claim
	holder   ConnID // connection that got the grant and may use it
	failed   bool   // the session lost bytes
	last     uint64 // session numbers
	answers  map[ConnID]int
	status   wire.Status // of the last answer
	report   *Report

	persistFailed bool // so the mark of a failed session may be missing
}

func (w *world) fails(what string) bool { return rapid.IntRange(0, 9).Draw(w.t, what+" fails") == 9 }

func (w *world) step(ev Event) {
	for ev != nil {
		acts := w.m.Step(ev, nil)
		ev = nil
		for i, a := range acts {
			if ev = w.perform(a); ev != nil && i != len(acts)-1 {
				w.t.Fatalf("%T asks for a Done but is not the last of its list", a)
			}
		}
	}
	if !w.opened && w.granted != 0 {
		w.t.Fatal("a grant of a closed pool")
	}
	if w.opened && w.granted == 0 {
		w.t.Fatal("the pool is open without a session")
	}
}

func (w *world) must(ok bool, text string) {
	if !ok {
		w.t.Fatal(text)
	}
}

func (w *world) perform(a Action) Event {
	broken := Done{Err: fmt.Errorf("made to fail")}
	switch a := a.(type) {
	case Open:
		w.must(!w.opened, "opened twice")
		if w.locked {
			return Done{Err: refuse(wire.StatusBusy, "process 1 holds it")}
		}
		if w.fails("open") {
			return broken
		}
		w.opened, w.synced = true, true
		return Done{Replica: w.disk}
	case Inspect:
		w.must(!w.opened, "inspected while open")
		return Done{Replica: w.disk}
	case Create, Remove:
		w.must(!w.opened, "created or removed while open")
		return Done{Err: refuse(wire.StatusExists, "made to fail")}
	case Persist:
		return w.persist(a.Replica)
	case Sync:
		w.must(w.opened && w.granted == 0, "synced while somebody may write")
		if w.fails("sync") {
			return broken
		}
		w.synced = true
		return Done{}
	case Grow:
		w.must(w.opened && w.granted != 0, "grown without a session")
		if w.fails("grow") {
			return broken
		}
		w.disk.PoolSize = max(w.disk.PoolSize, a.Size)
		return Done{Grown: wire.Grown{Region: wire.Region{PoolSize: w.disk.PoolSize}}}
	case Choose:
		w.must(w.opened, "chosen while closed")
		if w.fails("choose") {
			return broken
		}
		return Done{}
	case Register:
		w.must(w.opened && w.granted == 0, "registered while an older grant stands")
		if w.fails("register") {
			return broken
		}
		w.last++
		w.granted, w.pending, w.failed = w.last, a.Term, false
		return Done{Grant: wire.Grant{Session: w.last}}
	case End:
		w.must(w.granted != 0, "ended without a session")
		w.holder = 0
		if w.fails("end") {
			return broken
		}
		w.granted, w.pending = 0, 0
		return Done{Failed: w.failed}
	case Answer:
		if w.claiming && a.Status == wire.StatusOK {
			w.must(w.disk.Term == w.pending && w.disk.Writer != copyID, "granted before the term is durable")
			w.pending, w.synced = 0, false
		}
		w.answers[a.Conn]++
		w.status = a.Status
	case Notice:
		w.must(a.Conn == w.holder, "notice to a connection without a session")
		w.must(a.Fenced.Term >= w.disk.Term, "fenced by an older term")
	case Release:
		w.must(w.opened && w.granted == 0, "closed while somebody may write")
		w.must(!w.failed || w.disk.Flags&wire.FlagInconsistent != 0 || w.disk.Writer == copyID || w.persistFailed, "lost bytes are forgotten")
		w.opened, w.failed = false, false
	case Report:
		w.report = &a
	default:
		w.t.Fatalf("unknown action %T", a)
	}
	return nil
}

func (w *world) persist(r Replica) Event {
	w.must(w.opened, "persisted while closed")
	w.must(r.Term >= w.disk.Term, "the term went back")
	w.must(r.Term > w.disk.Term || r.Writer == w.disk.Writer || w.disk.Writer == (wire.UUID{}), "a term changed its writer")
	if r.Writer != w.disk.Writer || r.Term != w.disk.Term {
		w.must(w.granted == 0 || r.Term == w.pending, "a new term while an older writer is not fenced")
	}
	if r.Writer == copyID && w.disk.Writer != copyID {
		w.must(w.synced, "promoted before all is persistent")
	}
	if w.fails("persist") {
		w.persistFailed = true
		return Done{Err: fmt.Errorf("made to fail")}
	}
	w.disk = r
	return Done{}
}

// A session that lost bytes leaves its copy Inconsistent also if it ends before the shell tells of the failure.
func TestMachine_FailureFoundAtTheEnd(t *testing.T) {
	m := NewMachine(config.Media)
	var acts []Action
	for _, ev := range []Event{
		Request{1, claimOf(writerA, 5, 50)}, Done{Replica: newReplica()}, Done{}, Done{Grant: wire.Grant{Session: 8}}, Done{},
		Lost{1}, Done{Failed: true},
	} {
		acts = m.Step(ev, nil)
	}
	if p, ok := acts[0].(Persist); !ok || len(acts) != 1 || p.Replica.Flags&wire.FlagInconsistent == 0 {
		t.Fatalf("after the end of a failed session: %+v", acts)
	}
	if acts = m.Step(Done{}, nil); len(acts) != 1 || acts[0] != (Release{}) {
		t.Errorf("after the mark: %+v", acts)
	}
}

// The mark Clean says that the copy equals that of its writer, so it does not outlast a change of the writer.
func TestMachine_CleanIsOfOneWriter(t *testing.T) {
	for writer, want := range map[wire.UUID]uint32{writerA: wire.FlagClean, writerB: 0} {
		rep := newReplica()
		rep.Flags = wire.FlagClean
		m := NewMachine(config.Media)
		var acts []Action
		for _, ev := range []Event{Request{1, claimOf(writer, 6, 50)}, Done{Replica: rep}, Done{}, Done{Grant: wire.Grant{Session: 8}}} {
			acts = m.Step(ev, nil)
		}
		if p, ok := acts[0].(Persist); !ok || p.Replica.Writer != writer || p.Replica.Flags != want {
			t.Errorf("writer %v: %+v", writer, acts)
		}
	}
}

// A primary whose bytes were lost is not taken for a copy that was promoted before; force declares its bytes good.
func TestMachine_PromotionOfAnInconsistentPrimary(t *testing.T) {
	for _, force := range []bool{false, true} {
		rep := newReplica()
		rep.Writer, rep.Flags = copyID, wire.FlagInconsistent
		m := NewMachine(config.Media)
		var report *Report
		for ev := Event(Promotion{Force: force, Gen: 60}); ev != nil; {
			acts := m.Step(ev, nil)
			ev = nil
			for _, a := range acts {
				switch a := a.(type) {
				case Open:
					ev = Done{Replica: rep}
				case Sync:
					ev = Done{}
				case Persist:
					rep, ev = a.Replica, Done{}
				case Report:
					report = &a
				}
			}
		}
		promoted := rep.Flags&wire.FlagInconsistent == 0 && rep.Gen == 60 && rep.Term == 6
		if report == nil || (report.Err == nil) != force || promoted != force {
			t.Errorf("force %v: report %+v, state %+v", force, report, rep)
		}
	}
}

// Random claims, losses, failures and promotions never break a rule of fencing.
func TestMachine_Random(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, m: NewMachine(config.Media), disk: newReplica(), answers: map[ConnID]int{}}
		conns := rapid.Uint64Range(1, 4)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			c := ConnID(conns.Draw(t, "connection"))
			before := w.answers[c]
			request := true
			switch rapid.IntRange(0, 10).Draw(t, "event") {
			case 0, 1, 2:
				cl := claimOf(writerA, w.disk.Term+rapid.Uint64Range(0, 2).Draw(t, "term")-1, w.disk.Gen, w.disk.History[:]...)
				if rapid.Bool().Draw(t, "writer B") {
					cl.Writer = writerB
				}
				old := w.disk
				w.claiming = true
				w.step(Request{c, cl})
				w.claiming = false
				if w.status != wire.StatusOK {
					w.must(w.disk.Term == old.Term && w.disk.Writer == old.Writer && w.disk.Gen == old.Gen, "a refused claim took the term")
				} else {
					w.must(w.granted == w.last && w.disk.Term == cl.Term && w.disk.Writer == cl.Writer, "granted something else than was claimed")
					w.holder = c
				}
			case 3:
				request = false
				w.step(Lost{c})
			case 4:
				w.step(Request{c, &wire.Hello{}})
			case 5:
				owner := w.holder == c && w.granted != 0
				w.step(Request{c, &wire.SetState{Session: w.granted, Gen: w.disk.Gen, Set: wire.FlagClean}})
				w.must(owner || w.status == wire.StatusNoSession, "a state was set without a session")
			case 6:
				owner := w.holder == c && w.granted != 0
				w.step(Request{c, &wire.Close{Session: w.granted}})
				w.must(owner || w.status == wire.StatusNoSession, "a session was closed by another connection")
			case 7:
				request = false
				w.failed = w.granted != 0
				// The session may end before the shell gets round to tell.
				if rapid.Bool().Draw(t, "told") {
					w.step(Failed{w.last})
				}
			case 8:
				request = false
				w.report = nil
				term, lost := w.disk.Term, w.granted != 0 && w.failed
				force := rapid.Bool().Draw(t, "force")
				w.step(Promotion{Force: force, Gen: w.disk.Gen + 1000})
				w.must(w.report != nil, "a promotion without a report")
				if w.report.Err == nil {
					w.must(force || !lost, "a copy that lost bytes is promoted without force")
					w.must(w.disk.Writer == copyID && w.disk.Term == w.report.Term && w.disk.Term >= term, "reported, but not durable")
					w.must(w.granted == 0 && !w.opened, "promoted, but still served")
				}
			case 10:
				owner, size := w.holder == c && w.granted != 0, w.disk.PoolSize
				w.step(Request{c, &wire.Grow{Session: w.granted, PoolSize: size + 4096}})
				w.must(owner || w.status == wire.StatusNoSession && w.disk.PoolSize == size, "grown by another connection")
				w.must(w.status != wire.StatusOK || w.m.rep.PoolSize == size+4096, "grown, and the copy is not known to be")
			case 9:
				request = false
				w.locked = w.granted == 0 && !w.locked
			}
			if request && w.answers[c] != before+1 {
				t.Fatalf("%d answers to one request", w.answers[c]-before)
			}
		}
	})
}
