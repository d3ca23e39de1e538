package iwarp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// TestHostilePeer does to a queue pair what a peer can do that knows the key of one region. The queue pair says what was wrong
// by a Terminate, ends, and nothing outside of that region and of the posted receive has changed.
func TestHostilePeer(t *testing.T) {
	const open, recv = 4096, 64
	msg := bytes.Repeat([]byte{0x77}, 200)
	write := func(key uint32, to uint64, n int) (header, []byte) {
		return header{tagged: true, last: true, op: opWrite, stag: key, to: to}, msg[:n]
	}
	read := func(r readReq, msn uint32) (header, []byte) {
		return header{last: true, op: opReadReq, queue: queueRead, msn: msn}, r.appendTo(nil)
	}
	send := func(msn, mo uint32, last bool, n int) (header, []byte) {
		return header{last: last, op: opSend, msn: msn, mo: mo}, msg[:n]
	}
	type frames func(add func(header, []byte), key, sink uint32, base, sinkBase uint64)
	for _, c := range []struct {
		name   string
		send   frames
		reason *TerminateError
	}{
		{"Write with another key", func(add func(header, []byte), key, _ uint32, base, _ uint64) { add(write(key^1, base, 8)) }, errSTag},
		{"Write with another index", func(add func(header, []byte), key, _ uint32, base, _ uint64) { add(write(key^0x700, base, 8)) }, errSTag},
		{"Write with key 0", func(add func(header, []byte), _, _ uint32, base, _ uint64) { add(write(0, base, 8)) }, errSTag},
		{"Write over the end", func(add func(header, []byte), key, _ uint32, base, _ uint64) { add(write(key, base+open-7, 8)) }, errBounds},
		{"Write before the start", func(add func(header, []byte), key, _ uint32, base, _ uint64) { add(write(key, base-1, 8)) }, errBounds},
		{"Write around 2^64", func(add func(header, []byte), key, _ uint32, _, _ uint64) { add(write(key, ^uint64(0)-3, 8)) }, errWrap},
		{"Write into the receive buffer", func(add func(header, []byte), _, sink uint32, _, base uint64) { add(write(sink, base, 8)) }, errAccess},
		{"good Write, then a bad one", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(write(key, base, 100))
			add(write(key, base+open, 1))
		}, errBounds},
		{"Read with another key", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(read(readReq{size: 8, srcSTag: key ^ 1, srcTO: base}, 1))
		}, errReadSTag},
		{"Read over the end", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(read(readReq{size: 9, srcSTag: key, srcTO: base + open - 8}, 1))
		}, errReadBounds},
		{"Read of 4 GiB", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(read(readReq{size: 1<<32 - 1, srcSTag: key, srcTO: base}, 1))
		}, errReadBounds},
		{"Read around 2^64", func(add func(header, []byte), key, _ uint32, _, _ uint64) {
			add(read(readReq{size: 8, srcSTag: key, srcTO: ^uint64(0) - 3}, 1))
		}, errReadWrap},
		{"Read of the receive buffer", func(add func(header, []byte), _, sink uint32, _, base uint64) {
			add(read(readReq{size: 8, srcSTag: sink, srcTO: base}, 1))
		}, errAccess},
		{"Read Request number 2 first", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(read(readReq{size: 8, srcSTag: key, srcTO: base}, 2))
		}, errMSN},
		{"Read Request that goes on", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			h, b := read(readReq{size: 8, srcSTag: key, srcTO: base}, 1)
			h.last = false
			add(h, b)
		}, errStream},
		{"Send too long", func(add func(header, []byte), _, _ uint32, _, _ uint64) { add(send(1, 0, true, recv+1)) }, errTooLong},
		{"Send too long in its second frame", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(send(1, 0, false, recv-4))
			add(send(1, recv-4, true, 5))
		}, errTooLong},
		{"Send with a gap", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(send(1, 0, false, 8))
			add(send(1, 9, true, 8))
		}, errMO},
		{"Send that starts again", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(send(1, 0, false, 8))
			add(send(1, 0, true, 8))
		}, errMO},
		{"second Send with one receive", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(send(1, 0, true, 8))
			add(send(2, 0, true, 8))
		}, errNoReceive},
		{"Send number 1 twice", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(send(1, 0, true, 8))
			add(send(1, 0, true, 8))
		}, errMSN},
		{"Read response that nobody asked for", func(add func(header, []byte), key, _ uint32, base, _ uint64) {
			add(header{tagged: true, last: true, op: opReadResp, stag: key, to: base}, msg[:8])
		}, errOpcode},
		{"Terminate with a tail", func(add func(header, []byte), _, _ uint32, _, _ uint64) {
			add(header{last: true, op: opTerminate, queue: queueTerminate, msn: 1}, msg[:termMax+1])
		}, errLength},
	} {
		for _, crc := range []bool{false, true} {
			request := plain
			if crc {
				request = "5002" + plain[4:]
			}
			t.Run(c.name, func(t *testing.T) {
				conn, p := rawPeer(t, Options{}, request)
				mem := bytes.Repeat([]byte{0xA5}, 3*recv+open)
				writable, err := p.pd.RegisterMR(mem[recv:recv+open], verbs.RemoteWrite|verbs.RemoteRead)
				check(t, err)
				defer func() { check(t, writable.Deregister()) }()
				sink, err := p.pd.RegisterMR(mem[2*recv+open:], verbs.LocalWrite)
				check(t, err)
				defer func() { check(t, sink.Deregister()) }()
				defer func() { check(t, p.qp.Close()) }()
				check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: verbs.SGE{MR: sink, Len: recv}}}))
				var stream []byte
				c.send(func(h header, b []byte) { stream = append(stream, frame(h, b, crc)...) }, writable.RKey(), sink.RKey(), writable.Addr(), sink.Addr())
				_, err = conn.Write(stream)
				check(t, err)
				got, err := io.ReadAll(conn) // an orderly end of the stream, no reset
				check(t, err)
				check(t, conn.Close()) // else the queue pair waits a while for it
				e := soleTerminate(t, got, crc)
				if !e.same(c.reason) {
					t.Errorf("Terminate %v; want %v", e, c.reason)
				}
				for _, guard := range [][]byte{mem[:recv], mem[recv+open : 2*recv+open]} {
					if !bytes.Equal(guard, bytes.Repeat([]byte{0xA5}, recv)) {
						t.Error("bytes around the region changed")
					}
				}
				if c.reason.Type == 1 && !bytes.Equal(mem[2*recv+open:], bytes.Repeat([]byte{0xA5}, recv)) {
					t.Error("the receive buffer changed")
				}
			})
		}
	}
}

// soleTerminate takes a stream that has a Terminate in it and nothing else.
func soleTerminate(t *testing.T, b []byte, crc bool) *TerminateError {
	t.Helper()
	const head = lenSize + untaggedSize
	if len(b) < head+termControl+crcSize || b[3] != rdmapVersion|opTerminate {
		t.Fatalf("no Terminate: % x", b)
	}
	n := int(binary.BigEndian.Uint16(b))
	end := lenSize + n + padOf(n)
	if len(b) != end+crcSize {
		t.Fatalf("more than a Terminate: % x", b)
	}
	want := uint32(0)
	if crc {
		want = crc32.Checksum(b[:end], castagnoli)
	}
	if got := binary.LittleEndian.Uint32(b[end:]); got != want {
		t.Errorf("CRC of the Terminate: %#x, want %#x", got, want)
	}
	return parseTerminate(b[head : lenSize+n])
}

// TestDamagedStreams feeds streams in which some bytes of good frames were changed; feed says what must hold.
func TestDamagedStreams(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const to = 1 << 38 // see FuzzStream
	good := func(crc bool) []byte {
		var b []byte
		for _, f := range [][]byte{
			frame(header{tagged: true, op: opWrite, stag: 0x100, to: to + 10}, make([]byte, 1000), crc),
			frame(header{last: true, op: opSend, msn: 1}, make([]byte, 60), crc),
			frame(header{tagged: true, last: true, op: opWrite, stag: 0x100, to: to + 1010}, make([]byte, 77), crc),
			frame(header{last: true, op: opReadReq, queue: queueRead, msn: 1}, (&readReq{size: 8, srcSTag: 0x100, srcTO: to}).appendTo(nil), crc),
		} {
			b = append(b, f...)
		}
		return b
	}
	for i := range 300 {
		crc := i%2 == 0
		b := good(crc)
		for range 1 + rnd.IntN(3) {
			at := rnd.IntN(len(b))
			if rnd.IntN(2) == 0 { // most of the bytes are payload: aim at the first header
				at = rnd.IntN(lenSize + taggedSize)
			}
			b[at] ^= 1 << rnd.IntN(8)
		}
		feed(t, b, crc)
	}
}
