package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// unhex reads hexadecimal digits with blanks between them.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	check(t, err)
	return b
}

const (
	reqHex = "4d504120494420526571204672616d65" // "MPA ID Req Frame"
	repHex = "4d504120494420526570204672616d65" // "MPA ID Rep Frame"
)

func TestFrameHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		h       header
		payload int
		want    string
	}{
		{"write", header{tagged: true, last: true, op: opWrite, stag: 0x01020304, to: 0x05060708090a0b0c}, 4096, "100e c140 01020304 05060708090a0b0c"},
		{"write, more follows", header{tagged: true, op: opWrite, stag: 1}, 0, "000e 8140 00000001 0000000000000000"},
		{"read response", header{tagged: true, last: true, op: opReadResp, stag: 1, to: 2}, 8, "0016 c142 00000001 0000000000000002"},
		{"send", header{last: true, op: opSend, msn: 1}, 64, "0052 4143 00000000 00000000 00000001 00000000"},
		{"send, second frame", header{last: true, op: opSend, msn: 2, mo: 61440}, 2, "0014 4143 00000000 00000000 00000002 0000f000"},
		{"read request", header{last: true, op: opReadReq, queue: queueRead, msn: 1}, readReqSize, "002e 4141 00000000 00000001 00000001 00000000"},
		{"terminate", header{last: true, op: opTerminate, queue: queueTerminate, msn: 1}, 4, "0016 4147 00000000 00000002 00000001 00000000"},
	} {
		got := c.h.appendTo(nil, c.payload)
		if want := unhex(t, c.want); !bytes.Equal(got, want) {
			t.Errorf("%s: got  % x\nwant % x", c.name, got, want)
		}
		back, bad := parseHeader(got[lenSize:])
		if bad != nil || back != c.h {
			t.Errorf("%s: read back as %+v, %v", c.name, back, bad)
		}
	}
}

func TestReadRequestFrame(t *testing.T) {
	r := readReq{sinkSTag: 0x100, sinkTO: 0x1000, size: 8, srcSTag: 0x2ff, srcTO: 0x2000}
	want := unhex(t, "00000100 0000000000001000 00000008 000002ff 0000000000002000")
	if got := r.appendTo(nil); !bytes.Equal(got, want) || parseReadReq(want) != r {
		t.Errorf("got % x", got)
	}
}

func TestPadding(t *testing.T) {
	for n, want := range map[int]int{14: 0, 15: 3, 16: 2, 17: 1, 18: 0, 46: 0} {
		if got := padOf(n); got != want || (lenSize+n+got)%4 != 0 {
			t.Errorf("ULPDU of %d bytes: padding %d, want %d", n, got, want)
		}
	}
}

// TestSetupBytes has the set-up frames that Linux siw was seen to exchange.
func TestSetupBytes(t *testing.T) {
	o := Options{IRD: 1, ORD: 1}
	if got, want := o.request(nil).appendTo(nil, requestKey), unhex(t, reqHex+"1002 0004 0001 0001"); !bytes.Equal(got, want) {
		t.Errorf("request: % x", got)
	}
	o.CRC = true
	if got, want := o.request([]byte("hi")).appendTo(nil, requestKey), unhex(t, reqHex+"5002 0006 0001 0001 6869"); !bytes.Equal(got, want) {
		t.Errorf("request with CRC and private data: % x", got)
	}
	o.Revision1 = true
	if got, want := o.request(nil).appendTo(nil, requestKey), unhex(t, reqHex+"4001 0000"); !bytes.Equal(got, want) {
		t.Errorf("request of revision 1: % x", got)
	}
	for _, c := range []struct {
		name         string
		opt          Options
		request      string
		want         string
		crc, refused bool
	}{
		{"siw with CRC", Options{IRD: 16, ORD: 16}, "5002 0004 0001 0001", "5002 0004 0001 0001", true, false},
		{"siw", Options{IRD: 16, ORD: 16}, "1002 0004 0002 0003", "1002 0004 0003 0002", false, false},
		{"we want CRC", Options{CRC: true, IRD: 16, ORD: 16}, "1002 0004 0001 0001", "5002 0004 0001 0001", true, false},
		{"depth not limited", Options{IRD: 4, ORD: 5}, "1002 0004 3fff 3fff", "1002 0004 0004 0005", false, false},
		{"peer to peer, Write or Read", Options{IRD: 16, ORD: 16}, "1002 0004 8001 c001", "1002 0004 8001 8001", false, false},
		{"peer to peer, Read only", Options{IRD: 16, ORD: 16}, "1002 0004 8001 4001", "1002 0004 8001 4001", false, false},
		{"peer to peer, Send only", Options{IRD: 16, ORD: 16}, "1002 0004 c001 0001", "1002 0004 0001 0001", false, false},
		{"siw's private flag", Options{IRD: 16, ORD: 16}, "1802 0004 0001 0001", "1002 0004 0001 0001", false, false},
		{"revision 1", Options{IRD: 16, ORD: 16}, "4001 0000", "4001 0000", true, false},
		{"sends no Reads", Options{IRD: 16, ORD: 16}, "1002 0004 0001 0000", "1002 0004 0000 0001", false, false},
		{"takes no Reads", Options{IRD: 16, ORD: 16}, "1002 0004 0000 0001", "", false, true},
		{"takes no Reads, peer to peer", Options{IRD: 16, ORD: 16}, "1002 0004 8000 c001", "", false, true},
		{"markers", Options{IRD: 16, ORD: 16}, "9002 0004 0001 0001", "", false, true},
		{"revision 3", Options{IRD: 16, ORD: 16}, "1003 0004 0001 0001", "", false, true},
	} {
		req, err := readMPA(bytes.NewReader(unhex(t, reqHex+c.request)), requestKey)
		check(t, err)
		rep, terms, err := c.opt.answer(req, nil)
		if err != nil {
			if !c.refused {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if got, want := rep.appendTo(nil, replyKey), unhex(t, repHex+c.want); !bytes.Equal(got, want) || c.refused || terms.crc != c.crc {
			t.Errorf("%s: % x, %+v", c.name, got[mpaKeySize:], terms)
		}
	}
}

func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name  string
		opt   Options
		reply string
		want  terms
		fails bool
	}{
		{"siw", Options{IRD: 16, ORD: 16}, "1002 0004 0004 0005", terms{ird: 16, ord: 4, initiator: true}, false},
		{"CRC by the peer", Options{IRD: 16, ORD: 16}, "5002 0004 0004 0005", terms{crc: true, ird: 16, ord: 4, initiator: true}, false},
		{"CRC ignored", Options{CRC: true, IRD: 16, ORD: 16}, "1002 0004 0004 0005", terms{}, true},
		{"revision 1", Options{IRD: 16, ORD: 16, Revision1: true}, "0001 0000", terms{ird: 128, ord: 1, initiator: true}, false},
		{"sends no Reads", Options{IRD: 16, ORD: 16}, "1002 0004 0004 0000", terms{ird: 16, ord: 4, initiator: true}, false},
		{"takes no Reads", Options{IRD: 16, ORD: 16}, "1002 0004 0000 0005", terms{}, true},
		{"more Reads than we take", Options{IRD: 2, ORD: 16}, "1002 0004 0004 0003", terms{}, true},
		{"another revision", Options{IRD: 16, ORD: 16}, "0001 0000", terms{}, true},
		{"peer to peer, which was not asked for", Options{IRD: 16, ORD: 16}, "1002 0004 8004 8004", terms{}, true},
		{"markers", Options{IRD: 16, ORD: 16}, "9002 0004 0004 0004", terms{}, true},
	} {
		rep, err := readMPA(bytes.NewReader(unhex(t, repHex+c.reply)), replyKey)
		check(t, err)
		got, err := c.opt.settle(c.opt.request(nil), rep)
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	rep, err := readMPA(bytes.NewReader(unhex(t, repHex+"3002 0007 0000 0000 627573")), replyKey)
	check(t, err)
	var no *verbs.RejectedError
	if _, err := (&Options{}).settle(&mpaFrame{}, rep); !errors.As(err, &no) || string(no.Private) != "bus" {
		t.Errorf("reject: %v", err)
	}
}

// TestTerminateBytes has reasons in the order of the RFCs and in that of siw on a little-endian machine.
func TestTerminateBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want *TerminateError
	}{
		{"0100e000", errReadSTag},
		{"10000700", errReadSTag}, // siw
		{"20020000", errCRC},
		{"02020000", errCRC}, // siw
		{"1000c000", errPlaceFault},
		{"1202c000", errNoReceive},
		{"21020300", errNoReceive}, // siw
		{"1101c000", errBounds},
		{"0207c000", errStream},
		{"2007 0700", errStream}, // siw
		{"02030000", errLength},  // siw
	} {
		if got := parseTerminate(unhex(t, c.in)); !got.same(c.want) || !got.Peer {
			t.Errorf("%s: %+v, want %+v", c.in, got, c.want)
		}
	}
	// siw's RDMAP version and operation, without a header: the same bytes are a reason of MPA.
	for in, want := range map[string]*TerminateError{"20050000": errRDMAPVersion, "20060000": errOpcode} {
		if got := parseTerminate(unhex(t, in)); got.Layer != layerLLP || !strings.Contains(got.Error(), want.text) {
			t.Errorf("%s: %v does not speak of %q", in, got, want.text)
		}
	}
	got := appendTerminate(nil, errReadSTag, terminated{ulpdu: 46, head: make([]byte, untaggedSize), req: make([]byte, readReqSize)})
	if want := append(unhex(t, "0100e000 002e"), make([]byte, untaggedSize+readReqSize)...); !bytes.Equal(got, want) {
		t.Errorf("got % x", got)
	}
}

// rawPeer is a TCP connection in the hands of the test, with a queue pair of this package at the other end.
func rawPeer(t *testing.T, o Options, request string) (net.Conn, *peer) {
	t.Helper()
	p := newPeer(t, o, 1<<16)
	l, err := p.dev.Listen("127.0.0.1:0")
	check(t, err)
	conn, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Write(unhex(t, reqHex+request))
	check(t, err)
	r, err := l.Accept()
	check(t, err)
	check(t, r.Accept(p.qp, nil))
	check(t, l.Close())
	check(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	if _, err := readMPA(conn, replyKey); err != nil {
		t.Fatal(err)
	}
	return conn, p
}

// expect reads exactly the bytes of want.
func expect(t *testing.T, conn net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(conn, got)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got  % x, %v\nwant % x", got[:n], err, want)
	}
}

// TestBytesOnTheWire talks to a queue pair byte by byte, with CRC, as siw does.
func TestBytesOnTheWire(t *testing.T) {
	conn, p := rawPeer(t, Options{}, "5002 0004 0001 0001")
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(100, 64)}}))
	// A Send of the three bytes "abc": length 21, one byte of padding, CRC of all of it.
	_, err := conn.Write(unhex(t, "0015 4143 00000000 00000000 00000001 00000000 616263 00 "+sendCRC))
	check(t, err)
	if wc := p.reap(t); wc.Status != verbs.StatusOK || wc.Len != 3 || string(p.mem[100:103]) != "abc" {
		t.Fatalf("completion %+v, %v", wc, p.qp.Err())
	}
	// The same from the other side.
	check(t, p.qp.PostSend([]verbs.SendWR{{ID: 2, Op: verbs.OpSend, Signaled: true, Local: p.sge(100, 3)}}))
	expect(t, conn, unhex(t, "0015 4143 00000000 00000000 00000001 00000000 616263 00 "+sendCRC))
	p.reap(t)
	// A wrong CRC.
	_, err = conn.Write(unhex(t, "0015 4143 00000000 00000000 00000002 00000000 616263 00 00000000"))
	check(t, err)
	expect(t, conn, unhex(t, "0016 4147 00000000 00000002 00000001 00000000 20020000"))
}

// sendCRC is the CRC-32C of the frame above, least significant byte first; computed with an independent bitwise implementation
// (polynomial 0x82f63b78).
const sendCRC = "447065aa"

// TestResponderWaits: without the peer-to-peer set-up a responder sends nothing before the first frame of the initiator.
func TestResponderWaits(t *testing.T) {
	conn, p := rawPeer(t, Options{}, "1002 0004 0001 0001")
	check(t, p.qp.PostSend([]verbs.SendWR{{ID: 2, Op: verbs.OpSend, Signaled: true, Local: p.sge(100, 4)}}))
	check(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatal("the responder sent first")
	}
	check(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := conn.Write(unhex(t, "000e c140 00000001 0000000000000000 00000000")) // siw's ready-to-receive frame
	check(t, err)
	expect(t, conn, unhex(t, "0016 4143 00000000 00000000 00000001 00000000 00000000 00000000"))
}

// TestReadyAgain: a responder that does not look at what has come with its reply gets more, until it has sent something.
func TestReadyAgain(t *testing.T) {
	p := newPeer(t, Options{}, 1<<16)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: p.sge(100, 64)}}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	connected := make(chan error, 1)
	go func() {
		_, err := p.dev.Connect(t.Context(), p.qp, l.Addr().String(), nil)
		connected <- err
	}()
	conn, err := l.Accept()
	check(t, err)
	defer conn.Close()
	_, err = readMPA(conn, requestKey)
	check(t, err)
	_, err = conn.Write(unhex(t, repHex+"1002 0004 0004 0004"))
	check(t, err)
	check(t, <-connected)
	check(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	ready := unhex(t, "000e c140 00000001 0000000000000000 00000000")
	for range 3 {
		expect(t, conn, ready)
	}
	_, err = conn.Write(unhex(t, "0016 4143 00000000 00000000 00000001 00000000 00000000 00000000"))
	check(t, err)
	if wc := p.reap(t); wc.Status != verbs.StatusOK {
		t.Fatalf("completion %+v, %v", wc, p.qp.Err())
	}
	check(t, conn.SetReadDeadline(time.Now().Add(40*firstReady))) // three more of them
	rest, err := io.ReadAll(conn)
	if len(rest) > len(ready) || !errors.Is(err, os.ErrDeadlineExceeded) { // one may have been on its way
		t.Errorf("% x, %v after the responder has sent something", rest, err)
	}
}
