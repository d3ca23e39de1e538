package verbstest

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// testLocalChecks posts work requests that are wrong in themselves. They are refused, and the connection lives on.
func testLocalChecks(t *testing.T, p Provider) {
	a, b := p.pair(t, 1024)
	other := must(a.dev.AllocPD())(t)
	foreign := must(other.RegisterMR(make([]byte, 64), allRight))(t)
	readOnly := a.region(t, make([]byte, 64), verbs.RemoteRead)
	gone := a.region(t, make([]byte, 64), allRight)
	a.drop(t, gone)
	for _, c := range []struct {
		name  string
		op    verbs.Opcode
		local verbs.SGE
	}{
		{"end beyond the region", verbs.OpWrite, a.sge(1000, 25)},
		{"start beyond the region", verbs.OpSend, a.sge(1025, 0)},
		{"wrapping", verbs.OpWrite, verbs.SGE{MR: a.mr, Off: math.MaxUint64, Len: 2}},
		{"too much", verbs.OpWrite, verbs.SGE{MR: a.mr, Len: verbs.MaxMessage + 1}},
		{"no region", verbs.OpSend, verbs.SGE{Len: 1}},
		{"region of another domain", verbs.OpWrite, verbs.SGE{MR: foreign, Len: 8}},
		{"region that is gone", verbs.OpWrite, verbs.SGE{MR: gone, Len: 8}},
		{"sink without local write", verbs.OpRead, verbs.SGE{MR: readOnly, Len: 8}},
		{"receive as a send", verbs.OpRecv, a.sge(0, 8)},
		{"unknown operation", 99, a.sge(0, 8)},
	} {
		wrs := []verbs.SendWR{a.send(1, 0, 8), {ID: 2, Op: c.op, Signaled: true, Local: c.local, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}
		if err := a.qp.PostSend(wrs); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
	for _, s := range []verbs.SGE{{MR: readOnly, Len: 8}, {MR: foreign, Len: 8}, a.sge(1020, 8), {Len: 1}} {
		if a.qp.PostRecv([]verbs.RecvWR{{Local: s}}) == nil {
			t.Errorf("receive into %+v: accepted", s)
		}
	}
	check(t, foreign.Deregister())
	check(t, other.Close())
	a.drop(t, readOnly)
	b.postRecv(t, 3, 0, 8)
	a.post(t, a.send(3, 0, 8)) // finds the receive only if none of the others was sent
	good(t, a.scq, 3)
	good(t, b.rcq, 3)
}

const readWithoutRight = "read without right"

// testRemoteChecks touches what the peer does not grant: the connection ends with a protection error, and the memory stays.
func testRemoteChecks(t *testing.T, p Provider, limits []Limit) {
	const size = 1 << 17
	for _, c := range []struct {
		name string
		op   verbs.Opcode
		n    int
		at   func(b *side, ro, wo, foreign, gone verbs.MR) (verbs.MR, uint64)
	}{
		{"write without right", verbs.OpWrite, 8, func(_ *side, ro, _, _, _ verbs.MR) (verbs.MR, uint64) { return ro, 0 }},
		{readWithoutRight, verbs.OpRead, 8, func(_ *side, _, wo, _, _ verbs.MR) (verbs.MR, uint64) { return wo, 0 }},
		{"write to another domain", verbs.OpWrite, 8, func(_ *side, _, _, f, _ verbs.MR) (verbs.MR, uint64) { return f, 0 }},
		{"read from another domain", verbs.OpRead, 8, func(_ *side, _, _, f, _ verbs.MR) (verbs.MR, uint64) { return f, 0 }},
		{"write to a region that is gone", verbs.OpWrite, 8, func(_ *side, _, _, _, g verbs.MR) (verbs.MR, uint64) { return g, 0 }},
		{"read from a region that is gone", verbs.OpRead, 8, func(_ *side, _, _, _, g verbs.MR) (verbs.MR, uint64) { return g, 0 }},
		{"write over the end", verbs.OpWrite, 9, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, size - 8 }},
		{"write behind the end", verbs.OpWrite, 1, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, size }},
		{"write before the start", verbs.OpWrite, 8, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, ^uint64(0) }},
		{"read over the end", verbs.OpRead, 9, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, size - 8 }},
		{"read before the start", verbs.OpRead, 8, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, ^uint64(0) }},
		{"write around the address space", verbs.OpWrite, 8, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, -b.mr.Addr() - 4 }},
		{"read around the address space", verbs.OpRead, 8, func(b *side, _, _, _, _ verbs.MR) (verbs.MR, uint64) { return b.mr, -b.mr.Addr() - 4 }},
	} {
		if c.name == readWithoutRight && slices.Contains(limits, ReadsUnchecked) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			a, b := p.pair(t, size)
			other := must(b.dev.AllocPD())(t)
			mem := make([]byte, 4*64)
			foreign := must(other.RegisterMR(mem[:64], allRight))(t)
			ro, wo := b.region(t, mem[64:128], verbs.LocalWrite|verbs.RemoteRead), b.region(t, mem[128:192], verbs.RemoteWrite)
			gone := b.region(t, mem[192:], allRight)
			b.drop(t, gone)
			for i := range a.mem {
				a.mem[i] = 1
			}
			for i := range uint64(3) {
				b.postRecv(t, i, 0, 8)
				a.postRecv(t, i, 0, 8)
			}
			m, off := c.at(b, ro, wo, foreign, gone)
			bad := verbs.SendWR{ID: 1, Op: c.op, Signaled: true, Local: a.sge(0, c.n), RemoteAddr: m.Addr() + off, RKey: m.RKey()}
			a.post(t, bad, a.read(2, 0, 8, b, 0)) // the Read is outstanding when the answer to a bad Write comes
			if wc := failed(t, a.scq, 2); wc.Status != verbs.StatusProtect && !(wc.Status == verbs.StatusPeer && slices.Contains(limits, TerminateHidden)) {
				t.Errorf("the cause is reported as %v: %v", wc.Status, a.qp.Err())
			}
			allFlushed(t, a.rcq, 3)
			failed(t, b.rcq, 3)
			for _, s := range []*side{a, b} {
				if s.qp.Err() == nil {
					t.Error("the queue pair has no cause")
				}
				s.post(t, s.send(9, 0, 1))
				if wc := next(t, s.scq); wc.Status != verbs.StatusFlushed || wc.ID != 9 {
					t.Errorf("posted after the error: %+v", wc)
				}
			}
			if !bytes.Equal(mem, make([]byte, len(mem))) || !bytes.Equal(b.mem, make([]byte, size)) {
				t.Error("the memory of the peer has changed")
			}
			if c.op == verbs.OpRead && !bytes.Equal(a.mem[:16], bytes.Repeat([]byte{1}, 16)) {
				t.Error("a refused Read has brought bytes")
			}
			check(t, foreign.Deregister())
			check(t, other.Close())
			b.drop(t, ro)
			b.drop(t, wo)
		})
	}
}

// allFlushed checks that the next n completions are flushed ones, and that there are no more.
func allFlushed(t testing.TB, q verbs.CQ, n int) {
	t.Helper()
	for range n {
		if wc := next(t, q); wc.Status != verbs.StatusFlushed {
			t.Fatalf("%v of work request %d: %v; want flushed", wc.Op, wc.ID, wc.Status)
		}
	}
	silent(t, q)
}

// testNoBytesNoCheck: a Write of nothing needs no valid address.
func testNoBytesNoCheck(t *testing.T, p Provider) {
	a, b := p.pair(t, 64)
	a.post(t, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true, RemoteAddr: 12345, RKey: 0xDEAD})
	a.settle(t, b, 1)
}

func testSendWithoutReceive(t *testing.T, p Provider) {
	a, b := p.pair(t, 64)
	a.postRecv(t, 1, 0, 8)
	a.post(t, a.send(2, 0, 8))
	if wc := next(t, a.scq); wc.Status == verbs.StatusOK { // the transport took it before the peer refused it
		failed(t, a.rcq, 1)
	} else {
		allFlushed(t, a.rcq, 1)
	}
	b.post(t, b.write(3, 0, 8, a, 0))
	if wc := next(t, b.scq); wc.Status == verbs.StatusOK {
		t.Error("the side without a receive goes on")
	}
}

func testSendTooLong(t *testing.T, p Provider) {
	a, b := p.pair(t, 1<<20)
	for i := range a.mem {
		a.mem[i] = 1
	}
	b.postRecv(t, 1, 0, 4096)
	b.postRecv(t, 2, 8192, 4096)
	a.post(t, a.send(3, 0, 4097))
	if wc := failed(t, b.rcq, 2); wc.Status != verbs.StatusLength || wc.ID != 1 {
		t.Errorf("the receive that was too short: %+v", wc)
	}
	if !bytes.Equal(b.mem[4096:], make([]byte, 1<<20-4096)) {
		t.Error("bytes were placed outside of the receive")
	}
}

func testPeerCloses(t *testing.T, p Provider) {
	a, b := p.pair(t, 64)
	for i := range uint64(5) {
		b.postRecv(t, i, 0, 8)
	}
	check(t, a.qp.Close())
	if wc := failed(t, b.rcq, 5); wc.Status != verbs.StatusPeer || wc.ID != 0 {
		t.Errorf("the cause is reported as %+v: %v", wc, b.qp.Err())
	}
	b.postRecv(t, 7, 0, 8)
	allFlushed(t, b.rcq, 1)
}

func testCloseFlushes(t *testing.T, p Provider) {
	a, b := p.pair(t, 64)
	for i := range uint64(5) {
		b.postRecv(t, i, 0, 8)
	}
	check(t, b.qp.Close())
	allFlushed(t, b.rcq, 5)
	if err := b.qp.PostSend([]verbs.SendWR{b.send(1, 0, 8)}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostSend after Close: %v", err)
	}
	if err := b.qp.PostRecv([]verbs.RecvWR{{Local: b.sge(0, 8)}}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostRecv after Close: %v", err)
	}
	check(t, b.qp.Close())
	c := newSide(t, a.dev, 64)
	c.postRecv(t, 1, 0, 8)
	check(t, c.qp.Close()) // never connected
	allFlushed(t, c.rcq, 1)
}

// testCloseWhileBusy closes one side while both send. Every work request that was accepted completes exactly once.
func testCloseWhileBusy(t *testing.T, p Provider) {
	const size = 100_000
	for range 5 {
		a, b := p.pair(t, 3*size)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, d := range [][2]*side{{a, b}, {b, a}} {
			wg.Go(func() { hammer(t, d[0], d[1], size, stop) })
		}
		time.Sleep(5 * time.Millisecond)
		check(t, a.qp.Close())
		close(stop)
		wg.Wait()
	}
}

// hammer posts Writes and Reads until the queue pair refuses or stop is closed, and counts the completions of each.
func hammer(t *testing.T, s, o *side, size int, stop <-chan struct{}) {
	open := make(map[uint64]bool)
	reap := func() {
		var wc [16]verbs.WC
		n, err := s.scq.Poll(wc[:])
		if err != nil {
			t.Error(err)
		}
		for _, c := range wc[:n] {
			if !open[c.ID] {
				t.Errorf("work request %d completes twice", c.ID)
			}
			delete(open, c.ID)
		}
	}
	for id := uint64(0); ; id += 2 {
		select {
		case <-stop:
			for end := time.Now().Add(patience); len(open) > 0; reap() {
				if time.Now().After(end) {
					t.Errorf("%d work requests never complete", len(open))
					return
				}
				_ = s.scq.Wait(time.Millisecond) // reap looks anyway
			}
			return
		default:
		}
		wrs := []verbs.SendWR{s.write(id, 0, size, o, size), s.read(id+1, 2*size, size, o, 0)}
		switch err := s.qp.PostSend(wrs); {
		case err == nil:
			open[id], open[id+1] = true, true
		case errors.Is(err, verbs.ErrQueueFull):
			_ = s.scq.Wait(time.Millisecond) // as above
		case !errors.Is(err, verbs.ErrClosed):
			t.Error(err)
			return
		}
		reap()
	}
}

// testDeregisterWhileBusy takes a region away under a stream of Writes: from then on it does not change.
func testDeregisterWhileBusy(t *testing.T, p Provider) {
	const size = 200_000
	a, b := p.pair(t, size)
	mem := make([]byte, size)
	m := b.region(t, mem, verbs.RemoteWrite)
	addr, key := m.Addr(), m.RKey()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := byte(0); ; i++ {
			for j := range a.mem {
				a.mem[j] = i
			}
			w := verbs.SendWR{ID: 1, Op: verbs.OpWrite, Signaled: true, Local: a.sge(0, size), RemoteAddr: addr, RKey: key}
			if err := a.qp.PostSend([]verbs.SendWR{w}); err != nil {
				t.Error(err)
				return
			}
			if next(t, a.scq).Status != verbs.StatusOK {
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond)
	b.drop(t, m)
	before := bytes.Clone(mem)
	<-done
	if !bytes.Equal(mem, before) {
		t.Error("the region changed after Deregister had returned")
	}
}
