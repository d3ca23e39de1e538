package verbstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

// testFence sends on, behind a fence, what Reads in front of it bring, and writes over what they take.
func testFence(t *testing.T, p Provider) {
	const reads, n, back = 20, 20_000, 500_000
	a, b := p.pair(t, 1<<20)
	for round := range byte(20) {
		for i := range reads * n {
			a.mem[i], b.mem[i] = 0, round+1
		}
		a.mem[back] = 0xFF
		b.postRecv(t, 1, back, 8)
		var wrs []verbs.SendWR
		for i := range reads {
			wrs = append(wrs, a.read(uint64(i), i*n, n, b, i*n))
		}
		last := reads*n - 8
		pass, over := a.send(reads, last, 8), a.write(reads+1, back, 1, b, last)
		pass.Fence, over.Fence = true, true
		a.post(t, append(wrs, pass, over)...)
		for i := range uint64(reads + 2) {
			good(t, a.scq, i)
		}
		good(t, b.rcq, 1)
		if want := bytes.Repeat([]byte{round + 1}, 8); !bytes.Equal(b.mem[back:back+8], want) {
			t.Fatalf("round %d: the fenced Send has brought % x, which is not what the Read before it has", round, b.mem[back:back+8])
		}
		if a.mem[last] != round+1 {
			t.Fatalf("round %d: the Read has got the byte %#x of the fenced Write behind it", round, a.mem[last])
		}
		b.postRecv(t, 2, 0, 0) // proves that the Write is placed
		a.post(t, a.send(2, 0, 0))
		good(t, a.scq, 2)
		good(t, b.rcq, 2)
	}
}

// testInline stores to the source of an inline Write and an inline Send as soon as they are posted, while a fence holds them back.
func testInline(t *testing.T, p Provider) {
	const size = 1 << 20
	a, b := p.pair(t, size+1024)
	limit := a.dev.Caps().MaxInline
	for _, wr := range []verbs.SendWR{a.write(1, 0, limit+1, b, 0), a.send(1, 0, limit+1), a.read(1, 0, 1, b, 0)} {
		wr.Inline = true
		if a.qp.PostSend([]verbs.SendWR{wr}) == nil {
			t.Errorf("%v of %d bytes inline: accepted", wr.Op, wr.Local.Len)
		}
	}
	n := min(limit, 512)
	for i := range n {
		a.mem[size+i] = byte(i + 1)
	}
	want := bytes.Clone(a.mem[size : size+n])
	b.postRecv(t, 4, size+512, n)
	w, s := a.write(2, size, n, b, size), a.send(3, size, n)
	w.Inline, w.Fence, s.Inline = true, true, true
	a.post(t, a.read(1, 0, size, b, 0), w, s)
	clear(a.mem[size:])
	for id := range uint64(3) {
		good(t, a.scq, id+1)
	}
	good(t, b.rcq, 4)
	if !bytes.Equal(b.mem[size:size+n], want) || !bytes.Equal(b.mem[size+512:size+512+n], want) {
		t.Error("what arrived is not what the source held at the post")
	}
}

// testFlush demands a completion from a device with native Flush, in the order posted, and a refusal from one without.
func testFlush(t *testing.T, p Provider) {
	a, b := p.pair(t, 4096)
	if !a.dev.Caps().Flush {
		refused(t, a, verbs.SendWR{ID: 1, Op: verbs.OpFlush, Local: verbs.SGE{Len: 8}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		return
	}
	m := b.flushable(t, b.mem)
	flush := verbs.SendWR{ID: 2, Op: verbs.OpFlush, Signaled: true, Local: verbs.SGE{Len: 100}, RemoteAddr: m.Addr() + 8, RKey: m.RKey()}
	for _, c := range []struct {
		what string
		sge  verbs.SGE
	}{{"local memory", a.sge(0, 8)}, {"an offset", verbs.SGE{Off: 8, Len: 8}}, {"too many bytes", verbs.SGE{Len: verbs.MaxMessage + 1}}} {
		bad := flush
		bad.Local = c.sge
		if a.qp.PostSend([]verbs.SendWR{bad}) == nil {
			t.Errorf("a Flush with %s: accepted", c.what)
		}
	}
	copy(a.mem, "flushed bytes")
	visible := flush
	visible.ID, visible.Flush = 3, verbs.FlushVisible
	a.post(t, a.write(1, 0, 100, b, 8), flush, visible, a.read(4, 1024, 100, b, 8))
	for id := range uint64(4) {
		if wc := good(t, a.scq, id+1); (wc.ID == 2 || wc.ID == 3) != (wc.Op == verbs.OpFlush) {
			t.Errorf("%+v", wc)
		}
	}
	if !bytes.Equal(a.mem[1024:1124], a.mem[:100]) || string(b.mem[8:21]) != "flushed bytes" {
		t.Error("the bytes of the Write are not where they belong")
	}
	b.postRecv(t, 9, 0, 8)
	flush.RemoteAddr, flush.RKey = b.mr.Addr(), b.mr.RKey()
	a.post(t, flush)
	if wc := failed(t, a.scq, 1); wc.Status != verbs.StatusProtect {
		t.Errorf("a Flush of a region without the right: %v", wc.Status)
	}
	failed(t, b.rcq, 1)
	b.drop(t, m)
}

// flushable registers b with the right to Flush, without pinning it if it can: devices that pin check that the memory is persistent.
func (s *side) flushable(t testing.TB, b []byte) verbs.MR {
	t.Helper()
	rights := allRight | verbs.RemoteFlush
	if s.dev.Caps().OnDemand {
		rights |= verbs.OnDemand
	}
	return s.region(t, b, rights)
}

// testAtomicWrite stores words at the peer with a device that has the operation, and demands a refusal from one without.
func testAtomicWrite(t *testing.T, p Provider) {
	a, b := p.pair(t, 4096)
	store := verbs.SendWR{ID: 1, Op: verbs.OpAtomicWrite, Signaled: true, Value: 0x0807060504030201, RemoteAddr: b.mr.Addr() + 16, RKey: b.mr.RKey()}
	if !a.dev.Caps().AtomicWrite {
		refused(t, a, store)
		return
	}
	bad := store
	bad.RemoteAddr += 4
	if a.qp.PostSend([]verbs.SendWR{bad}) == nil {
		t.Error("a word that is not aligned: accepted")
	}
	a.post(t, store)
	good(t, a.scq, 1)
	a.post(t, a.read(2, 0, 32, b, 8))
	good(t, a.scq, 2)
	var want [32]byte
	binary.LittleEndian.PutUint64(want[8:], store.Value)
	if !bytes.Equal(a.mem[:32], want[:]) {
		t.Errorf("the peer holds % x", a.mem[:32])
	}
	mem := make([]byte, 64)
	ro := b.region(t, mem, verbs.RemoteRead)
	store.RemoteAddr, store.RKey = ro.Addr(), ro.RKey()
	a.post(t, store)
	if wc := failed(t, a.scq, 1); wc.Status != verbs.StatusProtect || !bytes.Equal(mem, make([]byte, 64)) {
		t.Errorf("a word in a region without the right: %v", wc.Status)
	}
	b.drop(t, ro)
}

// refused demands that the device knows nothing of this operation, and takes others all the same.
func refused(t *testing.T, s *side, wr verbs.SendWR) {
	t.Helper()
	if err := s.qp.PostSend([]verbs.SendWR{wr}); !errors.Is(err, verbs.ErrUnsupported) {
		t.Errorf("%v on a device without it: %v", wr.Op, err)
	}
	s.post(t, s.send(1, 0, 0))
	next(t, s.scq)
}

// testRights registers with rights that not every device can grant.
func testRights(t *testing.T, p Provider) {
	da, _, _ := p.devices(t)
	pd := must(da.AllocPD())(t)
	caps := da.Caps()
	for _, c := range []struct {
		name  string
		right verbs.Access
		can   bool
	}{{"RemoteFlush", verbs.RemoteFlush, caps.Flush}, {"OnDemand", verbs.OnDemand, caps.OnDemand}} {
		if c.can {
			continue // whether the memory of a test is good enough is for the kernel to say
		}
		m, err := pd.RegisterMR(make([]byte, 4096), allRight|c.right)
		if !errors.Is(err, verbs.ErrUnsupported) {
			t.Errorf("%s on a device without it: %v", c.name, err)
		}
		if err == nil {
			check(t, m.Deregister())
		}
	}
	check(t, pd.Close())
}
