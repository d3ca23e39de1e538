package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	encoding "encoding/binary"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

// resum gives bytes with a checksum at their end the right one.
func resum(b []byte) []byte {
	encoding.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

// inProcess is a receiver in this process.
type inProcess struct {
	dir, addr string
	log       lockedBuffer
}

func newInProcess(t *testing.T, limit time.Duration) *inProcess {
	t.Helper()
	p := &inProcess{dir: t.TempDir()}
	root, err := os.OpenRoot(p.dir)
	check(t, err)
	dev := iwarp.New(iwarp.Options{})
	listener, err := dev.Listen("127.0.0.1:0")
	check(t, err)
	p.addr = listener.Addr().String()
	r := &receiver{dev: dev, root: root, every: 1 << 20, limit: limit, log: func(f string, a ...any) { fmt.Fprintf(&p.log, f+"\n", a...) }}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.serve(ctx, listener, false); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
		check(t, listener.Close())
		check(t, dev.Close())
		root.Close()
	})
	return p
}

// dial connects a link that the test drives.
func dial(t *testing.T, addr string, dev verbs.Device) *link {
	t.Helper()
	l, err := newLink(dev, 5*time.Second)
	check(t, err)
	t.Cleanup(l.close)
	check(t, l.makeRing(slots, slotSize, 0))
	_, err = dev.Connect(t.Context(), l.qp, addr, []byte(private))
	check(t, err)
	l.connected()
	return l
}

// step is a message of a hostile sender; raw, if not nil, goes out as it is.
type step struct {
	m    message
	raw  []byte
	data bool // a WRITE of n bytes into slot seq goes before it
	want kind // answer that is waited for before, 0: none
}

func (s *step) take(t *testing.T, l *link, accept *message) {
	t.Helper()
	if s.want != 0 {
		m, err := l.expect(t.Context(), s.want)
		check(t, err)
		if m.kind == kindAccept {
			*accept = *m
		}
	}
	if s.data {
		check(t, l.qp.PostSend([]verbs.SendWR{{ID: idSend, Op: verbs.OpWrite, Local: verbs.SGE{MR: l.ring, Len: uint64(s.m.n)},
			RemoteAddr: accept.addr + s.m.seq%slots*slotSize, RKey: accept.rkey}}))
	}
	if s.raw != nil {
		copy(l.sends.Bytes(), s.raw)
		check(t, l.qp.PostSend([]verbs.SendWR{{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: l.sends, Len: uint64(len(s.raw))}}}))
		l.sent++
		return
	}
	check(t, l.send(t.Context(), s.m))
}

func offer(name string, size uint64) step {
	return step{m: message{kind: kindOffer, name: name, size: size, mode: 0o7777}}
}

func raw(change func(b []byte) []byte) step {
	b := make([]byte, maxMessage)
	m := message{kind: kindOffer, name: "f", size: 1}
	return step{raw: change(b[:m.encode(b)])}
}

// TestHostileSender: whatever a sender says, the receiver ends that connection alone, leaves nothing behind but what may be gone on with, and
// goes on with others.
func TestHostileSender(t *testing.T) {
	p := newInProcess(t, 5*time.Second)
	begin := []step{offer("f", 3<<20), {want: kindAccept, m: message{kind: kindStart}}}
	filled := func(seq uint64, n uint32) step {
		return step{data: n <= slotSize, m: message{kind: kindFilled, seq: seq, n: n}}
	}
	with := func(more ...step) []step { return append(begin[:len(begin):len(begin)], more...) }
	for _, c := range []struct {
		name  string
		steps []step
		says  string
	}{
		{"way up", []step{offer("../f", 1)}, "begins with a dot"},
		{"absolute", []step{offer("/etc/f", 1)}, "slash"},
		{"below", []step{offer("a/b", 1)}, "slash"},
		{"dot", []step{offer(".", 1)}, "dot"},
		{"hidden", []step{offer(".f.partial", 1)}, "dot"},
		{"no name", []step{offer("", 1)}, "no name"},
		{"zero byte", []step{offer("f\x00g", 1)}, "control"},
		{"terminal", []step{offer("f\x1b[2J", 1)}, "control"},
		{"not UTF-8", []step{offer("f\xff", 1)}, "UTF-8"},
		{"long name", []step{offer(strings.Repeat("f", 250), 1)}, "too long"},
		{"size beyond all", []step{offer("f", 1<<63)}, "too large"},
		{"size beyond the disk", []step{offer("f", 1<<62)}, "room"},
		{"START first", []step{{m: message{kind: kindStart}}}, "START came in place of OFFER"},
		{"START in the middle", []step{offer("f", 3<<20), {want: kindAccept, m: message{kind: kindStart, off: 1}}}, "START at 1"},
		{"slot out of turn", with(filled(1, 10)), "slot 1"},
		{"no bytes", with(filled(0, 0)), "0 bytes"},
		{"more than a slot", with(filled(0, slotSize+1)), "1048577 bytes"},
		{"more than the file", with(filled(0, slotSize), filled(1, slotSize), filled(2, slotSize), filled(3, 1)), "slot 3 with 1 bytes"},
		{"wrong sum", with(filled(0, slotSize), filled(1, slotSize), filled(2, slotSize), step{m: message{kind: kindFinish}}), "another SHA-256"},
		{"early end", with(filled(0, slotSize), step{m: message{kind: kindFinish}}), "1048576 of 3145728 bytes"},
		{"DONE", with(step{m: message{kind: kindDone}}), "DONE came"},
		{"garbage", []step{raw(func(b []byte) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") })}, "not a message"},
		{"short", []step{raw(func(b []byte) []byte { return b[:3] })}, "not a message"},
		{"flipped bit", []step{raw(func(b []byte) []byte { b[20] ^= 1; return b })}, "not a message"},
		{"other version", []step{raw(func(b []byte) []byte {
			b[4] = 2
			copy(b[8:], make([]byte, 4))
			encoding.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
			return b
		})}, "version 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := iwarp.New(iwarp.Options{})
			l := dial(t, p.addr, dev)
			var accept message
			for i := range c.steps {
				c.steps[i].take(t, l, &accept)
			}
			if err := untilError(t, l); !errors.As(err, new(*peerError)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the receiver says %v, want %q", err, c.says)
			}
			for _, name := range list(t, p.dir) {
				if name != ".f.partial" && name != ".f.state" {
					t.Errorf("%q is in the directory", name)
				}
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(p.dir, "..", "f")); err == nil {
		t.Error("a file outside the directory")
	}
	sendInProcess(t, p)
}

// TestInterruptedEnd: a file got its name, and a crash came before its partial file was gone. Whatever is sent under that name later, the
// file keeps its content wherever it was moved to.
func TestInterruptedEnd(t *testing.T) {
	p := newInProcess(t, 5*time.Second)
	partial, old := filepath.Join(p.dir, ".f.partial"), filepath.Join(p.dir, "old")
	check(t, os.WriteFile(partial, []byte("received before"), 0o600))
	check(t, os.Link(partial, old))
	path, content := source(t, "f", 100)
	if err := newSender(p.addr).send(t.Context(), path, "f"); err != nil {
		t.Fatalf("%v, %s", err, p.log.String())
	}
	for name, want := range map[string]string{"f": string(content), "old": "received before"} {
		if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %d other bytes than it should, %v", name, len(got), err)
		}
	}
	if names := list(t, p.dir); len(names) != 2 {
		t.Errorf("the directory holds %q", names)
	}
}

// sendInProcess sends a good file.
func sendInProcess(t *testing.T, p *inProcess) {
	t.Helper()
	path, content := source(t, "f", 2<<20)
	s := newSender(p.addr)
	if err := s.send(t.Context(), path, "f"); err != nil {
		t.Errorf("%v, %s", err, p.log.String())
	}
	same(t, p.dir, "f", content)
}

func newSender(addr string) *sender {
	return &sender{dev: iwarp.New(iwarp.Options{}), addr: addr, limit: 2 * time.Second,
		show: func(name string, size uint64) *progress { return &progress{out: io.Discard, name: name, size: size} }}
}

// untilError returns the error that ends the connection.
func untilError(t *testing.T, l *link) error {
	t.Helper()
	for {
		if _, err := l.receive(t.Context(), l.limit); err != nil {
			return err
		}
	}
}

// TestSilentSender: a connection that says nothing is given up, and so is one in the middle.
func TestSilentSender(t *testing.T) {
	p := newInProcess(t, time.Second)
	dev := iwarp.New(iwarp.Options{})
	silent := dial(t, p.addr, dev)
	half := dial(t, p.addr, dev)
	var accept message
	for _, s := range []step{offer("f", 3<<20), {want: kindAccept, m: message{kind: kindStart}}, {data: true, m: message{kind: kindFilled, n: slotSize}}} {
		s.take(t, half, &accept)
	}
	for name, l := range map[string]*link{"silent": silent, "half": half} {
		if err := untilError(t, l); errors.As(err, new(*peerError)) || errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sendInProcess(t, p)
}

func TestBusy(t *testing.T) {
	p := newInProcess(t, 5*time.Second)
	l := dial(t, p.addr, iwarp.New(iwarp.Options{}))
	o := offer("f", 3<<20)
	o.take(t, l, nil)
	_, err := l.expect(t.Context(), kindAccept)
	check(t, err)
	path, _ := source(t, "f", 100)
	if err := newSender(p.addr).send(t.Context(), path, "f"); err == nil || !strings.Contains(err.Error(), "from someone else") {
		t.Errorf("two senders of one file: %v", err)
	}
	var links []*link
	for range maxSessions - 1 {
		links = append(links, dial(t, p.addr, iwarp.New(iwarp.Options{})))
	}
	err = newSender(p.addr).send(t.Context(), path, "g")
	if !errors.As(err, new(*verbs.RejectedError)) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("one connection too many: %v", err)
	}
	for _, l := range append(links, l) {
		l.close()
	}
	dev := iwarp.New(iwarp.Options{})
	stranger, err := newLink(dev, time.Second)
	check(t, err)
	defer stranger.close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // until the places of the others are free
		_, err = dev.Connect(t.Context(), stranger.qp, p.addr, []byte("pmemfs"))
		if err != nil && strings.Contains(err.Error(), "receiver of sendfile") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a stranger: %v", err)
		}
	}
}

// hostileReceiver answers one connection with messages, each after it has got one, and returns the sender's error.
func hostileReceiver(t *testing.T, size int, answers ...func(l *link) message) error {
	t.Helper()
	dev := iwarp.New(iwarp.Options{})
	listener, err := dev.Listen("127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		req, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		l, err := newLink(dev, 5*time.Second)
		if err == nil {
			defer l.close()
			err = l.makeRing(2, 4096, verbs.LocalWrite|verbs.RemoteWrite)
		}
		if err == nil {
			err = req.Accept(l.qp, nil)
		}
		if err != nil {
			t.Error(err)
			return
		}
		l.connected()
		for len(answers) > 0 {
			m, err := l.receive(t.Context(), time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			if m == nil || m.kind == kindStart {
				continue
			}
			if err := l.send(t.Context(), answers[0](l)); err != nil {
				t.Error(err)
			}
			answers = answers[1:]
		}
		untilError(t, l)
	})
	path, _ := source(t, "f", size)
	return newSender(listener.Addr().String()).send(t.Context(), path, "f")
}

func TestHostileReceiver(t *testing.T) {
	accept := func(l *link) message {
		return message{kind: kindAccept, addr: l.ring.Addr(), rkey: l.ring.RKey(), slot: 4096, n: 2, sum: emptySum}
	}
	wrong := func(change func(m *message)) func(l *link) message {
		return func(l *link) message {
			m := accept(l)
			change(&m)
			return m
		}
	}
	always := func(m message) func(*link) message { return func(*link) message { return m } }
	for _, c := range []struct {
		name    string
		size    int
		answers []func(*link) message
		says    string
	}{
		{"no slots", 100, []func(*link) message{wrong(func(m *message) { m.n = 0 })}, "ring of 0 slots"},
		{"too many slots", 100, []func(*link) message{wrong(func(m *message) { m.n = 1 << 31 })}, "ring of 2147483648 slots"},
		{"huge slots", 100, []func(*link) message{wrong(func(m *message) { m.slot = 1<<32 - 1 })}, "4294967295 bytes"},
		{"more than the file", 100, []func(*link) message{wrong(func(m *message) { m.off = 101 })}, "101 bytes of the file"},
		{"no ACCEPT", 100, []func(*link) message{always(message{kind: kindDone})}, "DONE came in place of ACCEPT"},
		{"FREED too much", 100, []func(*link) message{accept, always(message{kind: kindFreed, seq: 2})}, "FREED came"},
		{"FREED nothing", 100, []func(*link) message{accept, always(message{kind: kindFreed, seq: 0})}, "FREED came"},
		{"DONE early", 100, []func(*link) message{accept, always(message{kind: kindDone})}, "DONE came"},
		{"other sum", 100, []func(*link) message{accept, always(message{kind: kindFreed, seq: 1}), always(message{kind: kindDone})}, "the receiver has SHA-256 0000"},
		{"escape in a text", 100, []func(*link) message{always(message{kind: kindRefuse, why: 99, text: "\x1b[2J"})}, `"\x1b[2J"`},
		{"wrong key", 100, []func(*link) message{wrong(func(m *message) { m.rkey++ })}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := hostileReceiver(t, c.size, c.answers...)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
