package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server is one in this process, over TCP.
type server struct {
	addr string
	mu   sync.Mutex
	errs []error // of clients that ended badly
	gone int     // clients that have ended
}

func newServer(t testing.TB) *server {
	t.Helper()
	dev := iwarp.New(iwarp.Options{})
	listener, err := dev.Listen("127.0.0.1:0")
	check(t, err)
	s := &server{addr: listener.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		err := Serve(ctx, dev, listener, func(_ net.Addr, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gone++
			if err != nil {
				s.errs = append(s.errs, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
		check(t, dev.Close())
	})
	return s
}

// await waits until a client has ended badly, and returns its error.
func (s *server) await(t *testing.T) error {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		if len(s.errs) > 0 {
			defer s.mu.Unlock()
			err := s.errs[0]
			s.errs = nil
			return err
		}
		s.mu.Unlock()
	}
	t.Fatal("no client has ended badly")
	return nil
}

func TestRun(t *testing.T) {
	s := newServer(t)
	var tests []Test
	for _, name := range Names() {
		for _, size := range append(Sizes(name), 72) {
			tests = append(tests, Test{name, size})
		}
	}
	dev := iwarp.New(iwarp.Options{})
	o := Options{Iterations: 10, Time: time.Millisecond, Window: 4}
	n := 0
	check(t, Run(t.Context(), dev, s.addr, o, tests, func(r Result) {
		if r.Test != tests[n] || r.P10 <= 0 || r.P50 < r.P10 || r.P99 < r.P50 || r.Latency() && r.P50 > 10 || !r.Latency() && r.P50 < 1000 {
			t.Errorf("%+v", r)
		}
		n++
	}))
	if n != len(tests) || len(s.errs) > 0 {
		t.Errorf("%d results of %d tests; the server says %v", n, len(tests), s.errs)
	}
	check(t, dev.Close())
}

// TestRun_Busy: a server that a client has asked to poll answers all its requests, and lets go of it when it has gone.
func TestRun_Busy(t *testing.T) {
	s := newServer(t)
	for range maxClients + 1 {
		dev := iwarp.New(iwarp.Options{})
		n := 0
		tests := []Test{{ReadLatency, 8}, {WriteReadLatency, 64}, {WriteLatency, 8}, {ReadLatency, 8}, {WriteBandwidth, 4096}}
		check(t, Run(t.Context(), dev, s.addr, Options{Iterations: 2, Time: 1, Window: 4, Busy: true}, tests, func(Result) { n++ }))
		if n != len(tests) {
			t.Errorf("%d results of %d tests", n, len(tests))
		}
		check(t, dev.Close())
	}
	gone := func() (int, []error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.gone, s.errs
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, _ := gone(); n == maxClients+1 {
			break
		}
	}
	if n, errs := gone(); n != maxClients+1 || len(errs) > 0 {
		t.Errorf("the server has let go of %d clients, and says %v", n, errs)
	}
}

func TestRun_RefusesWhatItCannotDo(t *testing.T) {
	good := Options{Iterations: 1, Time: time.Millisecond, Window: 1}
	for says, c := range map[string]struct {
		o Options
		t Test
	}{
		"round trips":   {Options{Iterations: 0, Time: 1, Window: 1}, Test{ReadLatency, 8}},
		"time":          {Options{Iterations: 1, Time: 0, Window: 1}, Test{ReadLatency, 8}},
		"window":        {Options{Iterations: 1, Time: 1, Window: depth}, Test{ReadLatency, 8}},
		"of 7 bytes":    {good, Test{ReadLatency, 7}},
		"12 bytes":      {good, Test{ReadLatency, 12}},
		"2097152 bytes": {good, Test{ReadLatency, 2 << 20}},
		"no such test":  {good, Test{"send_lat", 8}},
	} {
		err := Run(t.Context(), iwarp.New(iwarp.Options{}), newServer(t).addr, c.o, []Test{c.t}, func(Result) { t.Error("a result") })
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if Sizes("send_lat") != nil {
		t.Error("sizes of a test that does not exist")
	}
}

// client connects a side that the test drives.
func client(t testing.TB, addr string) *side {
	t.Helper()
	dev := iwarp.New(iwarp.Options{})
	s, err := newSide(dev)
	check(t, err)
	t.Cleanup(s.close)
	private, err := dev.Connect(t.Context(), s.qp, addr, s.hello())
	check(t, err)
	check(t, s.meet(private))
	return s
}

// TestServer_Strangers: what is no client of this release is turned away, and a bad request ends its connection alone.
func TestServer_Strangers(t *testing.T) {
	srv := newServer(t)
	dev := iwarp.New(iwarp.Options{})
	s, err := newSide(dev)
	check(t, err)
	defer s.close()
	for _, private := range [][]byte{nil, []byte("PMFPERF1"), append([]byte("PMFPERF2"), make([]byte, 16)...)} {
		_, err := dev.Connect(t.Context(), s.qp, srv.addr, private)
		if !errors.As(err, new(*verbs.RejectedError)) || !strings.Contains(err.Error(), "no `pmemfs bench fabric`") {
			t.Errorf("%q: %v", private, err)
		}
		srv.await(t)
	}
	for _, size := range []uint32{0, 7, 12, MaxSize + 8, 1<<32 - 8} {
		c := client(t, srv.addr)
		binary.LittleEndian.PutUint32(c.sendBuffer(), size)
		check(t, c.send(requestSize))
		if err := srv.await(t); !strings.Contains(err.Error(), "want a multiple of 8") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	check(t, client(t, srv.addr).send(3))
	if err := srv.await(t); !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("short message: %v", err)
	}
	check(t, Run(t.Context(), iwarp.New(iwarp.Options{}), srv.addr, Options{Iterations: 1, Time: 1, Window: 1}, []Test{{WriteLatency, 8}}, func(Result) {}))
}

// TestExchange_PeerDies: a side that waits for a WRITE ends when the connection does.
func TestExchange_PeerDies(t *testing.T) {
	srv := newServer(t)
	c := client(t, srv.addr)
	_, err := c.startExchange(t.Context(), 8, 100, 1, false)
	check(t, err)
	c.close()
	if err := srv.await(t); errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("the server waits for the time to pass: %v", err)
	}
}

func TestLoopsAllocateNothing(t *testing.T) {
	s := client(t, newServer(t).addr)
	const n = 64
	e, err := s.startExchange(t.Context(), 64, n+1, 1, false)
	check(t, err)
	demand := func(name string, loop func() error) {
		t.Helper()
		if got := testing.AllocsPerRun(n, func() { check(t, loop()) }); got >= 1 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	demand("exchange of WRITEs", func() error { return e.trip(t.Context()) })
	s.wrs[0] = s.read(8)
	demand("READ", func() error { return s.roundTrip(1) })
	s.wrs[0], s.wrs[1] = s.write(8), s.read(8)
	demand("WRITE and READ", func() error { return s.roundTrip(2) })
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		transfer := s.newTransfer(op, 4096, 8, 64)
		demand(op.String(), func() error { return transfer.run(context.Background(), transfer.round) })
	}
}

// linked makes two sides on f, of which a knows where to write to.
func linked(t *testing.T, f *verbstest.Fabric) (a, b *side) {
	t.Helper()
	a, b = sideOn(t, f, "a"), sideOn(t, f, "b")
	check(t, f.Link(a.qp, b.qp))
	check(t, a.meet(b.hello()))
	return a, b
}

func sideOn(t *testing.T, f *verbstest.Fabric, device string) *side {
	t.Helper()
	s, err := newSide(f.Device(device))
	check(t, err)
	t.Cleanup(s.close)
	return s
}

// TestBusySideGivesUp: a peer that lives and answers nothing ends a busy wait for a completion as well.
func TestBusySideGivesUp(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Stepped) // nobody steps
	a, _ := linked(t, f)
	for _, a.busy = range []bool{false, true} {
		a.most = 20 * time.Millisecond
		a.wrs[0] = a.read(8)
		result := make(chan error, 1)
		go func() { result <- a.roundTrip(1) }()
		select {
		case err := <-result:
			if !errors.Is(err, verbs.ErrTimeout) {
				t.Errorf("busy %v: %v", a.busy, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("busy %v: no end", a.busy)
		}
	}
}

// TestEarlyMessage: a message that comes while a side waits for a completion is there when it is asked for.
func TestEarlyMessage(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Auto)
	a, b := linked(t, f)
	copy(b.sendBuffer(), "next")
	check(t, b.send(4))
	a.wrs[0] = a.read(8)
	check(t, a.roundTrip(1))
	if m, err := a.message(t.Context(), time.Second); err != nil || string(m) != "next" {
		t.Errorf("%q, %v", m, err)
	}
	if m, err := a.message(t.Context(), time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a second time: %q, %v", m, err)
	}
}

// TestServe_EndsInTheMiddle: a client that goes on for ever, fast or slowly, does not keep the server from its end.
func TestServe_EndsInTheMiddle(t *testing.T) {
	for _, pause := range []time.Duration{0, 5 * time.Millisecond} {
		dev := iwarp.New(iwarp.Options{})
		listener, err := dev.Listen("127.0.0.1:0")
		check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, dev, listener, func(net.Addr, error) {}) }()
		s, err := newSide(dev)
		check(t, err)
		defer s.close()
		private, err := dev.Connect(t.Context(), s.qp, listener.Addr().String(), s.hello())
		check(t, err)
		check(t, s.meet(private))
		e, err := s.startExchange(t.Context(), 8, 1<<31, 1, false)
		check(t, err)
		begin, told := time.Now(), false
		for err = e.trip(t.Context()); err == nil; err = e.trip(t.Context()) {
			time.Sleep(pause)
			switch d := time.Since(begin); {
			case d > 5*time.Second:
				t.Fatalf("pause %v: the server goes on", pause)
			case d > 50*time.Millisecond && !told:
				cancel()
				told = true
			}
		}
		check(t, <-served)
		cancel()
	}
}
