package iwarp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
)

func FuzzMPA(f *testing.F) {
	f.Add([]byte(requestKey + "\x50\x02\x00\x04\x00\x01\x00\x01"))
	f.Add([]byte(requestKey + "\x40\x01\x00\x03abc"))
	f.Add([]byte(requestKey + "\xb0\x02\xff\xff"))
	f.Add([]byte(requestKey + "\x10\x02\x00\x02\x00\x00"))
	o := Options{}
	if err := o.complete(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		m, err := readMPA(r, requestKey)
		if err != nil {
			return
		}
		again, err := readMPA(bytes.NewReader(m.appendTo(nil, requestKey)), requestKey)
		if err != nil || again.flags != m.flags || again.ird != m.ird || again.ord != m.ord || !bytes.Equal(again.private, m.private) {
			t.Fatalf("%+v encodes to %+v, %v", m, again, err)
		}
		if _, got, err := o.answer(m, nil); err == nil && (got.ird > maxReadDepth || got.ord > o.ORD || got.ord < 1 || m.enhanced() && got.ird > o.IRD) {
			t.Fatalf("%+v leads to %+v", m, got)
		}
		if got, err := o.settle(o.request(nil), m); err == nil && (got.ord > o.ORD || got.ord < 1) {
			t.Fatalf("%+v leads to %+v", m, got)
		}
	})
}

func FuzzTerminate(f *testing.F) {
	f.Add([]byte{0x10, 0, 7, 0})
	f.Add([]byte{0x20, 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e := parseTerminate(b); !e.Peer || e.Error() == "" || e.status() == verbs.StatusOK {
			t.Fatalf("%+v", e)
		}
	})
}

// FuzzFrame checks that every header that is accepted is encoded to the same bytes again.
func FuzzFrame(f *testing.F) {
	f.Add(make([]byte, untaggedSize))
	for op := range byte(8) {
		for queue := range byte(3) {
			f.Add([]byte{0x41, 0x40 | op, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0})
		}
		f.Add([]byte{0xC1, 0x40 | op, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < untaggedSize {
			return
		}
		h, bad := parseHeader(b)
		if bad != nil {
			return
		}
		const reserved = ^byte(ddpTagged | ddpLast | ddpVerMask)
		again := h.appendTo(nil, 0)[lenSize:]
		if b[0]&reserved == 0 && b[1]&^(rdmapVerMask|rdmapOpMask) == 0 && !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("% x encodes to % x", b, again)
		}
	})
}

// frame is a whole frame.
func frame(h header, payload []byte, crc bool) []byte {
	b := append(h.appendTo(nil, len(payload)), payload...)
	b = append(b, make([]byte, padOf(len(b)-lenSize))...)
	var sum uint32
	if crc {
		sum = crc32.Checksum(b, castagnoli)
	}
	return binary.LittleEndian.AppendUint32(b, sum)
}

// FuzzStream feeds bytes into a queue pair over a socket pair. Whatever they are, nothing outside of the one writable
// region and the one receive changes, and the queue pair ends when the stream does.
func FuzzStream(f *testing.F) {
	// The fuzzer cannot guess the key of a region, so the frames name region 1 with key 0, and the test puts the real key
	// in its place. The tagged offset of region n begins at n<<38.
	const to = 1 << 38
	req := readReq{size: 8, srcSTag: 0x100, srcTO: to}
	for _, crc := range []bool{false, true} {
		write := frame(header{tagged: true, last: true, op: opWrite, stag: 0x100, to: to + 10}, []byte("payload"), crc)
		f.Add(write, crc)
		f.Add(frame(header{tagged: true, last: true, op: opWrite, stag: 0x100, to: to + 4090}, []byte("payload"), crc), crc)
		send := frame(header{last: true, op: opSend, msn: 1}, []byte("message"), crc)
		f.Add(append(write, send...), crc)
		f.Add(frame(header{last: true, op: opSend, msn: 1}, make([]byte, 65), crc), crc)
		f.Add(frame(header{last: true, op: opReadReq, queue: queueRead, msn: 1}, req.appendTo(nil), crc), crc)
		f.Add(frame(header{last: true, op: opTerminate, queue: queueTerminate, msn: 1}, []byte{0x10, 0, 7, 0}, crc), crc)
		f.Add(frame(header{tagged: true, last: true, op: opReadResp, stag: 0x100, to: to}, []byte("response"), crc), crc)
	}
	f.Fuzz(func(t *testing.T, stream []byte, crc bool) { feed(t, stream, crc) })
}

func feed(t *testing.T, stream []byte, crc bool) {
	const open, recv, guard = 4096, 64, 64
	p := newPeer(t, Options{}, 1) // the region of newPeer is number 1: replaced by one with guards around it
	check(t, p.mr.Deregister())
	p.mr = nil
	p.dev.(*device).lastIndex = 0
	mem := bytes.Repeat([]byte{0xA5}, guard+open+guard+recv+guard)
	writable, err := p.pd.RegisterMR(mem[guard:guard+open], verbs.RemoteWrite|verbs.RemoteRead)
	check(t, err)
	sink, err := p.pd.RegisterMR(mem[guard+open+guard:guard+open+guard+recv], verbs.LocalWrite)
	check(t, err)
	check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 1, Local: verbs.SGE{MR: sink, Len: recv}}}))

	stream = bytes.Clone(stream)
	if crc {
		rekey(stream, writable.RKey())
	} else if len(stream) > 8 && binary.BigEndian.Uint32(stream[4:]) == 0x100 {
		binary.BigEndian.PutUint32(stream[4:], writable.RKey())
	}
	ours, theirs := socketPair(t)
	q := p.qp.(*qp)
	check(t, q.claim())
	check(t, q.start(ours, terms{crc: crc, ird: 1, ord: 1}))
	check(t, theirs.SetDeadline(time.Now().Add(5*time.Second)))
	go func() {
		_, _ = theirs.Write(stream) // fails when the queue pair ends before it has taken all
		_ = theirs.(*net.UnixConn).CloseWrite()
	}()
	for wc := p.reap(t); wc.Status == verbs.StatusOK; {
		check(t, p.qp.PostRecv([]verbs.RecvWR{{ID: 2, Local: verbs.SGE{MR: sink, Len: recv}}}))
		wc = p.reap(t)
	}
	<-q.done
	for _, at := range []int{0, guard + open, guard + open + guard + recv} {
		if !bytes.Equal(mem[at:at+guard], bytes.Repeat([]byte{0xA5}, guard)) {
			t.Fatalf("bytes around a region changed, near %d", at)
		}
	}
	check(t, p.qp.Close())
	check(t, writable.Deregister())
	check(t, sink.Deregister())
}

// rekey puts the key into the first frame and corrects the CRC, which a fuzzer would not hit.
func rekey(stream []byte, key uint32) {
	if len(stream) < lenSize+taggedSize {
		return
	}
	if binary.BigEndian.Uint32(stream[4:]) == 0x100 {
		binary.BigEndian.PutUint32(stream[4:], key)
	}
	n := int(binary.BigEndian.Uint16(stream))
	end := lenSize + n + padOf(n)
	if end+crcSize <= len(stream) {
		binary.LittleEndian.PutUint32(stream[end:], crc32.Checksum(stream[:end], castagnoli))
	}
}

func socketPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	check(t, err)
	var conns [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		conns[i], err = net.FileConn(file)
		check(t, err)
		check(t, file.Close())
	}
	t.Cleanup(func() { conns[1].Close() })
	return conns[0], conns[1]
}
