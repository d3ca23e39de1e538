//go:build linux && cgo && rdma

package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

// TestSiwRefuses lets the pure-Go provider touch at siw what it may not. siw's Terminate must arrive with its meaning.
func TestSiwRefuses(t *testing.T) {
	for _, c := range []struct {
		name             string
		op               verbs.Opcode
		off              uint64
		key              uint32
		receives         int
		layer, typ, code uint8
		status           verbs.Status
	}{
		{"Write over the end", verbs.OpWrite, 64<<10 - 1, 0, 1, 1, 1, 1, verbs.StatusProtect},
		{"Write with another key", verbs.OpWrite, 0, 1, 1, 1, 1, 0, verbs.StatusProtect},
		{"Write with another index", verbs.OpWrite, 0, 0x55500, 1, 1, 1, 0, verbs.StatusProtect},
		{"Read over the end", verbs.OpRead, 64<<10 - 1, 0, 1, 0, 1, 1, verbs.StatusProtect},
		{"Read with another key", verbs.OpRead, 0, 1, 1, 0, 1, 0, verbs.StatusProtect},
		{"Read with another index", verbs.OpRead, 0, 0x55500, 1, 0, 1, 0, verbs.StatusProtect},
		{"Send without a receive", verbs.OpSend, 0, 0, 0, 1, 2, 2, verbs.StatusPeer},
	} {
		for _, crc := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				siw, pure := openSiw(t), openGo(iwarp.Options{CRC: crc})
				a, b := newEnd(t, pure, 0), newEnd(t, siw, c.receives)
				join(t, a, b, *siwAddress)
				bad := verbs.SendWR{ID: 1, Op: c.op, Signaled: true, Local: a.sge(0, 100), RemoteAddr: b.mr.Addr() + c.off, RKey: b.mr.RKey() ^ c.key}
				probe := verbs.SendWR{ID: 2, Op: verbs.OpRead, Signaled: true, Local: a.sge(200, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
				check(t, a.qp.PostSend([]verbs.SendWR{bad, probe}))
				wc := a.reap(t)
				if wc.Status == verbs.StatusOK && wc.ID == 1 && c.op != verbs.OpRead { // TCP took it
					wc = a.reap(t)
				}
				if wc.Status != c.status {
					t.Errorf("the cause is reported as %v of %v", wc.Status, wc.Op)
				}
				var e *iwarp.TerminateError
				if !errors.As(a.qp.Err(), &e) || !e.Peer || e.Layer != c.layer || e.Type != c.typ || e.Code != c.code {
					t.Errorf("cause %v; want a Terminate with layer %d, type %d, code %d", a.qp.Err(), c.layer, c.typ, c.code)
				}
				a.close(t)
				if !bytes.Equal(b.mr.Bytes()[:32<<10], make([]byte, 32<<10)) {
					t.Error("siw has changed the region")
				}
				b.close(t)
				check(t, siw.Close())
				check(t, pure.Close())
			})
		}
	}
}

// TestBadFrames sends siw what breaks the protocol, and expects the Terminate that it sends for it: control field in siw's order (see
// verbs/iwarp). What siw answers with nothing at all is in the list as well. After each of them it takes the next connection.
func TestBadFrames(t *testing.T) {
	const wrongCRC = "CRC"
	siw := openSiw(t)
	l, err := siw.Listen(net.JoinHostPort(*siwAddress, "0"))
	check(t, err)
	for _, c := range []struct{ name, frame, control string }{
		{"DDP version, tagged", "000e c040 00000001 0000000000000000", "11040000"},
		{"DDP version, untagged", "0012 4243 00000000 00000000 00000001 00000000", "21060000"},
		{"RDMAP version", "000e c100 00000001 0000000000000000", "20050000"},
		{"unknown operation", "0012 414f 00000000 00000000 00000001 00000000", "20060000"},
		{"Send in the queue of Reads", "0012 4143 00000000 00000001 00000001 00000000", "21010300"},
		{"no such queue", "0012 4143 00000000 00000003 00000001 00000000", "21010300"},
		{"message number", "0012 4143 00000000 00000000 00000002 00000000", "21030300"},
		{"message offset", "0012 4143 00000000 00000000 00000001 00000004", "21040300"},
		{"response that nobody asked for", "000e c142 00000001 0000000000000000", "01000300"},
		{"Read Request number", "002e 4141 00000000 00000001 00000005 00000000" +
			"00000000 0000000000000000 00000008 deadbe00 0000000000000000", "21030300"},
		{"shorter than its header", "0003 c140 00000000 0000000000000000 00000000", "02030000"},
		{"Terminate", "0016 4147 00000000 00000002 00000001 00000000 0100e000", ""},
		{wrongCRC, "0015 4143 00000000 00000000 00000001 00000000 616263 00", "02020000"},
	} {
		for _, flags := range []string{"10", "50"} {
			if c.name == wrongCRC && flags == "10" {
				continue // nobody looks at it
			}
			t.Run(c.name, func(t *testing.T) {
				e := newEnd(t, siw, 4)
				accepted := e.accept(l)
				conn, err := dial(l.Addr().String())
				check(t, err)
				defer conn.Close()
				check(t, conn.SetDeadline(time.Now().Add(patience)))
				_, err = conn.Write(append([]byte("MPA ID Req Frame"), unhex(t, flags+"02 0004 0004 0004")...))
				check(t, err)
				_, err = io.ReadFull(conn, make([]byte, 24))
				check(t, err)
				check(t, <-accepted)
				frame := unhex(t, c.frame)
				var sum uint32
				if flags == "50" && c.name != wrongCRC {
					sum = crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli))
				}
				_, err = conn.Write(binary.LittleEndian.AppendUint32(frame, sum))
				check(t, err)
				got, err := io.ReadAll(conn)
				check(t, err) // the end of the stream, no reset
				const head = 20
				switch {
				case c.control == "" && len(got) > 0, c.control != "" && len(got) < head+4:
					t.Errorf("siw answers % x", got)
				case c.control != "" && !bytes.Equal(got[head:head+4], unhex(t, c.control)):
					t.Errorf("siw says % x, want %s", got[head:head+4], c.control)
				}
				if wc := e.reap(t); wc.Status == verbs.StatusOK {
					t.Error("siw delivers a message")
				}
				e.close(t)
			})
		}
	}
	check(t, l.Close())
	check(t, siw.Close())
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	check(t, err)
	return b
}
