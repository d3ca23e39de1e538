package iwarp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// held is who has the turn.
func (q *qp) held() holder {
	q.turn.mu.Lock()
	defer q.turn.mu.Unlock()
	return q.turn.holder
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("it never comes true that %s", what)
		}
	}
}

// waiting starts a Wait and returns when it receives.
func waiting(t testing.TB, p *peer, d time.Duration) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cq.Wait(d) }()
	eventually(t, "a waiter has the turn", func() bool { return p.qp.(*qp).held() == waiter })
	return done
}

// visit makes a waiter take the turn from the receiver and leave.
func visit(t testing.TB, p *peer) {
	t.Helper()
	eventually(t, "a waiter gets the turn", func() bool {
		if err := p.cq.Wait(5 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
			t.Fatal(err)
		}
		turn := &p.qp.(*qp).turn
		turn.mu.Lock()
		defer turn.mu.Unlock()
		return turn.moves >= 3 // one of the receiver, two of the waiter
	})
}

// soon takes the result of a Wait that has a reason to end.
func soon(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		t.Fatal("Wait goes on")
		return nil
	}
}

// halfFrame is the beginning of a Send of 40 bytes.
func halfFrame() []byte {
	return frame(header{last: true, op: opSend, msn: 1}, make([]byte, 40), false)[:40]
}

// TestTurnChangesInsideFrames cuts a stream at random places, and lets a waiter or the receiver take each piece. A waiter leaves when
// its time is over, at whatever byte that is.
func TestTurnChangesInsideFrames(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var by [receiver + 1]int
	for i := range 40 {
		crc := i%2 == 1
		request := plain
		if crc {
			request = "5002 0004 0001 0001"
		}
		conn, p := rawPeer(t, Options{CRC: crc}, request)
		check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}, {ID: 2, Local: p.sge(100, 2000)}}))
		payload := make([]byte, 40_000)
		for i := range payload {
			payload[i] = byte(rnd.Uint32())
		}
		write := func(at, n int) []byte {
			return frame(header{tagged: true, last: true, op: opWrite, stag: p.mr.RKey(), to: p.mr.Addr() + uint64(at)}, payload[at:at+n], crc)
		}
		stream := slices.Concat(write(3000, 701), frame(header{last: true, op: opSend, msn: 1}, payload[:33], crc),
			write(5000, 30_000), frame(header{op: opSend, msn: 2}, payload[100:1100], crc),
			frame(header{last: true, op: opSend, msn: 2, mo: 1000}, payload[1100:1950], crc))
		for len(stream) > 0 {
			n := 1 + rnd.IntN(min(len(stream), 1+rnd.IntN(9000)))
			by[piece(t, p, conn, stream[:n], rnd.IntN(2) == 0)]++
			stream = stream[n:]
		}
		for _, want := range []verbs.WC{{ID: 1, Len: 33}, {ID: 2, Len: 1850}} {
			if wc := p.reap(t); wc.Status != verbs.StatusOK || wc.ID != want.ID || wc.Len != want.Len {
				t.Fatalf("completion %+v, want %+v: %v", wc, want, p.qp.Err())
			}
		}
		for _, r := range [][2]int{{0, 33}, {100, 1950}, {3000, 3701}, {5000, 35_000}} {
			if !bytes.Equal(p.mem[r[0]:r[1]], payload[r[0]:r[1]]) {
				t.Fatalf("bytes %d to %d differ", r[0], r[1])
			}
		}
		check(t, conn.Close())
	}
	if by[waiter] == 0 || by[receiver] == 0 {
		t.Errorf("pieces that waiters and the receiver took: %v", by)
	}
}

// piece sends b to a waiter or to the receiver.
func piece(t *testing.T, p *peer, conn net.Conn, b []byte, wait bool) holder {
	t.Helper()
	who, waited := receiver, make(chan error, 1)
	waited <- nil
	if wait {
		who, waited = waiter, make(chan error, 1)
		go func() { waited <- p.cq.Wait(2 * time.Millisecond) }()
	}
	var early []error
	eventually(t, "the turn has the right holder", func() bool {
		if wait && len(waited) > 0 { // over before it was seen, as when a completion is there
			early = append(early, <-waited)
		}
		return len(early) > 0 || p.qp.(*qp).held() == who
	})
	_, err := conn.Write(b)
	check(t, err)
	if len(early) == 0 {
		early = append(early, <-waited)
	}
	if early[0] != nil && !errors.Is(early[0], verbs.ErrTimeout) {
		t.Fatal(early[0])
	}
	return who
}

// TestWaitEndsInsideFrame: the time of a Wait is over while half a frame is there.
func TestWaitEndsInsideFrame(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
	_, err := conn.Write(halfFrame())
	check(t, err)
	for _, d := range []time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		start := time.Now()
		if err := p.cq.Wait(d); !errors.Is(err, verbs.ErrTimeout) {
			t.Fatal(err)
		}
		if took := time.Since(start); took < d || took > d+time.Second {
			t.Errorf("a Wait of %v took %v", d, took)
		}
	}
}

// TestShortWaits: waits that are too short to receive anything do not keep others from it.
func TestShortWaits(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
	visit(t, p)
	_, err := conn.Write(frame(header{last: true, op: opSend, msn: 1}, []byte("message"), false))
	check(t, err)
	eventually(t, "the message completes", func() bool { return p.cq.Wait(20*time.Microsecond) == nil })
}

// TestCloseInterruptsWait closes the queue pair under a waiter that receives. What was posted is flushed, and wakes it.
func TestCloseInterruptsWait(t *testing.T) {
	for _, half := range [][]byte{nil, halfFrame()} {
		conn, p := rawPeer(t, Options{}, plain)
		check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
		done := waiting(t, p, 10*time.Second)
		_, err := conn.Write(half)
		check(t, err)
		time.Sleep(2 * time.Millisecond)
		start := time.Now()
		check(t, p.qp.Close())
		if d := time.Since(start); d > time.Second {
			t.Errorf("Close took %v", d)
		}
		check(t, soon(t, done))
		if wc := p.reap(t); wc.ID != 1 || wc.Status != verbs.StatusFlushed {
			t.Errorf("completion %+v", wc)
		}
		if n, err := p.cq.Poll(make([]verbs.WC, 1)); n != 0 || err != nil {
			t.Errorf("%d completions more, %v", n, err)
		}
	}
}

// TestCloseQueueInterruptsWait closes the completion queue instead.
func TestCloseQueueInterruptsWait(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	done := waiting(t, p, 10*time.Second)
	_, err := conn.Write(halfFrame())
	check(t, err)
	check(t, p.cq.Close())
	if err := soon(t, done); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
}

// TestLostWhileWaiting: a waiter that receives is told of the end of the connection, by one completion with the cause.
func TestLostWhileWaiting(t *testing.T) {
	for _, c := range []struct {
		bytes  []byte
		status verbs.Status
	}{
		{nil, verbs.StatusPeer},
		{halfFrame(), verbs.StatusTransport},
		{frame(header{last: true, op: opTerminate, queue: queueTerminate, msn: 1}, []byte{0x10, 0, 7, 0}, false), verbs.StatusProtect},
		{frame(header{last: true, op: opSend, msn: 7}, nil, false), verbs.StatusPeer},
	} {
		conn, p := rawPeer(t, Options{}, plain)
		check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}, {ID: 2, Local: p.sge(0, 64)}}))
		done := waiting(t, p, 10*time.Second)
		_, err := conn.Write(c.bytes)
		check(t, err)
		check(t, conn.(*net.TCPConn).CloseWrite())
		check(t, soon(t, done))
		if wc := p.reap(t); wc.ID != 1 || wc.Status != c.status {
			t.Errorf("% x: completion %+v, %v", c.bytes, wc, p.qp.Err())
		}
		if wc := p.reap(t); wc.ID != 2 || wc.Status != verbs.StatusFlushed {
			t.Errorf("% x: completion %+v", c.bytes, wc)
		}
		check(t, conn.Close())
	}
}

// TestSendWakesWait: a waiter that receives is woken by a completion that comes from PostSend.
func TestSendWakesWait(t *testing.T) {
	a, b := newPeer(t, Options{}, 1<<16), newPeer(t, Options{}, 1<<16)
	connect(t, a, b)
	for i := range uint64(20) {
		done := waiting(t, a, 10*time.Second)
		check(t, a.qp.PostSend([]verbs.SendWR{{ID: i, Op: verbs.OpWrite, Signaled: true, Local: a.sge(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}))
		check(t, soon(t, done))
		if wc := a.reap(t); wc.ID != i || wc.Status != verbs.StatusOK {
			t.Fatalf("completion %+v", wc)
		}
	}
}

// TestReceiverTakesOver: when the waiters are gone, messages complete and the end of the connection is found without them.
func TestReceiverTakesOver(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
	visit(t, p)
	_, err := conn.Write(frame(header{last: true, op: opSend, msn: 1}, []byte("message"), false))
	check(t, err)
	var wc [1]verbs.WC
	eventually(t, "the message completes", func() bool {
		n, err := p.cq.Poll(wc[:])
		check(t, err)
		return n == 1
	})
	if wc[0].Status != verbs.StatusOK || wc[0].Len != 7 {
		t.Errorf("completion %+v", wc[0])
	}
	done := waiting(t, p, 500*time.Millisecond)
	eventually(t, "the receiver stops its clock", func() bool {
		turn := &p.qp.(*qp).turn
		turn.mu.Lock()
		defer turn.mu.Unlock()
		return turn.parked
	})
	soon(t, done)
	check(t, conn.Close())
	eventually(t, "the end of the connection is found", func() bool { return p.qp.Err() != nil })
}

// TestBothPostMuch lets both sides post more than any buffer holds, while nobody waits and nobody has the turn.
func TestBothPostMuch(t *testing.T) {
	const size, n = 1 << 20, 16
	a, b := newPeer(t, Options{}, 3*size), newPeer(t, Options{}, 3*size)
	connect(t, a, b)
	visit(t, a)
	visit(t, b)
	var wg sync.WaitGroup
	for _, d := range [][2]*peer{{a, b}, {b, a}} {
		wg.Go(func() {
			for i := range uint64(n) {
				wrs := []verbs.SendWR{
					{ID: 2 * i, Op: verbs.OpWrite, Signaled: true, Local: d[0].sge(0, size), RemoteAddr: d[1].mr.Addr() + size, RKey: d[1].mr.RKey()},
					{ID: 2*i + 1, Op: verbs.OpRead, Signaled: true, Local: d[0].sge(2*size, size), RemoteAddr: d[1].mr.Addr(), RKey: d[1].mr.RKey()},
				}
				if err := d[0].qp.PostSend(wrs); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range uint64(2 * n) {
		for _, p := range []*peer{a, b} {
			if wc := p.reap(t); wc.ID != i || wc.Status != verbs.StatusOK {
				t.Fatalf("completion %+v, want success of %d", wc, i)
			}
		}
	}
}

// TestTwoQueuePairsOneQueue: a waiter can receive for one of them at most, and is told of the completions of both.
func TestTwoQueuePairsOneQueue(t *testing.T) {
	p := newPeer(t, Options{}, 1<<16)
	both, err := p.dev.CreateCQ(64)
	check(t, err)
	var near, far [2]*peer
	for i := range near {
		near[i], far[i] = &peer{dev: p.dev, pd: p.pd, cq: both, mem: p.mem, mr: p.mr}, newPeer(t, Options{}, 1<<16)
		near[i].qp, err = p.pd.CreateQP(verbs.QPAttr{SendCQ: both, RecvCQ: both, SendDepth: 16, RecvDepth: 16})
		check(t, err)
		connect(t, far[i], near[i])
	}
	for i := range 50 {
		from := far[i%2]
		check(t, near[i%2].qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), Local: p.sge(0, 64)}}))
		check(t, from.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: from.sge(0, 10)}}))
		if wc := near[0].reap(t); wc.ID != uint64(i) || wc.Status != verbs.StatusOK || wc.QP != near[i%2].qp {
			t.Fatalf("completion %+v, want success of %d", wc, i)
		}
		if wc := from.reap(t); wc.Status != verbs.StatusOK {
			t.Fatalf("completion %+v", wc)
		}
	}
	for i := range near { // the second close is that of the one that nobody receives for
		check(t, near[i].qp.PostRecv([]verbs.RecvWR{{ID: 99, Local: p.sge(0, 64)}}))
		done := make(chan error, 1)
		go func() { done <- both.Wait(5 * time.Second) }()
		check(t, near[i].qp.Close())
		check(t, soon(t, done))
		if wc := near[0].reap(t); wc.ID != 99 || wc.Status != verbs.StatusFlushed {
			t.Errorf("completion %+v", wc)
		}
	}
	check(t, both.Close())
}

// TestReapingGoroutineAllocatesNothing is the drain of a user whose completions are taken by another goroutine than the one
// that posts: each completion of a Send wakes a waiter that receives.
func TestReapingGoroutineAllocatesNothing(t *testing.T) {
	l := newLane(t, Options{})
	answered, stop := make(chan struct{}, 1), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var wc [4]verbs.WC
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, err := l.near.cq.Poll(wc[:])
			if err != nil {
				t.Error(err)
				return
			}
			for i := range wc[:n] {
				if wc[i].Op == verbs.OpRecv {
					answered <- struct{}{}
				}
			}
			if n == 0 {
				_ = l.near.cq.Wait(50 * time.Millisecond) // to look at stop again
			}
		}
	})
	if n := testing.AllocsPerRun(2000, func() {
		check(t, l.near.qp.PostRecv(l.recv[:]))
		check(t, l.near.qp.PostSend(l.wrs[:]))
		<-answered
	}); n != 0 {
		t.Errorf("%v allocations for a round trip", n)
	}
	close(stop)
	wg.Wait()
}
