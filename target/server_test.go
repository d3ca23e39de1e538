package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

func wantStatus(t *testing.T, err error, want wire.Status, text string) {
	t.Helper()
	var re *wire.RefusedError
	if !errors.As(err, &re) || re.Status != want || !strings.Contains(re.Text, text) {
		t.Errorf("got %v, want status %d (%v) with %q", err, want, want, text)
	}
}

// The life of a replica: made, claimed, written, flushed with a seal, closed; then its file holds the bytes.
func TestServe_Life(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	if st := c.create(); st.Attr.PoolUUID != poolID || st.Attr.CopyID != copyID || st.PoolSize != partSize || st.Term != 0 || st.Served != 0 {
		t.Errorf("created: %+v", st)
	}
	g := c.mustClaim(claimFor(writerA, 1))
	if g.PoolSize != partSize || len(g.Chunks) != 1 || g.Credits != credits || g.MaxRanges != wire.MaxRanges ||
		g.Method != wire.GPSPM || g.Fabric != r.srv.FabricAddr().String() {
		t.Errorf("grant: %+v", g)
	}
	if st := r.dial().state(r.dial().must(wire.TypeHello, &wire.Hello{Pool: "p.set", PoolUUID: poolID})); st.Served != 1 || st.Term != 1 || st.Writer != writerA {
		t.Errorf("state while served: %+v", st)
	}
	c.setGen(g.Session, 7)
	st := c.state(c.must(wire.TypeSetState, &wire.SetState{Session: g.Session, Gen: 8, History: [8]uint64{7}, Set: wire.FlagClean | wire.FlagInconsistent,
		Clear: wire.FlagInconsistent, SyncGen: 1, SyncID: 2, Peers: []wire.UUID{writerA}}))
	if st.Gen != 8 || st.History[0] != 7 || st.Flags&(wire.FlagClean|wire.FlagInconsistent) != wire.FlagClean {
		t.Errorf("state set: %+v", st)
	}
	if s := r.info().State; s.Gen != 8 || s.SyncGen != 1 || s.SyncID != 2 || s.Peers[0] != writerA || s.Peers[1] != (poolset.UUID{}) || s.Term != 1 {
		t.Errorf("state on the medium: %+v", s)
	}
	attr := st.Attr
	attr.UserFlags[3] = 9
	c.must(wire.TypeSetAttr, &wire.SetAttr{Session: g.Session, Attr: attr})

	l := mustConnect(t, g)
	if err := l.write(8192, []byte("hello, target")); err != nil {
		t.Fatal(err)
	}
	a := l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: 0x0102030405060708}, pmem.Range{Off: 8192, Len: 13})
	if a.Taken != 1 || a.Term != 1 {
		t.Errorf("answer: %+v", a)
	}
	c.must(wire.TypePing, nil)
	c.must(wire.TypeClose, &wire.Close{Session: g.Session})
	if _, err := l.flush(pmem.Seal{}); err == nil {
		t.Error("a flush after CLOSE was answered")
	}
	b, err := os.ReadFile(r.part())
	if err != nil {
		t.Fatal(err)
	}
	if string(b[8192:8205]) != "hello, target" || binary.LittleEndian.Uint64(b[4096:]) != 0x0102030405060708 {
		t.Errorf("file: %q, seal %x", b[8192:8205], b[4096:4104])
	}
	if st := c.state(c.must(wire.TypeHello, &wire.Hello{Pool: "p.set"})); st.Served != 0 || st.Attr != attr {
		t.Errorf("state after CLOSE: %+v", st)
	}
	if err := r.lock().Close(); err != nil { // nobody holds it
		t.Error(err)
	}
	c.must(wire.TypeRemove, &wire.Remove{PoolUUID: poolID, Pool: "p.set"})
	if _, err := os.Stat(r.part()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("part after REMOVE: %v", err)
	}
}

func TestServe_Refusals(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	ask := func(ty wire.Type, m appender) error { _, err := c.ask(ty, m); return err }
	r.set("replica.set", "PMEMPOOLSET\n2M "+r.dir+"/x\nREPLICA host pool\n")
	r.set("broken.set", "PMEMPOOLSET\nnonsense\n")

	wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: "none.set"}), wire.StatusNoPool, "none.set")
	wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: "p.set"}), wire.StatusNoPool, "p.part")
	wantStatus(t, ask(wire.TypeClaim, claimFor(writerA, 1)), wire.StatusNoPool, "p.part")
	for _, name := range []string{"", "../p.set", "/p.set", "a/../../p.set", ".", strings.Repeat("x", 300), "p\x00.set"} {
		wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: name}), wire.StatusBadRequest, "name")
	}
	wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: "replica.set"}), wire.StatusPoolSet, "REPLICA")
	wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: "broken.set"}), wire.StatusPoolSet, "line 2")
	wantStatus(t, ask(wire.TypeCreate, &wire.Create{Pool: "p.set", PoolSize: partSize + 1}), wire.StatusTooSmall, "p.set")
	if _, err := os.Stat(r.part()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused CREATE left a part: %v", err)
	}
	c.create()
	wantStatus(t, ask(wire.TypeCreate, &wire.Create{Pool: "p.set"}), wire.StatusExists, "")
	wantStatus(t, ask(wire.TypeHello, &wire.Hello{Pool: "p.set", PoolUUID: id(1)}), wire.StatusForeign, "")
	wantStatus(t, ask(wire.TypeRemove, &wire.Remove{Pool: "p.set", PoolUUID: id(1)}), wire.StatusForeign, "")
	foreign := claimFor(writerA, 1)
	foreign.PoolUUID = id(1)
	wantStatus(t, ask(wire.TypeClaim, foreign), wire.StatusForeign, "")
	wantStatus(t, ask(wire.TypeSetState, &wire.SetState{Session: 1}), wire.StatusNoSession, "")
	wantStatus(t, ask(wire.TypeSetAttr, &wire.SetAttr{Session: 1}), wire.StatusNoSession, "")
	wantStatus(t, ask(wire.TypeClose, &wire.Close{Session: 1}), wire.StatusNoSession, "")
	wantStatus(t, ask(wire.Type(77), nil), wire.StatusBadRequest, "type 77")
	wantStatus(t, ask(wire.TypeFenced, &wire.Fenced{}), wire.StatusBadRequest, "FENCED")
	wantStatus(t, ask(wire.TypePing, &wire.Close{}), wire.StatusBadRequest, "PING")
	wantStatus(t, ask(wire.TypeHello, &wire.Close{}), wire.StatusBadRequest, "HELLO")

	g := c.mustClaim(claimFor(writerA, 5))
	c.setGen(g.Session, 7)
	wantStatus(t, ask(wire.TypeCreate, &wire.Create{Pool: "p.set"}), wire.StatusExists, "")
	wantStatus(t, ask(wire.TypeRemove, &wire.Remove{Pool: "p.set", Force: 1}), wire.StatusBusy, "")
	wantStatus(t, ask(wire.TypeSetAttr, &wire.SetAttr{Session: g.Session}), wire.StatusBadRequest, "identity")
	wantStatus(t, ask(wire.TypeSetState, &wire.SetState{Session: g.Session + 1}), wire.StatusNoSession, "")
	other := r.dial()
	_, err := other.ask(wire.TypeSetState, &wire.SetState{Session: g.Session})
	wantStatus(t, err, wire.StatusNoSession, "")
	for _, cl := range []*wire.Claim{claimFor(writerA, 4), claimFor(writerB, 5)} {
		_, err := other.claim(cl)
		wantStatus(t, err, wire.StatusFenced, "term 5")
		var re *wire.RefusedError
		if errors.As(err, &re); re == nil || re.State == nil || re.State.Term != 5 || re.State.Writer != writerA {
			t.Errorf("FENCED without the state: %+v", re)
		}
	}
	split := claimFor(writerB, 6)
	split.Gen = 99
	_, err = other.claim(split)
	wantStatus(t, err, wire.StatusSplitBrain, "neither")
	// None of them has touched the session.
	mustConnect(t, g).mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
}

func TestServe_BrokenFrames(t *testing.T) {
	r := newRig(t)
	good := wire.AppendFrame(nil, wire.Frame{Type: wire.TypePing, ID: 3})
	version := bytes.Clone(good)
	version[4] = 9
	for name, b := range map[string][]byte{"garbage": bytes.Repeat([]byte("x"), 100), "version": version, "cut": good[:10]} {
		c := r.dial()
		c.nc.SetDeadline(time.Now().Add(patience))
		c.nc.Write(b)
		if name == "cut" {
			c.nc.Close()
			continue
		}
		f, err := wire.ReadFrame(c.nc)
		if name == "version" {
			if err != nil || f.Status != wire.StatusVersion || f.ID != 3 || f.Type != wire.TypePing|wire.Answer {
				t.Errorf("version: %+v, %v", f, err)
			}
			_, err = wire.ReadFrame(c.nc)
		}
		if err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	r.dial().must(wire.TypePing, nil)
}

func TestServe_LockedPool(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	p := r.lock()
	defer p.Close()
	_, err := c.claim(claimFor(writerA, 1))
	wantStatus(t, err, wire.StatusBusy, "mount")
	if st := c.state(c.must(wire.TypeHello, &wire.Hello{Pool: "p.set"})); st.Attr.PoolUUID != poolID {
		t.Errorf("state of a locked pool: %+v", st)
	}
	_, err = c.ask(wire.TypeRemove, &wire.Remove{Pool: "p.set"})
	wantStatus(t, err, wire.StatusBusy, "mount")
	// Promoted and mounted here: its old writer learns that it is fenced.
	if err := p.SetState(func(s *poolset.State) { s.Term, s.Writer = 4, copyID }); err != nil {
		t.Fatal(err)
	}
	_, err = c.claim(claimFor(writerA, 4))
	wantStatus(t, err, wire.StatusFenced, "promoted elsewhere at term 4")
}

func TestServe_DamagedPool(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	f, err := os.OpenFile(r.part(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	_, err = c.ask(wire.TypeHello, &wire.Hello{Pool: "p.set"})
	wantStatus(t, err, wire.StatusCorrupt, "")
	_, err = c.claim(claimFor(writerA, 1))
	wantStatus(t, err, wire.StatusCorrupt, "")
	_, err = c.ask(wire.TypeRemove, &wire.Remove{Pool: "p.set"})
	wantStatus(t, err, wire.StatusCorrupt, "")
	c.must(wire.TypeRemove, &wire.Remove{Pool: "p.set", Force: 1})
}

// A pool in memory is served to those who ask for no more, and only if the target's administrator allows it.
func TestServe_Durability(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "pmemfs-target-test")
	if err != nil {
		t.Fatalf("this test needs a tmpfs at /dev/shm: %v", err)
	}
	defer os.RemoveAll(dir)
	r := newRig(t)
	r.set("p.set", "PMEMPOOLSET\n2M "+dir+"/part\n")
	c := r.dial()
	if st := c.create(); st.Durability != wire.DurabilityMemory {
		t.Errorf("state: %+v", st)
	}
	media := claimFor(writerA, 1)
	media.Durability = wire.DurabilityMedia
	_, err = c.claim(media)
	wantStatus(t, err, wire.StatusDurability, "pmemfs.toml")
	c.mustClaim(claimFor(writerA, 1))
	r.stop()

	r.cfg.Durability = config.Media
	r.start()
	_, err = r.dial().claim(claimFor(writerA, 1))
	wantStatus(t, err, wire.StatusDurability, "target.toml")
}

func TestLane_Refused(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 1))
	stranger := g
	stranger.Session++
	if _, err := connect(t, stranger, 0); err == nil || !strings.Contains(err.Error(), "session") {
		t.Errorf("unknown session: %v", err)
	}
	if _, err := connect(t, g, 2); err == nil || !strings.Contains(err.Error(), "2 lanes") {
		t.Errorf("lane above the grant: %v", err)
	}
	for _, private := range [][]byte{nil, []byte("PMFL"), bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{1}, 200)} {
		if _, err := connectPrivate(t, g, private); err == nil {
			t.Errorf("private data %x were accepted", private)
		}
	}
	first := mustConnect(t, g)
	if _, err := connect(t, g, 0); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("lane 0 twice: %v", err)
	}
	second, err := connect(t, g, 1)
	if err != nil {
		t.Fatal(err)
	}
	first.mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
	second.mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
	// A lane that broke can be connected again at once.
	for range 20 {
		first.qp.Close()
		first = mustConnect(t, g)
		first.mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
	}
}

// Every kind of bad request is answered with its status and changes nothing, and after it no seal is stored any more.
func TestLane_BadRequests(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	const seal = 1 << 20
	good := []pmem.Range{{Off: 4096, Len: 8}}
	for i, b := range []struct {
		name   string
		m      wire.Flush
		edit   func([]byte) []byte
		status wire.FlushStatus
		where  uint64
	}{
		{"header", wire.Flush{Ranges: []pmem.Range{{Off: 0, Len: 8}}}, nil, wire.FlushBadRange, 0},
		{"last header byte", wire.Flush{Ranges: []pmem.Range{good[0], {Off: 4095, Len: 1}}}, nil, wire.FlushBadRange, 4095},
		{"past the end", wire.Flush{Ranges: []pmem.Range{{Off: partSize - 8, Len: 9}}}, nil, wire.FlushBadRange, partSize - 8},
		{"from past the end", wire.Flush{Ranges: []pmem.Range{{Off: partSize + 1, Len: 0}}}, nil, wire.FlushBadRange, partSize + 1},
		{"length wraps", wire.Flush{Ranges: []pmem.Range{{Off: 8192, Len: 1<<64 - 4096}}}, nil, wire.FlushBadRange, 8192},
		{"length is all ones", wire.Flush{Ranges: []pmem.Range{{Off: 4096, Len: 1<<64 - 1}}}, nil, wire.FlushBadRange, 4096},
		{"offset wraps", wire.Flush{Ranges: []pmem.Range{{Off: 1<<64 - 8, Len: 4096 + 16}}}, nil, wire.FlushBadRange, 1<<64 - 8},
		{"seal at the end", wire.Flush{Seal: pmem.Seal{Off: partSize, Val: 1}, Ranges: good}, nil, wire.FlushBadRange, partSize},
		{"seal wraps", wire.Flush{Seal: pmem.Seal{Off: 1<<64 - 8, Val: 1}, Ranges: good}, nil, wire.FlushBadRange, 1<<64 - 8},
		{"seal in the header", wire.Flush{Seal: pmem.Seal{Off: 1024, Val: 1}}, nil, wire.FlushBadRequest, 0},
		{"seal not aligned", wire.Flush{Seal: pmem.Seal{Off: 4100, Val: 1}}, nil, wire.FlushBadRequest, 0},
		{"other session", wire.Flush{Session: 1, Ranges: good}, nil, wire.FlushBadRequest, 0},
		{"bad magic", wire.Flush{}, func(b []byte) []byte { b[0]++; return b }, wire.FlushBadRequest, 0},
		{"bad checksum", wire.Flush{}, func(b []byte) []byte { b[44]++; return b }, wire.FlushBadRequest, 0},
		{"too short", wire.Flush{}, func(b []byte) []byte { return b[:20] }, wire.FlushBadRequest, 0},
		{"empty", wire.Flush{}, func(b []byte) []byte { return b[:0] }, wire.FlushBadRequest, 0},
	} {
		t.Run(b.name, func(t *testing.T) {
			g := c.mustClaim(claimFor(writerA, uint64(i+1)))
			l := mustConnect(t, g)
			if b.m.Session == 0 {
				b.m.Session = g.Session
			}
			b.m.Answer = true
			if err := l.send(&b.m, b.edit); err != nil {
				t.Fatal(err)
			}
			a, err := l.answer()
			if err != nil || a.Status != b.status || a.Where != b.where {
				t.Fatalf("answer %+v, %v", a, err)
			}
			a = l.mustFlush(b.status, pmem.Seal{Off: seal, Val: 42}, good...)
			if a.Where != b.where {
				t.Errorf("later answer: %+v", a)
			}
			file, err := os.ReadFile(r.part())
			if err != nil {
				t.Fatal(err)
			}
			if binary.LittleEndian.Uint64(file[seal:]) != 0 {
				t.Error("a seal was stored after a failure")
			}
			if r.info().State.Flags&poolset.Inconsistent != 0 {
				t.Error("a bad request made the copy Inconsistent")
			}
		})
	}
}

// An initiator may use all credits at once, and again as soon as an answer says that they are taken.
func TestLane_Credits(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 1))
	l := mustConnect(t, g)
	for round := range uint64(20) {
		for i := range uint64(g.Credits) {
			m := wire.Flush{Session: g.Session, Answer: i == uint64(g.Credits)-1 || round%2 == 1, Ranges: []pmem.Range{{Off: 4096, Len: 64}}}
			if err := l.send(&m, nil); err != nil {
				t.Fatal(err)
			}
		}
		for {
			a, err := l.answer()
			if err != nil || a.Status != wire.FlushOK || a.Taken != a.Seq {
				t.Fatalf("round %d: %+v, %v", round, a, err)
			}
			if a.Seq == (round+1)*uint64(g.Credits) {
				break
			}
		}
	}
}

// A claim that is refused for its methods takes neither the term nor the session of another one.
func TestClaim_RefusedForItsMethods(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 3))
	l := mustConnect(t, g)
	before := r.info().State
	for m, text := range map[wire.Methods]string{wire.MethodSet(wire.FLUSH): "cannot do RDMA FLUSH", 0: "no method is claimed", 1 << 9: "no method is claimed"} {
		claim := claimFor(writerA, 4)
		claim.Methods = m
		_, err := r.dial().claim(claim)
		wantStatus(t, err, wire.StatusMethod, text)
		if after := r.info().State; after != before {
			t.Errorf("methods %b: %+v, was %+v", m, after, before)
		}
		l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: 1}, pmem.Range{Off: 8192, Len: 64})
	}
	c.must(wire.TypeClose, &wire.Close{Session: g.Session})
	claim := claimFor(writerA, 4)
	claim.Methods = wire.MethodSet(wire.FLUSH)
	_, err := r.dial().claim(claim)
	wantStatus(t, err, wire.StatusMethod, "")
	if after := r.info().State; after != before {
		t.Errorf("a pool that nobody holds: %+v, was %+v", after, before)
	}
	if err := r.lock().Close(); err != nil { // nobody holds it
		t.Error(err)
	}
}

// A second claim of the same writer and term breaks the first connection before it is granted.
func TestClaim_BreaksOlderConnection(t *testing.T) {
	r := newRig(t)
	old := r.dial()
	old.create()
	g := old.mustClaim(claimFor(writerA, 3))
	l := mustConnect(t, g)
	l.mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})

	next := r.dial()
	ng := next.mustClaim(claimFor(writerA, 3))
	if ng.Session == g.Session || ng.Chunks[0].RKey == g.Chunks[0].RKey {
		t.Errorf("the new grant %+v shares a key with the old %+v", ng, g)
	}
	old.nc.SetDeadline(time.Now().Add(patience))
	f, err := wire.ReadFrame(old.nc)
	if err != nil || f.Type != wire.TypeFenced || f.ID != 0 {
		t.Errorf("notice: %+v, %v", f, err)
	}
	if _, err := wire.ReadFrame(old.nc); err == nil {
		t.Error("the old control connection goes on")
	}
	if a, err := l.flush(pmem.Seal{Off: 8192, Val: 1}); err == nil && a.Status == wire.FlushOK {
		t.Error("the old lane goes on")
	}
	if _, err := connect(t, g, 0); err == nil {
		t.Error("the old session takes a new lane")
	}
	mustConnect(t, ng).mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})

	// The key of the old session is no good on a lane of the new one.
	ng2 := next.mustClaim(claimFor(writerA, 3))
	mixed := ng2
	mixed.Region = g.Region
	ml := mustConnect(t, mixed)
	if err := ml.write(8192, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if a, err := ml.flush(pmem.Seal{}); err == nil {
		t.Errorf("a Write with an old key was taken: %+v", a)
	}
}

// hammer writes byte b over a page of the region and flushes it, until the lane breaks or stop is closed.
func hammer(l *link, b byte, stop <-chan struct{}) {
	page := bytes.Repeat([]byte{b}, 4096)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if l.write(8192, page) != nil {
			return
		}
		a, err := l.flush(pmem.Seal{Off: 4096, Val: uint64(b)}, pmem.Range{Off: 8192, Len: 4096})
		if err != nil || a.Status != wire.FlushOK {
			return
		}
	}
}

// unchanged reports whether the shared bytes of the pool stay as they are for a while.
func (r *rig) unchanged(what string) {
	r.t.Helper()
	before, err := os.ReadFile(r.part())
	if err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond)
	after, err := os.ReadFile(r.part())
	if err != nil {
		r.t.Fatal(err)
	}
	if !bytes.Equal(before[wire.FirstOffset:], after[wire.FirstOffset:]) {
		r.t.Errorf("bytes of the region changed %s", what)
	}
}

// Many initiators claim and write at the same time. From its grant on the one with the highest term writes alone.
func TestClaim_Storm(t *testing.T) {
	r := newRig(t)
	r.dial().create()
	const n = 12
	stop := make(chan struct{})
	var wg sync.WaitGroup
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = r.dial()
	}
	for i, c := range clients {
		wg.Go(func() {
			cl := claimFor(id(byte(i+1)), uint64(i+1))
			g, err := c.claim(cl)
			if errors.Is(err, wire.StatusFenced) {
				return
			}
			if err != nil {
				// Another claim may have closed this connection before its grant was read.
				if !errors.Is(err, io.EOF) && !errors.Is(err, wire.ErrCorrupt) && !strings.Contains(err.Error(), "reset") && !errors.Is(err, net.ErrClosed) {
					t.Errorf("claim %d: %v", i, err)
				}
				return
			}
			if l, err := connect(t, g, 0); err == nil {
				hammer(l, byte(i+1), stop)
			}
		})
	}
	last := r.dial()
	var g wire.Grant
	for {
		var err error
		if g, err = last.claim(claimFor(writerB, n+1)); err == nil {
			break
		}
		t.Fatal(err)
	}
	r.unchanged("after the highest claim was granted")
	l := mustConnect(t, g)
	l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: 77}, pmem.Range{Off: 8192, Len: 8})
	close(stop)
	wg.Wait()
	if st := last.state(last.must(wire.TypeHello, &wire.Hello{Pool: "p.set"})); st.Term != n+1 || st.Writer != writerB || st.Served != 1 {
		t.Errorf("state: %+v", st)
	}
}

// Connections die at any moment; the pool is let go and can be claimed again.
func TestServe_DyingConnections(t *testing.T) {
	r := newRig(t)
	r.dial().create()
	for i := range 10 {
		c := r.dial()
		g, err := c.claim(claimFor(writerA, 1))
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		l := mustConnect(t, g)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { hammer(l, byte(i+1), stop) })
		time.Sleep(time.Duration(i) * time.Millisecond)
		if i%2 == 0 {
			c.nc.Close()
		} else {
			l.qp.Close()
			c.nc.Close()
		}
		wg.Wait()
		close(stop)
	}
	deadline := time.Now().Add(patience)
	for r.info().Holder != nil {
		if time.Now().After(deadline) {
			t.Fatal("the pool is still held")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := r.lock().Close(); err != nil {
		t.Error(err)
	}
	r.unchanged("after its connection died")
}

// The daemon ends while initiators write: flushes are finished, the lock is free when Run returns.
func TestServer_StopUnderLoad(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	l := mustConnect(t, c.mustClaim(claimFor(writerA, 1)))
	var wg sync.WaitGroup
	wg.Go(func() { hammer(l, 1, nil) })
	time.Sleep(20 * time.Millisecond)
	r.stop()
	r.unchanged("after the server ended")
	if err := r.lock().Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	r.start()
	r.dial().mustClaim(claimFor(writerA, 1))
}

// A connection that claims nothing and says nothing is closed; one that has a session is not.
func TestServe_Strangers(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.prep = func(s *Server) { s.stranger = 100 * time.Millisecond }
	r.start()
	c, silent := r.dial(), r.dial()
	c.create()
	c.mustClaim(claimFor(writerA, 1))
	silent.nc.SetReadDeadline(time.Now().Add(patience))
	if _, err := silent.nc.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the silent connection: %v", err)
	}
	time.Sleep(150 * time.Millisecond)
	c.must(wire.TypePing, nil)
}

// More control connections than the daemon takes are closed, and do not harm those that are there.
func TestServe_TooManyConnections(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.must(wire.TypePing, nil)
	for range maxConns - 1 {
		r.dial().must(wire.TypePing, nil)
	}
	extra := r.dial()
	if _, err := extra.ask(wire.TypePing, nil); err == nil {
		t.Error("one connection too many was served")
	}
	c.must(wire.TypePing, nil)
}

func TestListen_AddressInUse(t *testing.T) {
	r := newRig(t)
	cfg := *r.cfg
	cfg.Listen = r.srv.Addr().String()
	if _, err := Listen(&cfg, r.srv.device, quiet()); err == nil || !strings.Contains(err.Error(), "listen = ") || !strings.Contains(err.Error(), "another pmemfs-target") {
		t.Errorf("control address in use: %v", err)
	}
	cfg = *r.cfg
	cfg.Fabric = r.srv.FabricAddr().String()
	if _, err := Listen(&cfg, r.srv.device, quiet()); err == nil || !strings.Contains(err.Error(), "fabric = ") || !strings.Contains(err.Error(), "another pmemfs-target") {
		t.Errorf("fabric address in use: %v", err)
	}
	cfg = *r.cfg
	if _, err := Listen(&cfg, r.srv.device, quiet()); err == nil || !strings.Contains(err.Error(), "socket = ") || !strings.Contains(err.Error(), "other pmemfs-target") {
		t.Errorf("socket in use: %v", err)
	}
	cfg.Socket = filepath.Join(r.dir, "p.set")
	if _, err := Listen(&cfg, r.srv.device, quiet()); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("socket path is a file: %v", err)
	}
}
