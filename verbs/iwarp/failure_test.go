package iwarp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

// plain is the request of a siw initiator.
const plain = "1002 0004 0001 0001"

// TestTerminates sends frames that break a rule each, and expects the Terminate that the RFCs name for it.
func TestTerminates(t *testing.T) {
	for _, c := range []struct{ name, frame, reason string }{
		{"write to no region", "0012 c140 deadbe00 0000000000000000 01020304 00000000", "1100"},
		{"bad DDP version of a tagged frame", "000e c040 00000001 0000000000000000 00000000", "1104"},
		{"bad DDP version of an untagged frame", "0012 4243 00000000 00000000 00000001 00000000 00000000", "1206"},
		{"bad RDMAP version", "000e c100 00000001 0000000000000000 00000000", "0205"},
		{"unknown operation", "0012 414f 00000000 00000000 00000001 00000000 00000000", "0206"},
		{"tagged Send", "000e c143 00000001 0000000000000000 00000000", "0206"},
		{"Send in the queue of Reads", "0012 4143 00000000 00000001 00000001 00000000 00000000", "0206"},
		{"no such queue", "0012 4143 00000000 00000003 00000001 00000000 00000000", "1201"},
		{"wrong message number", "0012 4143 00000000 00000000 00000002 00000000 00000000", "1203"},
		{"wrong message offset", "0012 4143 00000000 00000000 00000001 00000004 00000000", "1204"},
		{"Send with Invalidate", "0012 4144 00000001 00000000 00000001 00000000 00000000", "0109"},
		{"response that nobody asked for", "000e c142 00000001 0000000000000000 00000000", "0206"},
		{"Read Request of a wrong length", "0012 4141 00000000 00000001 00000001 00000000 00000000", "0207"},
		{"Read of no region", "002e 4141 00000000 00000001 00000001 00000000" +
			"00000000 0000000000000000 00000008 deadbe00 0000000000000000 00000000", "0100"},
		{"frame shorter than a header", "0003 c140 00000000 00000000", "2003"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, p := rawPeer(t, Options{}, plain)
			check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
			_, err := conn.Write(unhex(t, c.frame))
			check(t, err)
			frame := make([]byte, lenSize+untaggedSize+termControl)
			_, err = io.ReadFull(conn, frame)
			check(t, err)
			if got := frame[lenSize+untaggedSize:][:2]; !bytes.Equal(got, unhex(t, c.reason)) || frame[3] != rdmapVersion|opTerminate {
				t.Errorf("got % x, want the reason %s", frame, c.reason)
			}
			_, err = io.Copy(io.Discard, conn)
			check(t, err) // an orderly end of the stream, no reset
			check(t, conn.Close())
			if wc := p.reap(t); wc.Status == verbs.StatusOK {
				t.Error("the receive succeeded")
			}
			if !bytes.Equal(p.mem, make([]byte, len(p.mem))) {
				t.Error("memory was touched")
			}
		})
	}
}

// TestSiwTerminate reads the Terminate that siw was seen to send for a Read of a region that does not exist.
func TestSiwTerminate(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
	_, err := conn.Write(unhex(t, "0016 4147 00000000 00000002 00000001 00000000 10000700 00000000"))
	check(t, err)
	if wc := p.reap(t); wc.Status != verbs.StatusProtect {
		t.Errorf("completion %+v", wc)
	}
	var e *TerminateError
	if !errors.As(p.qp.Err(), &e) || !e.Peer || !e.same(errReadSTag) {
		t.Errorf("cause %v", p.qp.Err())
	}
}

// TestPeerTakesNothing posts to a peer that never reads: PostSend must come back, and the queue pair must end.
func TestPeerTakesNothing(t *testing.T) {
	conn, p := rawPeer(t, Options{WriteTimeout: 200 * time.Millisecond}, plain)
	_, err := conn.Write(unhex(t, "000e c140 00000001 0000000000000000 00000000"))
	check(t, err)
	start := time.Now()
	for p.qp.Err() == nil {
		err := p.qp.PostSend([]verbs.SendWR{{Op: verbs.OpWrite, Signaled: true, Local: p.sge(0, 1<<16), RKey: 1}})
		if !errors.Is(err, verbs.ErrQueueFull) {
			check(t, err)
		}
		var wc [8]verbs.WC
		_, err = p.cq.Poll(wc[:])
		check(t, err)
		if time.Since(start) > 5*time.Second {
			t.Fatal("still sending")
		}
	}
	if err := p.qp.Err(); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("cause %v", err)
	}
}

// TestCloseInterruptsPostSend closes a queue pair whose PostSend waits for a peer that never reads.
func TestCloseInterruptsPostSend(t *testing.T) {
	conn, p := rawPeer(t, Options{WriteTimeout: time.Minute}, plain)
	_, err := conn.Write(unhex(t, "000e c140 00000001 0000000000000000 00000000"))
	check(t, err)
	posted := make(chan int)
	go func() {
		n := 0
		wr := []verbs.SendWR{{Op: verbs.OpWrite, Signaled: true, Local: p.sge(0, 1<<16), RKey: 1}}
		for p.qp.PostSend(wr) == nil {
			n++
		}
		posted <- n
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	check(t, p.qp.Close())
	if d := time.Since(start); d > time.Second {
		t.Errorf("Close took %v", d)
	}
	for n := <-posted; n > 0; n-- {
		p.reap(t)
	}
}

// TestDeregisterDuringStall: a peer that stops inside a frame does not hold up Deregister, and cannot go on with it.
func TestDeregisterDuringStall(t *testing.T) {
	for _, who := range []holder{receiver, waiter} {
		conn, p := rawPeer(t, Options{}, plain)
		check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1}}))
		q := p.qp.(*qp)
		waited := make(chan error, 1)
		if who == waiter {
			go func() { waited <- p.cq.Wait(5 * time.Second) }()
		}
		eventually(t, "the turn has the right holder", func() bool { return q.held() == who })
		h := header{tagged: true, last: true, op: opWrite, stag: p.mr.RKey(), to: p.mr.Addr()}
		_, err := conn.Write(append(h.appendTo(nil, 40000), bytes.Repeat([]byte{1}, 30000)...))
		check(t, err)
		time.Sleep(20 * time.Millisecond)
		check(t, p.mr.Deregister())
		p.mr = nil
		before := bytes.Clone(p.mem)
		if before[20000] != 1 {
			t.Error("the first part of the frame was not placed")
		}
		_, err = conn.Write(bytes.Repeat([]byte{2}, 10004))
		check(t, err)
		got := make([]byte, lenSize+untaggedSize+2)
		_, err = io.ReadFull(conn, got)
		check(t, err)
		if !bytes.Equal(got[lenSize+untaggedSize:], []byte{0x11, 0}) {
			t.Errorf("got % x", got)
		}
		if !bytes.Equal(p.mem, before) {
			t.Error("memory changed after Deregister")
		}
		check(t, conn.Close())
		if who == waiter {
			check(t, <-waited)
		}
	}
}

// holed is a region whose file was cut off in the middle: its second half faults.
func holed(t *testing.T, size int64) pmem.Region {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pool")
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	check(t, f.Truncate(size))
	r, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: uint64(size)}}, pmem.Options{})
	check(t, err)
	check(t, f.Truncate(size/2))
	return r
}

// TestMemoryFault places into, and sends from, memory that cannot be accessed. The queue pair ends; the process does not.
func TestMemoryFault(t *testing.T) {
	const size = 1 << 20
	for _, crc := range []bool{false, true} {
		for _, c := range []struct {
			name string
			n    uint64 // small is copied, large goes between socket and region
			op   verbs.Opcode
			far  bool // the faulting memory is the peer's
		}{
			{"write to it", 200, verbs.OpWrite, true},
			{"write to it, large", 300_000, verbs.OpWrite, true},
			{"read from it", 200, verbs.OpRead, true},
			{"read from it, large", 300_000, verbs.OpRead, true},
			{"write from it", 200, verbs.OpWrite, false},
			{"write from it, large", 300_000, verbs.OpWrite, false},
			{"read into it", 200, verbs.OpRead, false},
			{"read into it, large", 300_000, verbs.OpRead, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				a, b := newPeer(t, Options{CRC: crc}, size), newPeer(t, Options{}, size)
				connect(t, a, b)
				bad, good := a, b
				if c.far {
					bad, good = b, a
				}
				mem := holed(t, size)
				m, err := bad.pd.RegisterMR(mem.Bytes(), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
				check(t, err)
				wr := verbs.SendWR{ID: 1, Op: c.op, Signaled: true}
				if c.far {
					wr.Local, wr.RemoteAddr, wr.RKey = good.sge(0, c.n), m.Addr()+size/2-100, m.RKey()
				} else {
					wr.Local, wr.RemoteAddr, wr.RKey = verbs.SGE{MR: m, Off: size/2 - 100, Len: c.n}, good.mr.Addr(), good.mr.RKey()
				}
				probe := verbs.SendWR{ID: 2, Op: verbs.OpRead, Signaled: true, Local: a.sge(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
				check(t, a.qp.PostSend([]verbs.SendWR{wr, probe}))
				wc := a.reap(t)
				if wc.Status == verbs.StatusOK && c.op == verbs.OpWrite { // TCP took it before the peer failed
					wc = a.reap(t)
				}
				if wc.Status == verbs.StatusOK || wc.Status == verbs.StatusFlushed {
					t.Errorf("completion %+v", wc)
				}
				if !c.far && wc.Status != verbs.StatusProtect {
					t.Errorf("a local failure is reported as %v: %v", wc.Status, a.qp.Err())
				}
				check(t, a.qp.Close())
				check(t, b.qp.Close())
				check(t, m.Deregister())
				check(t, mem.Close())
			})
		}
	}
}

// TestSilentConnections: peers that connect and say nothing, or nonsense, neither block others nor Close.
func TestSilentConnections(t *testing.T) {
	a, b := newPeer(t, Options{}, 64), newPeer(t, Options{}, 64)
	l, err := b.dev.Listen("127.0.0.1:0")
	check(t, err)
	for i := range 10 {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n0123456789"))
			check(t, err)
		}
	}
	go func() {
		if r, err := l.Accept(); err == nil {
			_ = r.Accept(b.qp, nil) // Connect sees a failure
		}
	}()
	_, err = a.dev.Connect(t.Context(), a.qp, l.Addr().String(), nil)
	check(t, err)
	start := time.Now()
	check(t, l.Close())
	if d := time.Since(start); d > time.Second {
		t.Errorf("Close took %v", d)
	}
}

// TestConnectToOtherServer connects to something that is no iWARP listener.
func TestConnectToOtherServer(t *testing.T) {
	a := newPeer(t, Options{SetupTimeout: 300 * time.Millisecond}, 64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if i == 0 {
				_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2 and more")) // the test looks at the other side
			}
			defer c.Close()
		}
	}()
	if _, err := a.dev.Connect(t.Context(), a.qp, l.Addr().String(), nil); !errors.Is(err, errNotMPA) {
		t.Errorf("another protocol: %v", err)
	}
	if _, err := a.dev.Connect(t.Context(), a.qp, l.Addr().String(), nil); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("no answer: %v", err)
	}
}

// TestNoReads: a peer that takes no Read is refused at once, and told why. A Read to it would wait for ever, and everything behind it.
func TestNoReads(t *testing.T) {
	const reason = "an IRD of 0"
	a := newPeer(t, Options{}, 64)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	go func() {
		c, err := silent.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := readMPA(c, requestKey); err == nil {
			_, _ = c.Write(unhex(t, repHex+"1002 0004 0000 0001")) // the test looks at the other side
		}
	}()
	if _, err := a.dev.Connect(t.Context(), a.qp, silent.Addr().String(), nil); err == nil || !strings.Contains(err.Error(), "responder offers "+reason) {
		t.Errorf("Connect: %v", err)
	}

	l, err := a.dev.Listen("127.0.0.1:0")
	check(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = conn.Write(unhex(t, reqHex+"1002 0004 0000 0001"))
	check(t, err)
	r, err := l.Accept()
	check(t, err)
	if err := r.Accept(a.qp, nil); err == nil || !strings.Contains(err.Error(), "initiator offers "+reason) {
		t.Errorf("Accept: %v", err)
	}
	rep, err := readMPA(conn, replyKey)
	check(t, err)
	if rep.flags&mpaReject == 0 || !strings.Contains(string(rep.private), reason) {
		t.Errorf("reply %+v", rep)
	}
	b := newPeer(t, Options{}, 64)
	connect(t, a, b) // the queue pair is as it was
}

// TestConnectInTime ends Connect while it still dials, by the deadline of the caller and by the caller himself.
func TestConnectInTime(t *testing.T) {
	a := newPeer(t, Options{}, 64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	addr := l.Addr().String()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, err := a.dev.Connect(late, a.qp, addr, nil); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("after the deadline: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.dev.Connect(gone, a.qp, addr, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestReset kills the connection without a farewell.
func TestReset(t *testing.T) {
	conn, p := rawPeer(t, Options{}, plain)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(0, 64)}}))
	check(t, conn.(*net.TCPConn).SetLinger(0))
	check(t, conn.Close())
	if wc := p.reap(t); wc.Status != verbs.StatusTransport {
		t.Errorf("completion %+v", wc)
	}
	if err := p.qp.Err(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("cause %v", err)
	}
}
