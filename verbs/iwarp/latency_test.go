package iwarp

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// A drain as the lane does it: a Write of 4 KiB and a Send of 64 bytes, answered by a Send of 48.
const drainWrite, drainSend, drainAnswer = 4096, 64, 48

// lane is a connected pair whose far side answers every Send.
type lane struct {
	near, far *peer
	wrs       [2]verbs.SendWR
	recv      [1]verbs.RecvWR
	wc        [4]verbs.WC
	stop      chan struct{}
	done      chan struct{}
}

func newLane(t testing.TB, o Options) *lane {
	l := &lane{near: newPeer(t, o, 1<<16), far: newPeer(t, o, 1<<16), stop: make(chan struct{}), done: make(chan struct{})}
	recvs := make([]verbs.RecvWR, 8)
	for i := range recvs {
		recvs[i].Local = l.far.sge(uint64(64*i), 64)
	}
	check(t, l.far.qp.PostRecv(recvs))
	connect(t, l.near, l.far)
	l.wrs = [2]verbs.SendWR{
		{Op: verbs.OpWrite, Local: l.near.sge(8192, drainWrite), RemoteAddr: l.far.mr.Addr() + 8192, RKey: l.far.mr.RKey()},
		{Op: verbs.OpSend, Signaled: true, Local: l.near.sge(0, drainSend)},
	}
	l.recv[0].Local = l.near.sge(1024, 64)
	go l.answer(t)
	t.Cleanup(func() {
		close(l.stop)
		<-l.done
	})
	return l
}

// answer is the target's handler.
func (l *lane) answer(t testing.TB) {
	defer close(l.done)
	p := l.far
	var wc [8]verbs.WC
	recv := []verbs.RecvWR{{}}
	send := []verbs.SendWR{{Op: verbs.OpSend, Signaled: true, Local: p.sge(1024, drainAnswer)}}
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		n, err := p.cq.Poll(wc[:])
		if err != nil {
			t.Error(err)
			return
		}
		if n == 0 {
			_ = p.cq.Wait(100 * time.Millisecond) // to look at stop again
		}
		for i := range wc[:n] {
			if wc[i].Op != verbs.OpRecv || wc[i].Status != verbs.StatusOK {
				continue
			}
			recv[0].Local = p.sge(0, 64)
			if err := p.qp.PostRecv(recv); err != nil {
				t.Error(err)
			}
			if err := p.qp.PostSend(send); err != nil {
				t.Error(err)
			}
		}
	}
}

// drain is one round trip.
func (l *lane) drain(t testing.TB) {
	if err := l.near.qp.PostRecv(l.recv[:]); err != nil {
		t.Fatal(err)
	}
	if err := l.near.qp.PostSend(l.wrs[:]); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := l.near.cq.Poll(l.wc[:])
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.wc[:n] {
			if l.wc[i].Status != verbs.StatusOK {
				t.Fatal(l.near.qp.Err())
			}
			if l.wc[i].Op == verbs.OpRecv {
				return
			}
		}
		if n == 0 {
			if err := l.near.cq.Wait(5 * time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDrainAllocatesNothing(t *testing.T) {
	for _, crc := range []bool{false, true} {
		l := newLane(t, Options{CRC: crc})
		if n := testing.AllocsPerRun(2000, func() { l.drain(t) }); n != 0 {
			t.Errorf("CRC %v: %v allocations for a round trip of both sides", crc, n)
		}
	}
}

// echo is the same traffic on bare TCP: the same number of bytes, one goroutine on each side.
type echo struct {
	conn net.Conn
	out  []byte
	in   [drainAnswer + 26]byte
}

func newEcho(t testing.TB) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	e := &echo{out: make([]byte, drainWrite+drainSend+48)}
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := make([]byte, len(e.out))
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(in[:len(e.in)]); err != nil {
				return
			}
		}
	}()
	e.conn, err = net.Dial("tcp", l.Addr().String())
	check(t, err)
	t.Cleanup(func() {
		check(t, e.conn.Close())
		check(t, l.Close())
		<-done
	})
	return e
}

func (e *echo) roundTrip(t testing.TB) {
	if _, err := e.conn.Write(e.out); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(e.conn, e.in[:]); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDrain compares a drain with the same bytes on bare TCP, in alternation, so that both see the same noise.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct {
		name string
		opt  Options
	}{
		{"Plain", Options{}},
		{"CRC", Options{CRC: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, e := newLane(b, c.opt), newEcho(b)
			ours, bare := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
			for b.Loop() {
				t0 := time.Now()
				l.drain(b)
				t1 := time.Now()
				e.roundTrip(b)
				ours, bare = append(ours, t1.Sub(t0)), append(bare, time.Since(t1))
			}
			slices.Sort(ours)
			slices.Sort(bare)
			for _, p := range []struct {
				name string
				at   float64
			}{{"p10", 0.10}, {"p50", 0.50}, {"p99", 0.99}} {
				i := int(p.at * float64(len(ours)))
				b.ReportMetric(float64(ours[i])/1000, p.name+"-us")
				b.ReportMetric(float64(bare[i])/1000, p.name+"-bare-us")
			}
		})
	}
}
