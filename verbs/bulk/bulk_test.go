package bulk

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// side is one end of a connection, with memory.
type side struct {
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

func newSide(t testing.TB, dev verbs.Device, size, depth int) *side {
	t.Helper()
	s := &side{mem: make([]byte, size)}
	var err error
	s.pd, err = dev.AllocPD()
	check(t, err)
	s.cq, err = dev.CreateCQ(depth)
	check(t, err)
	s.qp, err = s.pd.CreateQP(verbs.QPAttr{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth})
	check(t, err)
	s.mr, err = s.pd.RegisterMR(s.mem, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	check(t, err)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pair(t testing.TB, m verbstest.Mode, size, depth int) (f *verbstest.Fabric, a, b *side) {
	f = verbstest.NewFabric(m)
	a, b = newSide(t, f.Device("a"), size, depth), newSide(t, f.Device("b"), size, depth)
	check(t, f.Link(a.qp, b.qp))
	return f, a, b
}

// flat maps offsets to the same offsets of both regions, in one piece within multiples of edge.
type flat struct {
	local, remote verbs.MR
	edge          uint64
}

func (s *flat) Locate(off, n uint64) (verbs.SGE, uint64, uint32) {
	return verbs.SGE{MR: s.local, Off: off, Len: min(n, s.edge-off%s.edge)}, s.remote.Addr() + off, s.remote.RKey()
}

func TestRun_MovesEveryByteAndNoOther(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const size = 1 << 16
	for range 100 {
		window := 1 + rnd.IntN(9)
		_, a, b := pair(t, verbstest.Auto, size, window)
		for i := range size {
			a.mem[i], b.mem[i] = byte(rnd.Uint32()), byte(rnd.Uint32())
		}
		wantA, wantB := bytes.Clone(a.mem), bytes.Clone(b.mem)
		op := verbs.OpWrite
		if rnd.IntN(2) == 0 {
			op = verbs.OpRead
		}
		c := New(Config{QP: a.qp, Op: op, Space: &flat{a.mr, b.mr, 1 + rnd.Uint64N(9000)},
			Chunk: 1 + rnd.Uint64N(5000), Window: window, Tag: 2, TagBits: 2})
		for range 4 {
			off := rnd.Uint64N(size)
			n := rnd.Uint64N(size - off + 1)
			if op == verbs.OpWrite {
				copy(wantB[off:off+n], a.mem[off:])
			} else {
				copy(wantA[off:off+n], b.mem[off:])
			}
			c.Add(off, n)
			check(t, c.Run(t.Context(), a.cq, time.Second, nil))
		}
		if !bytes.Equal(a.mem, wantA) || !bytes.Equal(b.mem, wantB) {
			t.Fatalf("%v: the memories are not what a copy would leave; %+v", op, c.Config)
		}
	}
}

// TestWindow: no more work requests are in flight than the window has, few of them are signaled, and the places of one
// signal after the other are used again.
func TestWindow(t *testing.T) {
	const window, chunk = 8, 16
	f, a, b := pair(t, verbstest.Stepped, 1<<10, window)
	c := New(Config{QP: a.qp, Op: verbs.OpWrite, Space: &flat{a.mr, b.mr, 1 << 10}, Chunk: chunk, Window: window})
	c.Add(0, 20*chunk+1)
	post(t, c)
	if c.Posted() || c.posted != window {
		t.Fatalf("%d work requests in flight, the window has %d", c.posted, window)
	}
	post(t, c) // posts nothing: the queue pair would refuse it
	var completions, steps int
	for !c.Idle() {
		if !f.Step() {
			t.Fatal("nothing is in flight, and the copy is not complete")
		}
		steps++
		var wc [1]verbs.WC
		n, err := a.cq.Poll(wc[:])
		check(t, err)
		if n == 0 {
			continue
		}
		completions++
		if !c.Mine(&wc[0]) {
			t.Fatal("a completion of its own is not known")
		}
		check(t, c.Complete(&wc[0]))
		post(t, c)
	}
	if steps != 21 || completions != 11 { // every second one; the last in any case
		t.Errorf("%d work requests, %d completions", steps, completions)
	}
}

func post(t *testing.T, c *Copier) {
	t.Helper()
	posted := c.posted
	n, bytes, err := c.Post()
	check(t, err)
	if uint64(n) != c.posted-posted || bytes > uint64(n)*c.Chunk {
		t.Errorf("%d work requests posted, %d and %d bytes reported", c.posted-posted, n, bytes)
	}
}

func TestErrorNamesTheBytes(t *testing.T) {
	_, a, b := pair(t, verbstest.Auto, 1000, 4)
	check(t, b.mr.Deregister())
	short, err := b.pd.RegisterMR(b.mem[:500], verbs.RemoteWrite)
	check(t, err)
	c := New(Config{QP: a.qp, Op: verbs.OpWrite, Space: &flat{a.mr, short, 1000}, Chunk: 100, Window: 4})
	c.Add(50, 900)
	err = c.Run(t.Context(), a.cq, time.Second, nil)
	var e *Error
	var wc *verbs.WCError
	if !errors.As(err, &e) || e.Off != 450 || e.N != 100 || !errors.As(err, &wc) || wc.Status != verbs.StatusProtect {
		t.Fatalf("a copy that leaves the region at 500: %v", err)
	}
	for _, part := range []string{"WRITE of 100 bytes at offset 450", "protection"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

func TestRun_EndsInTime(t *testing.T) {
	_, a, b := pair(t, verbstest.Stepped, 1000, 4) // nobody steps
	c := New(Config{QP: a.qp, Op: verbs.OpWrite, Space: &flat{a.mr, b.mr, 1000}, Chunk: 100, Window: 4})
	c.Add(100, 900)
	if err := c.Run(t.Context(), a.cq, 10*time.Millisecond, nil); !errors.Is(err, verbs.ErrTimeout) || !strings.Contains(err.Error(), "offset 100") {
		t.Errorf("a peer that takes nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := c.Run(ctx, a.cq, time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	check(t, a.cq.Close())
	if err := c.Run(t.Context(), a.cq, time.Minute, nil); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestRun_HandsOnWhatIsNotItsOwn: other work requests share the queue pair and the completion queue.
func TestRun_HandsOnWhatIsNotItsOwn(t *testing.T) {
	_, a, b := pair(t, verbstest.Auto, 1000, 5)
	c := New(Config{QP: a.qp, Op: verbs.OpWrite, Space: &flat{a.mr, b.mr, 1000}, Chunk: 100, Window: 4, Tag: 1, TagBits: 1})
	check(t, a.qp.PostSend([]verbs.SendWR{{ID: 8, Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: a.mr, Len: 1}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}))
	c.Add(0, 1000)
	var got []uint64
	check(t, c.Run(t.Context(), a.cq, time.Second, func(wc *verbs.WC) error {
		got = append(got, wc.ID)
		return nil
	}))
	if len(got) != 1 || got[0] != 8 {
		t.Errorf("handed on: %v", got)
	}
	if err := c.Complete(&verbs.WC{ID: 99<<1 | 1, Op: verbs.OpWrite}); err == nil {
		t.Error("a completion of a work request that was never posted is taken")
	}
	stop := errors.New("stop")
	check(t, a.qp.PostSend([]verbs.SendWR{{ID: 8, Op: verbs.OpWrite, Signaled: true}}))
	c.Add(0, 1)
	if err := c.Run(t.Context(), a.cq, time.Second, func(*verbs.WC) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the other user: %v", err)
	}
}

func TestCopyAllocatesNothing(t *testing.T) {
	_, a, b := pair(t, verbstest.Auto, 1<<16, DefaultWindow)
	c := New(Config{QP: a.qp, Op: verbs.OpWrite, Space: &flat{a.mr, b.mr, 1 << 16}, Chunk: 1 << 8})
	// The fabric in memory allocates for itself, so a queue pair that only counts stands in.
	q := &counting{QP: a.qp}
	c.QP = q
	n := testing.AllocsPerRun(100, func() {
		c.Add(0, 1<<16)
		if err := c.Run(context.Background(), q, time.Second, nil); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 || q.posted == 0 {
		t.Errorf("%v allocations for 256 chunks (%d posted)", n, q.posted)
	}
}

// counting is a queue pair and its completion queue that complete the last work request of each batch.
type counting struct {
	verbs.QP
	verbs.CQ
	posted int
	last   uint64
	full   bool
}

func (q *counting) PostSend(wrs []verbs.SendWR) error {
	for i := range wrs {
		q.posted++
		if wrs[i].Signaled {
			q.last, q.full = wrs[i].ID, true
		}
	}
	return nil
}

func (q *counting) Poll(wc []verbs.WC) (int, error) {
	if !q.full {
		return 0, nil
	}
	q.full = false
	wc[0] = verbs.WC{ID: q.last, Op: verbs.OpWrite}
	return 1, nil
}

func (q *counting) Err() error   { return nil }
func (q *counting) Close() error { return nil }
