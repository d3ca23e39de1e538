package target

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// filled makes the pool and claims it at term 5 with generation 7.
func (r *rig) filled() (*client, wire.Grant) {
	r.t.Helper()
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 5))
	c.setGen(g.Session, 7)
	return c, g
}

// After a promotion under load no byte changes any more, whatever the old initiator goes on to do.
func TestPromote_UnderLoad(t *testing.T) {
	r := newRig(t)
	c, g := r.filled()
	var wg sync.WaitGroup
	for lane := range uint16(2) {
		l, err := connect(t, g, lane)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { hammer(l, byte(lane+1), nil) })
	}
	time.Sleep(20 * time.Millisecond)
	term, err := PromoteVia(r.cfg.Socket, "p.set", false)
	if err != nil || term != 6 {
		t.Fatalf("term %d, %v", term, err)
	}
	info := r.info()
	if info.Holder != nil {
		t.Errorf("the pool is still held by %+v", info.Holder)
	}
	if s := info.State; s.Term != 6 || s.Writer != copyID || s.Gen == 7 || s.Gen == 0 || s.History[0] != 7 {
		t.Errorf("state %+v", s)
	}
	r.unchanged("after the promotion")
	wg.Wait()

	// The notice was sent before the connection was broken.
	c.nc.SetDeadline(time.Now().Add(patience))
	f, err := wire.ReadFrame(c.nc)
	var n wire.Fenced
	if err != nil || f.Type != wire.TypeFenced || n.Decode(f.Body) != nil || n.Term != 6 {
		t.Errorf("notice %+v %+v, %v", f, n, err)
	}
	if _, err := wire.ReadFrame(c.nc); !errors.Is(err, io.EOF) {
		t.Errorf("after the notice: %v", err)
	}
	// The old writer comes back: with the old session, with the old term, and with one of its own.
	if _, err := connect(t, g, 0); err == nil {
		t.Error("the old session takes a lane")
	}
	for _, term := range []uint64{5, 6} {
		_, err := r.dial().claim(claimFor(writerA, term))
		wantStatus(t, err, wire.StatusFenced, "promoted elsewhere at term 6")
	}
	_, err = r.dial().claim(claimFor(writerA, 7))
	wantStatus(t, err, wire.StatusSplitBrain, "newer")
	// Mounted here, it still is FENCED and not merely BUSY.
	p := r.lock()
	defer p.Close()
	_, err = r.dial().claim(claimFor(writerA, 5))
	wantStatus(t, err, wire.StatusFenced, "promoted elsewhere at term 6")
}

func TestPromote_Refused(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	refused := func(name string, status wire.Status, text string) {
		t.Helper()
		var ref *Refusal
		_, err := PromoteVia(r.cfg.Socket, name, false)
		if !errors.As(err, &ref) || ref.Status != status || !strings.Contains(ref.Text, text) {
			t.Errorf("got %v, want status %d with %q", err, status, text)
		}
	}
	refused("../p.set", wire.StatusBadRequest, "name")
	refused("none.set", wire.StatusNoPool, "none.set")
	refused("p.set", wire.StatusNoPool, "p.part")
	c.create()
	refused("p.set", wire.StatusInconsistent, "never received")
	g := c.mustClaim(claimFor(writerA, 5))
	refused("p.set", wire.StatusInconsistent, "never received")
	c.must(wire.TypeSetState, &wire.SetState{Session: g.Session, Gen: 7, Set: wire.FlagInconsistent, SyncGen: 7, SyncID: 1})
	refused("p.set", wire.StatusInconsistent, "--force")
	c.must(wire.TypeSetState, &wire.SetState{Session: g.Session, Gen: 7, Clear: wire.FlagInconsistent, Set: wire.FlagMayDegrade})
	refused("p.set", wire.StatusInconsistent, "go on without this copy")
	// A refused promotion leaves the session alone.
	mustConnect(t, g).mustFlush(wire.FlushOK, pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
	if term, err := PromoteVia(r.cfg.Socket, "p.set", true); err != nil || term != 6 {
		t.Errorf("forced: term %d, %v", term, err)
	}
	if s := r.info().State; s.Flags&poolset.Inconsistent != 0 || s.Writer != copyID {
		t.Errorf("state %+v", s)
	}
	if term, err := PromoteVia(r.cfg.Socket, "p.set", false); err != nil || term != 6 {
		t.Errorf("promoted again: term %d, %v", term, err)
	}
	p := r.lock()
	defer p.Close()
	refused("p.set", wire.StatusBusy, "mount")
}

// Without a daemon the promotion works on the pool itself, and waits for one that is about to end.
func TestPromote_WithoutDaemon(t *testing.T) {
	r := newRig(t)
	r.filled()
	if _, err := Promote(r.cfg, "p.set", false, quiet()); !isInUse(err) {
		t.Errorf("while the daemon serves it: %v", err)
	}
	r.stop()
	if _, err := PromoteVia(r.cfg.Socket, "p.set", false); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("no daemon: %v", err)
	}
	if term, err := Promote(r.cfg, "p.set", false, quiet()); err != nil || term != 6 {
		t.Errorf("term %d, %v", term, err)
	}
	info := r.info()
	if info.Holder != nil || info.State.Term != 6 || info.State.Writer != copyID {
		t.Errorf("%+v", info)
	}
	if _, err := Promote(r.cfg, "none.set", false, quiet()); !errors.Is(err, wire.StatusNoPool) {
		t.Errorf("no such pool: %v", err)
	}
}

func isInUse(err error) bool { return is[*pool.InUseError](err) }

func TestAdmin(t *testing.T) {
	r := newRig(t)
	_, g := r.filled()
	mustConnect(t, g)
	fi, err := os.Stat(r.cfg.Socket)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", fi.Mode(), err)
	}
	st, err := StatusVia(r.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Pools) != 1 || st.Listen != r.srv.Addr().String() || st.Dir != r.dir {
		t.Fatalf("status %+v", st)
	}
	if p := st.Pools[0]; p.Name != "p.set" || !p.Served || p.Term != 5 || p.Gen != "0000000000000007" || p.Lanes != 1 || p.Failed || p.Class == "" {
		t.Errorf("pool %+v", p)
	}
	c, err := net.Dial("unix", r.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	in := json.NewDecoder(c)
	for _, line := range []string{`nonsense`, `{"op":"explode"}`, `{"op":5}`, ``, `{"op":"promote","pool":"/etc/passwd"}`} {
		if _, err := c.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		var reply AdminReply
		if err := in.Decode(&reply); err != nil || reply.Error == "" || reply.Status != wire.StatusBadRequest {
			t.Errorf("%s: %+v, %v", line, reply, err)
		}
	}
	c.Write([]byte(strings.Repeat("x", maxAdminLine+1)))
	if err := in.Decode(new(AdminReply)); err == nil {
		t.Error("a line without an end was answered")
	}
	// A client that says nothing does not hold up the end of the daemon.
	quietClient, err := net.Dial("unix", r.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer quietClient.Close()
	begin := time.Now()
	r.stop()
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("the daemon took %v to end", d)
	}
	if _, err := os.Stat(r.cfg.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after the end: %v", err)
	}
}

// A daemon that was killed leaves its socket behind.
func TestAdmin_StaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := StatusVia(path); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("nobody listens: %v", err)
	}
}

// A flush that fails marks the copy, so that it is not promoted.
func TestServe_IOFailureMarksTheCopy(t *testing.T) {
	r := newRig(t)
	_, g := r.filled()
	l := mustConnect(t, g)
	r.srv.mu.Lock()
	sg, p := r.srv.grants[g.Session], r.srv.pools["p.set"]
	r.srv.mu.Unlock()
	p.mu.Lock() // the handler must not wait for the pool
	sg.fail(wire.FlushIO, 8192, errors.New("made to fail"))
	a, err := l.flush(pmem.Seal{}, pmem.Range{Off: 4096, Len: 1})
	p.mu.Unlock()
	if err != nil || a.Status != wire.FlushIO || a.Where != 8192 {
		t.Errorf("answer %+v, %v", a, err)
	}
	deadline := time.Now().Add(patience)
	for r.info().State.Flags&poolset.Inconsistent == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the copy is not marked")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := PromoteVia(r.cfg.Socket, "p.set", false); !errors.Is(err, wire.StatusInconsistent) {
		t.Errorf("promoted: %v", err)
	}
}
