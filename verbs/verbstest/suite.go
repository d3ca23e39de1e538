package verbstest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// Provider makes two devices that reach each other, and an address that the second can listen on.
type Provider func(t testing.TB) (a, b verbs.Device, addr string)

// Limit is what a device cannot do that the contract leaves to it.
type Limit uint8

const (
	// TerminateHidden: the device does not tell its user what the Terminate of a peer said, so StatusPeer stands for StatusProtect.
	TerminateHidden Limit = iota
	// ReadsUnchecked: a peer can read any region of the protection domain, granted or not (siw).
	ReadsUnchecked
	// EmptyReadsFilled: a Read of no bytes may be answered with those of the Read before it, which ends the connection (siw, when the
	// request comes before it is done with that Read).
	EmptyReadsFilled
)

// TestProvider checks the contract of package verbs.
func TestProvider(t *testing.T, p Provider, limits ...Limit) {
	remoteChecks := func(t *testing.T, p Provider) { testRemoteChecks(t, p, limits) }
	transfer := func(t *testing.T, p Provider) { testTransfer(t, p, limits) }
	for _, c := range []struct {
		name string
		run  func(t *testing.T, p Provider)
	}{
		{"Connect", testConnect},
		{"Reject", testReject},
		{"ConnectTimeout", testConnectTimeout},
		{"Transfer", transfer},
		{"SendAfterWrite", testSendAfterWrite},
		{"ResponderFirst", testResponderFirst},
		{"CompletionOrder", testCompletionOrder},
		{"Unsignaled", testUnsignaled},
		{"QueueFull", testQueueFull},
		{"ManyReads", testManyReads},
		{"ManyRegions", testManyRegions},
		{"Big", testBig},
		{"BothSend", testBothSend},
		{"ManyPosters", testManyPosters},
		{"LocalChecks", testLocalChecks},
		{"RemoteChecks", remoteChecks},
		{"NoBytesNoCheck", testNoBytesNoCheck},
		{"SendWithoutReceive", testSendWithoutReceive},
		{"SendTooLong", testSendTooLong},
		{"PeerCloses", testPeerCloses},
		{"CloseFlushes", testCloseFlushes},
		{"CloseWhileBusy", testCloseWhileBusy},
		{"DeregisterWhileBusy", testDeregisterWhileBusy},
		{"Fence", testFence},
		{"Inline", testInline},
		{"Flush", testFlush},
		{"AtomicWrite", testAtomicWrite},
		{"Rights", testRights},
		{"CQ", testCQ},
		{"OpenObjects", testOpenObjects},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, p) })
	}
}

// devices makes the devices, and checks at the end of the test that nothing of them is left open.
func (p Provider) devices(t testing.TB) (a, b verbs.Device, addr string) {
	t.Helper()
	a, b, addr = p(t)
	t.Cleanup(func() {
		check(t, a.Close())
		check(t, b.Close())
	})
	return a, b, addr
}

// pair makes two connected sides with regions of size bytes.
func (p Provider) pair(t testing.TB, size int) (a, b *side) {
	t.Helper()
	da, db, addr := p.devices(t)
	a, b = newSide(t, da, size), newSide(t, db, size)
	join(t, a, b, addr)
	return a, b
}

func testConnect(t *testing.T, p Provider) {
	da, db, addr := p.devices(t)
	a, b := newSide(t, da, 64), newSide(t, db, 64)
	if err := a.qp.PostSend([]verbs.SendWR{a.send(1, 0, 1)}); err == nil {
		t.Error("a queue pair without a connection takes a Send")
	}
	l := must(db.Listen(addr))(t)
	request, answer := bytes.Repeat([]byte("q"), verbs.MaxPrivate), bytes.Repeat([]byte("a"), verbs.MaxPrivate)
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err == nil && !bytes.Equal(r.PrivateData(), request) {
			err = errors.New("the private data of the request are not what was sent")
		}
		if err == nil {
			err = r.Accept(b.qp, answer)
		}
		done <- err
	}()
	got, err := da.Connect(t.Context(), a.qp, l.Addr().String(), request)
	check(t, err)
	check(t, <-done)
	if !bytes.Equal(got, answer) {
		t.Errorf("private data of the answer: %q", got)
	}
	if _, err := da.Connect(t.Context(), a.qp, l.Addr().String(), nil); err == nil {
		t.Error("a queue pair can be connected twice")
	}
	check(t, l.Close())
	if _, err := l.Accept(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	c := newSide(t, da, 64)
	if _, err := da.Connect(t.Context(), c.qp, l.Addr().String(), nil); err == nil {
		t.Error("connected to a listener that is closed")
	}
	if _, err := da.Connect(t.Context(), c.qp, l.Addr().String(), make([]byte, verbs.MaxPrivate+1)); err == nil {
		t.Error("private data above the limit are accepted")
	}
}

func testReject(t *testing.T, p Provider) {
	da, db, addr := p.devices(t)
	a, b := newSide(t, da, 64), newSide(t, db, 64)
	l := must(db.Listen(addr))(t)
	defer l.Close()
	done := make(chan error, 1)
	reason := "not now" + strings.Repeat(".", verbs.MaxReason-7)
	go func() {
		r, err := l.Accept()
		if err == nil {
			err = r.Reject([]byte(reason))
		}
		done <- err
	}()
	_, err := da.Connect(t.Context(), a.qp, l.Addr().String(), nil)
	check(t, <-done)
	var no *verbs.RejectedError
	if !errors.As(err, &no) || string(no.Private) != reason {
		t.Fatalf("the rejected side got %v", err)
	}
	join(t, a, b, addr) // a queue pair that was rejected can try again
	b.postRecv(t, 1, 0, 8)
	a.post(t, a.send(2, 0, 8))
	good(t, b.rcq, 1)
}

func testConnectTimeout(t *testing.T, p Provider) {
	da, db, addr := p.devices(t)
	a := newSide(t, da, 64)
	l := must(db.Listen(addr))(t)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := da.Connect(ctx, a.qp, l.Addr().String(), nil); !errors.Is(err, verbs.ErrTimeout) {
		t.Fatalf("Connect to a listener that does not answer: %v", err)
	}
}

// testTransfer moves random pieces in both directions with all operations and compares the memories with a model.
func testTransfer(t *testing.T, p Provider, limits []Limit) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const size = 1 << 20
	a, b := p.pair(t, size)
	for i := range a.mem {
		a.mem[i], b.mem[i] = byte(rnd.Uint32()), byte(rnd.Uint32())
	}
	wantA, wantB := bytes.Clone(a.mem), bytes.Clone(b.mem)
	lengths := []int{0, 1, 3, 48, 511, 512, 513, 4096, 16383, 16385, 61440, 61441, 65536, 300_001}
	for i := range uint64(300) {
		n := lengths[rnd.IntN(len(lengths))]
		x, y := rnd.IntN(size-n+1), rnd.IntN(size-n+1)
		switch rnd.IntN(3) {
		case 0:
			a.post(t, a.write(i, x, n, b, y))
			copy(wantB[y:], wantA[x:x+n])
			a.settle(t, b, i)
		case 1:
			if n == 0 && slices.Contains(limits, EmptyReadsFilled) {
				continue
			}
			a.post(t, a.read(i, x, n, b, y))
			copy(wantA[x:], wantB[y:y+n])
			if wc := good(t, a.scq, i); int(wc.Len) != n || wc.Op != verbs.OpRead {
				t.Fatalf("completion of a Read of %d bytes: %+v", n, wc)
			}
		case 2:
			b.postRecv(t, i, y, n)
			a.post(t, a.send(i, x, n))
			copy(wantB[y:], wantA[x:x+n])
			good(t, a.scq, i)
			if wc := good(t, b.rcq, i); int(wc.Len) != n || wc.Op != verbs.OpRecv {
				t.Fatalf("completion of a receive of %d bytes: %+v", n, wc)
			}
		}
	}
	if !bytes.Equal(a.mem, wantA) || !bytes.Equal(b.mem, wantB) {
		t.Error("the memories are not what the operations make of them")
	}
}

// settle proves that the Write with this id is placed, by a message behind it.
func (s *side) settle(t testing.TB, o *side, id uint64) {
	t.Helper()
	good(t, s.scq, id)
	o.postRecv(t, id, 0, 0)
	s.post(t, s.send(id, 0, 0))
	good(t, s.scq, id)
	good(t, o.rcq, id)
}

// testSendAfterWrite checks that each message finds the bytes that were written before it.
func testSendAfterWrite(t *testing.T, p Provider) {
	const rounds, slot = 2000, 1000
	a, b := p.pair(t, rounds*slot)
	for i := range rounds {
		for j := range slot {
			a.mem[i*slot+j] = byte(i + j + 1)
		}
	}
	for i := range 32 {
		b.postRecv(t, uint64(i), 0, 0)
	}
	sent := make(chan struct{}, 32)
	go func() {
		defer close(sent)
		for i := range rounds {
			sent <- struct{}{} // a credit
			w := a.write(0, i*slot, slot, b, i*slot)
			w.Signaled = false
			if err := a.qp.PostSend([]verbs.SendWR{w, a.send(1, 0, 0)}); err != nil {
				t.Error(err)
				return
			}
			next(t, a.scq)
		}
	}()
	for i := range rounds {
		good(t, b.rcq, uint64(i))
		if !bytes.Equal(b.mem[i*slot:(i+1)*slot], a.mem[i*slot:(i+1)*slot]) {
			t.Fatalf("message %d arrived before the bytes of the Write posted before it", i)
		}
		b.postRecv(t, uint64(i+32), 0, 0)
		<-sent
	}
}

// testResponderFirst lets the side that accepted send the first message.
func testResponderFirst(t *testing.T, p Provider) {
	a, b := p.pair(t, 64)
	a.postRecv(t, 1, 0, 8)
	copy(b.mem, "greeting")
	b.post(t, b.send(2, 0, 8))
	good(t, a.rcq, 1)
	if string(a.mem[:8]) != "greeting" {
		t.Errorf("got %q", a.mem[:8])
	}
}

// testCompletionOrder mixes all operations. None of them touches bytes of another, since a Read is not ordered before
// a Write behind it.
func testCompletionOrder(t *testing.T, p Provider) {
	a, b := p.pair(t, 1<<20)
	for i := range uint64(20) {
		b.postRecv(t, i, 600_000, 64)
	}
	var wrs []verbs.SendWR
	for i := range uint64(20) {
		wrs = append(wrs, a.read(3*i, 100_000, 40_000, b, 0), a.write(3*i+1, 0, 10, b, 500_000), a.send(3*i+2, 0, 10))
	}
	a.post(t, wrs...)
	for i := range uint64(60) {
		good(t, a.scq, i)
	}
	for i := range uint64(20) {
		good(t, b.rcq, i)
	}
}

func testUnsignaled(t *testing.T, p Provider) {
	a, b := p.pair(t, 1<<10)
	for range 10 {
		var wrs []verbs.SendWR
		for i := range uint64(depth) {
			w := a.write(i, 0, 8, b, 0)
			w.Signaled = i == depth-1
			wrs = append(wrs, w)
		}
		a.post(t, wrs...) // fits only if the last signaled one gave back all places
		good(t, a.scq, depth-1)
	}
	silent(t, a.scq)
}

func testQueueFull(t *testing.T, p Provider) {
	a, b := p.pair(t, 1<<10)
	full := make([]verbs.SendWR, depth+1)
	for i := range full {
		full[i] = a.write(uint64(i), 0, 8, b, 8)
	}
	a.mem[0] = 1
	if err := a.qp.PostSend(full); !errors.Is(err, verbs.ErrQueueFull) {
		t.Fatalf("a batch longer than the queue: %v", err)
	}
	silent(t, a.scq)
	a.post(t, full[:depth]...)
	if err := a.qp.PostSend(full[:1]); !errors.Is(err, verbs.ErrQueueFull) {
		t.Fatalf("one more than the queue holds: %v", err)
	}
	for i := range uint64(depth) {
		good(t, a.scq, i)
	}
	a.post(t, full[0])
	good(t, a.scq, 0)
	for i := range uint64(depth) {
		b.postRecv(t, i, 0, 1)
	}
	if err := b.qp.PostRecv([]verbs.RecvWR{{Local: b.sge(0, 1)}}); !errors.Is(err, verbs.ErrQueueFull) {
		t.Fatalf("one receive more than the queue holds: %v", err)
	}
}

// testManyReads posts more Reads than a connection carries at a time.
func testManyReads(t *testing.T, p Provider) {
	const n = 5000
	a, b := p.pair(t, depth*n)
	for i := range b.mem {
		b.mem[i] = byte(i * 13)
	}
	wrs := make([]verbs.SendWR, depth)
	for i := range wrs {
		wrs[i] = a.read(uint64(i), i*n, n, b, i*n)
	}
	a.post(t, wrs...)
	for i := range uint64(depth) {
		good(t, a.scq, i)
	}
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("the bytes that were read are not those of the peer")
	}
}

func testManyRegions(t *testing.T, p Provider) {
	const n = 2000
	a, b := p.pair(t, n)
	far := make([]byte, 8*n)
	regions := make([]verbs.MR, n)
	for i := range regions {
		regions[i] = b.region(t, far[8*i:8*i+8], verbs.RemoteWrite)
		a.mem[i] = byte(i%255 + 1)
	}
	for _, i := range rand.Perm(n) {
		w := a.write(uint64(i), i, 1, b, 0)
		w.RemoteAddr, w.RKey = regions[i].Addr()+3, regions[i].RKey()
		a.post(t, w)
		good(t, a.scq, uint64(i))
	}
	b.postRecv(t, 1, 0, 0)
	a.post(t, a.send(1, 0, 0))
	good(t, b.rcq, 1)
	for i, m := range regions {
		if far[8*i+3] != a.mem[i] {
			t.Fatalf("region %d was not written", i)
		}
		b.drop(t, m)
	}
}

func testBig(t *testing.T, p Provider) {
	const size = 32 << 20
	a, b := p.pair(t, size)
	for i := 0; i < size; i += 511 {
		a.mem[i] = byte(i/511 + 1)
	}
	a.post(t, a.write(1, 0, size, b, 0))
	a.settle(t, b, 1)
	if !bytes.Equal(a.mem, b.mem) {
		t.Fatal("the written bytes differ")
	}
	clear(a.mem)
	a.post(t, a.read(2, 0, size, b, 0))
	good(t, a.scq, 2)
	if !bytes.Equal(a.mem, b.mem) {
		t.Fatal("the read bytes differ")
	}
}

// testBothSend lets both sides write and read more than any buffer holds, before either of them looks at a completion.
func testBothSend(t *testing.T, p Provider) {
	const size = 1 << 20
	a, b := p.pair(t, 3*size)
	var wg sync.WaitGroup
	for _, d := range [][2]*side{{a, b}, {b, a}} {
		wg.Go(func() {
			for i := range uint64(depth / 2) {
				wrs := []verbs.SendWR{d[0].write(2*i, 0, size, d[1], size), d[0].read(2*i+1, 2*size, size, d[1], 0)}
				if err := d[0].qp.PostSend(wrs); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range uint64(depth) {
		good(t, a.scq, i)
		good(t, b.scq, i)
	}
}

// testManyPosters checks that batches of several goroutines are not mixed.
func testManyPosters(t *testing.T, p Provider) {
	const posters, rounds = 4, 100
	a, b := p.pair(t, posters*1024)
	for i := range 2 * posters {
		b.postRecv(t, uint64(i), 0, 8)
	}
	var wg sync.WaitGroup
	turn := make(chan struct{}, posters) // a credit for two messages
	for g := range posters {
		wg.Go(func() {
			a.mem[g*1024] = byte(g)
			for range rounds {
				turn <- struct{}{}
				one, two := a.send(0, g*1024, 1), a.send(0, g*1024, 2)
				one.Signaled = false
				if err := a.qp.PostSend([]verbs.SendWR{one, two}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range posters * rounds {
		if one, two := next(t, b.rcq), next(t, b.rcq); one.Len != 1 || two.Len != 2 || one.Status != 0 || two.Status != 0 {
			t.Fatalf("got %+v and %+v", one, two)
		}
		next(t, a.scq)
		b.postRecv(t, 0, 0, 8)
		b.postRecv(t, 0, 0, 8)
		<-turn
	}
	wg.Wait()
}

func testCQ(t *testing.T, p Provider) {
	da, _, _ := p.devices(t)
	q := must(da.CreateCQ(4))(t)
	pd := must(da.AllocPD())(t)
	if _, err := pd.CreateQP(verbs.QPAttr{SendCQ: q, RecvCQ: q, SendDepth: 3, RecvDepth: 2}); err == nil {
		t.Error("a queue pair with 5 places fits a completion queue of 4")
	}
	qp := must(pd.CreateQP(verbs.QPAttr{SendCQ: q, RecvCQ: q, SendDepth: 2, RecvDepth: 2}))(t)
	check(t, qp.Close())
	qp = must(pd.CreateQP(verbs.QPAttr{SendCQ: q, RecvCQ: q, SendDepth: 2, RecvDepth: 2}))(t) // the places came back
	check(t, qp.Close())
	check(t, pd.Close())

	start := time.Now()
	if err := q.Wait(20 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("Wait without completions: %v", err)
	}
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Errorf("Wait gave up after %v", d)
	}
	woken := make(chan error, 1)
	go func() { woken <- q.Wait(patience) }()
	time.Sleep(10 * time.Millisecond)
	check(t, q.Close())
	if err := <-woken; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Wait of a queue that is closed: %v", err)
	}
	if _, err := q.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Poll of a closed queue: %v", err)
	}
	if _, err := da.CreateCQ(0); err == nil {
		t.Error("a completion queue of depth 0 is of no use")
	}
}

// testOpenObjects checks that nothing is closed over the head of its user.
func testOpenObjects(t *testing.T, p Provider) {
	da, _, _ := p.devices(t)
	pd := must(da.AllocPD())(t)
	if da.Close() == nil {
		t.Error("the device closes with a protection domain open")
	}
	m := must(pd.RegisterMR(make([]byte, 8), allRight))(t)
	if pd.Close() == nil {
		t.Error("the protection domain closes with a region open")
	}
	check(t, m.Deregister())
	if err := m.Deregister(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("second Deregister: %v", err)
	}
	check(t, pd.Close())
	check(t, da.Close())
}
