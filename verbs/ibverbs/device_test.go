//go:build linux && cgo && rdma

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
)

const patience = 10 * time.Second // of every wait

// end is one end of a connection within this process.
type end struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
}

const depth = 16 // of each queue

func newEnd(t testing.TB, mem []byte, a verbs.Access) *end {
	t.Helper()
	e := &end{dev: open(t), mem: mem}
	var err error
	if e.pd, err = e.dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if e.cq, err = e.dev.CreateCQ(2 * depth); err != nil {
		t.Fatal(err)
	}
	if e.qp, err = e.pd.CreateQP(verbs.QPAttr{SendCQ: e.cq, RecvCQ: e.cq, SendDepth: depth, RecvDepth: depth}); err != nil {
		t.Fatal(err)
	}
	if e.mr, err = e.pd.RegisterMR(mem, a); err != nil {
		t.Fatal(err)
	}
	return e
}

// close closes everything, in the right order; nothing may fail, with the device there or gone.
func (e *end) close(t testing.TB) {
	t.Helper()
	for _, c := range []func() error{e.qp.Close, e.mr.Deregister, e.pd.Close, e.cq.Close, e.dev.Close} {
		if err := c(); err != nil {
			t.Error(err)
		}
	}
}

func (e *end) sge(off, n int) verbs.SGE { return verbs.SGE{MR: e.mr, Off: uint64(off), Len: uint64(n)} }

func (e *end) write(o *end, n int) verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpWrite, Signaled: true, Local: e.sge(0, n), RemoteAddr: o.mr.Addr(), RKey: o.mr.RKey()}
}

// reap waits for the next completion.
func (e *end) reap(t testing.TB) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(patience); ; {
		n, err := e.cq.Poll(wc[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return wc[0]
		}
		if err := e.cq.Wait(time.Until(end)); err != nil {
			t.Fatalf("%v (queue pair: %v)", err, e.qp.Err())
		}
	}
}

const all = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead

// pair makes two ends and connects them.
func pair(t testing.TB, size int) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, make([]byte, size), all), newEnd(t, make([]byte, size), all)
	join(t, a, b)
	return a, b
}

func join(t testing.TB, a, b *end) {
	t.Helper()
	l, err := b.dev.Listen(listenAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err == nil {
			err = r.Accept(b.qp, nil)
		}
		done <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := a.dev.Connect(ctx, a.qp, l.Addr().String(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// works checks that a message gets through.
func works(t testing.TB, a, b *end) {
	t.Helper()
	b.receive(t, 1)
	if err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: a.sge(0, 8)}}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*end{a, b} {
		if wc := e.reap(t); wc.Status != verbs.StatusOK {
			t.Errorf("%+v: %v", wc, e.qp.Err())
		}
	}
}

func (e *end) receive(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		if err := e.qp.PostRecv([]verbs.RecvWR{{ID: uint64(i), Local: e.sge(0, 64)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// lost checks that everything outstanding of an end completes in the time, the first with a cause.
func (e *end) lost(t testing.TB, n int, within time.Duration) {
	t.Helper()
	begin := time.Now()
	for i := range n {
		wc := e.reap(t)
		if i == 0 && (wc.Status == verbs.StatusOK || wc.Status == verbs.StatusFlushed) || i > 0 && wc.Status != verbs.StatusFlushed {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	if e.qp.Err() == nil {
		t.Error("no cause")
	}
	if d := time.Since(begin); d > within {
		t.Errorf("it took %v: %v", d, e.qp.Err())
	}
}

func TestNothingIsAllocated(t *testing.T) {
	a, b := pair(t, 4096)
	defer a.close(t)
	defer b.close(t)
	inline := a.write(b, min(64, a.dev.Caps().MaxInline))
	inline.Inline, inline.Signaled = true, false
	read := a.write(b, 64)
	read.Op = verbs.OpRead
	batch := []verbs.SendWR{a.write(b, 64), inline, read, {Op: verbs.OpSend, Signaled: true, Local: a.sge(0, 64)}}
	recv := []verbs.RecvWR{{Local: b.sge(0, 64)}}
	var wc [4]verbs.WC
	take := func(e *end, n int) {
		for n > 0 {
			got, err := e.cq.Poll(wc[:])
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if wc[i].Status != verbs.StatusOK {
					t.Fatalf("%+v: %v", wc[i], e.qp.Err())
				}
			}
			if n -= got; n > 0 && got == 0 {
				if err := e.cq.Wait(patience); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	n := testing.AllocsPerRun(200, func() {
		if err := b.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if err := a.qp.PostSend(batch); err != nil {
			t.Fatal(err)
		}
		take(a, 3)
		take(b, 1)
		if err := a.cq.Wait(2 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) { // sleeps on the completion channel
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for a batch of 4, its completions and a sleep", n)
	}
}

// TestQueueFails tells a device that its completion queue has failed, which no device here does by itself. The receives of the queue pair end, and
// so does the Wait for them; the queue takes no queue pair any more.
func TestQueueFails(t *testing.T) {
	a, b := pair(t, 64)
	defer a.close(t)
	defer b.close(t)
	b.receive(t, 3)
	time.AfterFunc(50*time.Millisecond, func() {
		d := b.dev.(*device)
		d.async.take(asyncEvent{kind: eventCQErr, cq: b.cq.(*completionQueue).number})
	})
	b.lost(t, 3, 2*time.Second)
	if err := b.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pd.CreateQP(verbs.QPAttr{SendCQ: b.cq, RecvCQ: b.cq, SendDepth: 1, RecvDepth: 1}); !errors.Is(err, errQueue) {
		t.Errorf("a queue pair for a completion queue that has failed: %v", err)
	}
}

// TestPeerVanishes: the peer's queue pair is gone, without a disconnect. Over InfiniBand and RoCE nobody says so; over TCP the connection ends.
func TestPeerVanishes(t *testing.T) {
	a, b := pair(t, 4096)
	defer a.close(t)
	q := b.qp.(*qp)
	q.mu.Lock()
	id := q.id
	q.id = nil
	q.mu.Unlock()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	a.receive(t, 3)
	if err := a.qp.PostSend([]verbs.SendWR{a.write(b, 64)}); err != nil {
		t.Fatal(err)
	}
	n := 4
	if isSIW(t) && a.qp.Err() == nil { // the Write may have gone into the socket before the end of the connection was seen
		if wc := a.reap(t); wc.Status == verbs.StatusOK {
			n = 3
			a.lost(t, n, 5*time.Second)
		} else {
			a.rest(t, 3)
		}
	} else {
		a.lost(t, n, 5*time.Second)
	}
	if err := id.destroy(); err != nil {
		t.Error(err)
	}
	b.close(t)
}

// TestPeerSilent: the peer's machine falls silent in the middle of a connection over TCP, which says nothing for a quarter of an hour. A wait ends at its own time or by Close, and
// Close flushes what is outstanding and waits for no peer. Over InfiniBand and RoCE the device gives up by itself (TestPeerVanishes).
func TestPeerSilent(t *testing.T) {
	if !isSIW(t) {
		return
	}
	a, b := pair(t, 1<<20)
	defer b.close(t)
	defer command(t, "ip", "link", "set", "lo", "up")
	a.receive(t, 3)
	b.receive(t, 3)
	command(t, "ip", "link", "set", "lo", "down") // both ends have the same address

	read := a.write(b, 64)
	read.Op = verbs.OpRead
	batch := []verbs.SendWR{read} // its answer never comes, and what is behind it completes after it
	for range 8 {
		batch = append(batch, a.write(b, 1<<20)) // more than the socket takes
	}
	if err := a.qp.PostSend(batch); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := a.cq.Wait(300 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a wait for a silent peer: %v", err)
	}
	if d := time.Since(begin); d > patience {
		t.Errorf("a wait of 0.3 s took %v", d)
	}
	waited := make(chan error, 1)
	go func() { waited <- a.cq.Wait(2 * patience) }()
	time.Sleep(50 * time.Millisecond)
	begin = time.Now()
	if err := a.qp.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > patience {
		t.Errorf("Close took %v", d)
	}
	if err := <-waited; err != nil {
		t.Errorf("the wait that Close ends: %v", err)
	}
	a.rest(t, len(batch)+3)
	a.close(t)
}

// TestConnectIsHeldUp: nothing answers a connection over TCP, which siw makes within one call. Connect and Close end in time all the same, and when the kernel has given up, all is freed.
func TestConnectIsHeldUp(t *testing.T) {
	if !isSIW(t) {
		return
	}
	a := newEnd(t, make([]byte, 4096), all)
	a.receive(t, 3)
	defer command(t, "ip", "link", "set", "lo", "up")
	command(t, "ip", "link", "set", "lo", "down")
	took := func(what string, least time.Duration, f func() error) error { // the kernel takes two minutes
		begin := time.Now()
		err := f()
		if d := time.Since(begin); d < least || d > patience {
			t.Errorf("%s took %v", what, d)
		}
		return err
	}
	err := took("Connect", 0, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := a.dev.Connect(ctx, a.qp, net.JoinHostPort(env(t, "PMEMFS_RDMA_ADDR"), "7472"), nil)
		return err
	})
	if !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("Connect: %v", err)
	}
	if err := took("Close", closePatience, a.qp.Close); err != nil {
		t.Error(err)
	}
	a.rest(t, 3)
	for _, c := range []func() error{a.mr.Deregister, a.pd.Close, a.cq.Close} {
		if err := took("what is behind it", 0, c); err != nil {
			t.Error(err)
		}
	}
	if err := took("Close of the device", closePatience, a.dev.Close); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("Close of the device: %v", err)
	}
	command(t, "ip", "link", "set", "lo", "up")
	for end := time.Now().Add(3 * patience); ; {
		if err := a.dev.Close(); err == nil {
			return
		} else if !errors.Is(err, verbs.ErrTimeout) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestNotReadyIsRetried: a peer that may have to wait for a page answers that it is not ready, and then gets the message again, some times. A
// missing receive shows how often.
func TestNotReadyIsRetried(t *testing.T) {
	a, b := pair(t, 64)
	defer a.close(t)
	defer b.close(t)
	begin := time.Now()
	if err := a.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: a.sge(0, 8)}}); err != nil {
		t.Fatal(err)
	}
	if isSIW(t) {
		return // iWARP has no such answer
	}
	if wc := a.reap(t); wc.Status == verbs.StatusOK {
		t.Errorf("%+v", wc)
	}
	if d := time.Since(begin); b.dev.Caps().OnDemand && d < 6*2560*time.Microsecond || d > 5*time.Second {
		t.Errorf("given up after %v", d)
	}
}

// TestCloseEndsAttempts: Close while a Connect looks for a machine that is not there.
func TestCloseEndsAttempts(t *testing.T) {
	a := newEnd(t, make([]byte, 64), verbs.LocalWrite)
	defer a.close(t)
	nobody := net.ParseIP(env(t, "PMEMFS_RDMA_ADDR")).To4()
	nobody[3] = 199
	done := make(chan error, 1)
	go func() {
		_, err := a.dev.Connect(t.Context(), a.qp, net.JoinHostPort(nobody.String(), "7472"), nil)
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	begin := time.Now()
	if err := a.qp.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("connected to nobody")
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
}

// rest checks that n more completions are there, all flushed.
func (e *end) rest(t testing.TB, n int) {
	t.Helper()
	for range n {
		if wc := e.reap(t); wc.Status != verbs.StatusFlushed {
			t.Errorf("%+v", wc)
		}
	}
}

// command runs a program that changes the network.
func command(t testing.TB, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v: %s", args, err, out)
	}
}

// active waits until the device can be used.
func active(t testing.TB) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = useable(env(t, "PMEMFS_RDMA_ADDR")); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// useable chooses the device by its address, as a target does.
func useable(addr string) error {
	d, err := Open(Options{Addr: addr + ":1", GID: AnyGID})
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Listen(addr + ":0")
	if err != nil {
		return err
	}
	return l.Close()
}

// TestPersistentFlush writes to persistent memory, flushes it, stores a word behind that, and flushes it.
func TestPersistentFlush(t *testing.T) {
	const size = 2 << 20
	f, err := os.OpenFile(env(t, "PMEMFS_RDMA_DAX"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	clear(mem)
	a := newEnd(t, make([]byte, 4096), all)
	defer a.close(t)
	if !a.dev.Caps().Flush || !a.dev.Caps().AtomicWrite {
		if _, err := a.pd.RegisterMR(mem, all|verbs.RemoteFlush); !errors.Is(err, verbs.ErrUnsupported) {
			t.Errorf("a device without FLUSH registers for it: %v", err)
		}
		return
	}
	if _, err := a.pd.RegisterMR(make([]byte, 4096), all|verbs.RemoteFlush); err == nil {
		t.Error("memory that is not persistent is registered for FLUSH")
	}
	b := newEnd(t, mem, all|verbs.RemoteFlush)
	defer b.close(t)
	join(t, a, b)
	copy(a.mem, "persistent")
	w := a.write(b, 10)
	w.Signaled = false
	flush := verbs.SendWR{ID: 1, Op: verbs.OpFlush, Signaled: true, Local: verbs.SGE{Len: 10}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	word := verbs.SendWR{ID: 2, Op: verbs.OpAtomicWrite, Signaled: true, Fence: true, Value: 0x1122334455667788, RemoteAddr: b.mr.Addr() + 64, RKey: b.mr.RKey()}
	again := flush
	again.ID, again.RemoteAddr, again.Local.Len, again.Fence = 3, word.RemoteAddr, 8, true
	if err := a.qp.PostSend([]verbs.SendWR{w, flush, word, again}); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(3) {
		if wc := a.reap(t); wc.Status != verbs.StatusOK || wc.ID != id+1 {
			t.Fatalf("%+v: %v", wc, a.qp.Err())
		}
	}
	if got := fmt.Sprintf("%s %x", mem[:10], mem[64:72]); got != "persistent 8877665544332211" {
		t.Errorf("the memory has %q", got)
	}
}

// TestOptions: devices and GIDs that are not there are refused with what there is.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Device: "none", GID: AnyGID},
		{Device: env(t, "PMEMFS_RDMA_DEVICE"), GID: 255},
		{Addr: "127.0.0.1:1", GID: AnyGID},
	} {
		if d, err := Open(o); err == nil {
			t.Errorf("%+v opens %s", o, d.Name())
		} else {
			t.Log(err)
		}
	}
	if err := useable(env(t, "PMEMFS_RDMA_ADDR")); err != nil {
		t.Error(err)
	}
}

func TestPortDown(t *testing.T) {
	netdev := env(t, "PMEMFS_RDMA_NETDEV")
	addr := env(t, "PMEMFS_RDMA_ADDR")
	a, b := pair(t, 4096)
	a.receive(t, 3)
	b.receive(t, 3)
	command(t, "ip", "link", "set", netdev, "down")
	a.lost(t, 3, 2*time.Second)
	b.lost(t, 3, 2*time.Second)
	a.close(t)
	b.close(t)
	if _, err := Open(Options{Device: env(t, "PMEMFS_RDMA_DEVICE"), GID: AnyGID}); err == nil {
		t.Error("a device without an active port opens")
	}
	command(t, "ip", "link", "set", netdev, "up")
	command(t, "ip", "addr", "replace", addr+"/24", "dev", netdev)
	active(t)
	if !isSIW(t) { // the connection manager gets no answer over an rxe device whose interface was down, in any process
		command(t, "rdma", "link", "delete", env(t, "PMEMFS_RDMA_DEVICE"))
		plug(t)
	}
	c, d := pair(t, 64)
	works(t, c, d)
	c.close(t)
	d.close(t)
}

// plug adds the device.
func plug(t testing.TB) {
	t.Helper()
	command(t, "rdma", "link", "add", env(t, "PMEMFS_RDMA_DEVICE"), "type", env(t, "PMEMFS_RDMA"), "netdev", env(t, "PMEMFS_RDMA_NETDEV"))
	active(t)
}
