package poolset

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testUUID(start byte) (u UUID) {
	for i := range u {
		u[i] = start + byte(i)
	}
	return u
}

func testHeader() Header {
	return Header{
		Attr: Attr{
			Signature: Signature, Major: 1, Compat: 2, Incompat: 3, ROCompat: 4,
			PoolUUID: testUUID(0x10), CopyID: testUUID(0x30), Prev: testUUID(0x50), Next: testUUID(0x70),
			UserFlags: testUUID(0x90),
		},
		Created: 0x0102030405060708, PoolSize: 0x1112131415161718,
	}
}

func testState(seq uint64) State {
	s := State{
		Seq: seq, Term: 2, Writer: testUUID(0x20), Gen: 3, Flags: Inconsistent | Memory, SyncGen: 4, SyncID: 5, BootID: testUUID(0x40),
	}
	for i := range s.History {
		s.History[i] = 0x100 + uint64(i)
		s.Peers[i] = testUUID(byte(0x60 + i))
	}
	return s
}

// testBlock is block 0 with header, header copy, and states 6 (slot 0) and 7 (slot 1).
func testBlock() []byte {
	b := make([]byte, BlockSize)
	h, old, current := testHeader(), testState(6), testState(7)
	h.Encode(b)
	h.Encode(b[HeaderCopyOff:])
	old.Encode(b[StateOff:], h.PoolUUID)
	current.Encode(b[StateOff+StateLen:], h.PoolUUID)
	return b
}

func golden(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHeaderGolden(t *testing.T) {
	want := golden(t, `
		504d454d46530000 01000000 02000000 03000000 04000000
		101112131415161718191a1b1c1d1e1f
		303132333435363738393a3b3c3d3e3f
		00000000000000000000000000000000
		00000000000000000000000000000000
		505152535455565758595a5b5c5d5e5f
		707172737475767778797a7b7c7d7e7f
		0807060504030201
		909192939495969798999a9b9c9d9e9f
		1817161514131211
		82dc2422`)
	h := testHeader()
	got := make([]byte, HeaderLen)
	h.Encode(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%x", diff, got)
	}
	var back Header
	if err := back.Decode(want); err != nil || back != h {
		t.Errorf("decoded: %+v, %v", back, err)
	}
}

func TestStateGolden(t *testing.T) {
	want := golden(t, `
		0700000000000000 0200000000000000
		202122232425262728292a2b2c2d2e2f
		0300000000000000
		0001000000000000 0101000000000000 0201000000000000 0301000000000000
		0401000000000000 0501000000000000 0601000000000000 0701000000000000
		05000000 00000000
		0400000000000000 0500000000000000
		404142434445464748494a4b4c4d4e4f
		606162636465666768696a6b6c6d6e6f 6162636465666768696a6b6c6d6e6f70
		62636465666768696a6b6c6d6e6f7071 636465666768696a6b6c6d6e6f707172
		6465666768696a6b6c6d6e6f70717273 65666768696a6b6c6d6e6f7071727374
		666768696a6b6c6d6e6f707172737475 6768696a6b6c6d6e6f70717273747576
		22cca3ab`)
	want = append(want, make([]byte, StateLen-len(want))...)
	s := testState(7)
	got := bytes.Repeat([]byte{0xff}, StateLen)
	s.Encode(got, testUUID(0x10))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%x", diff, got)
	}
	var back State
	if err := back.Decode(want, testUUID(0x10)); err != nil || back != s {
		t.Errorf("decoded: %+v, %v", back, err)
	}
	if err := back.Decode(want, testUUID(0x11)); err == nil {
		t.Error("a slot of another pool was taken")
	}
}

// Each flipped bit is found, or repaired by the second copy, or lies where nothing is stored.
func TestEveryFlippedByte(t *testing.T) {
	h, old, current := testHeader(), testState(6), testState(7)
	for off := range BlockSize {
		b := testBlock()
		b[off] ^= 1 << (off % 8)
		gotH, torn, err := CurrentHeader(b)
		if err != nil || gotH != h || torn != (off < HeaderLen) {
			t.Errorf("flip at %#x: header %+v, torn %v, %v", off, gotH, torn, err)
		}
		var one Header
		if err := one.Decode(b); (err != nil) != (off < HeaderLen) {
			t.Errorf("flip at %#x: header alone: %v", off, err)
		}
		want, slot := current, 1
		if off >= StateOff+StateLen && off < StateOff+StateLen+stateCRC+4 {
			want, slot = old, 0
		}
		gotS, gotSlot, err := CurrentState(b, h.PoolUUID)
		if err != nil || gotS != want || gotSlot != slot {
			t.Errorf("flip at %#x: state %d in slot %d, %v", off, gotS.Seq, gotSlot, err)
		}
	}
}

func TestBothCopiesDamaged(t *testing.T) {
	b := testBlock()
	b[0x20]++
	b[HeaderCopyOff+0x30]++
	b[StateOff+8]++
	b[StateOff+StateLen+275]++
	var ce *CorruptError
	if _, _, err := CurrentHeader(b); !errors.As(err, &ce) || ce.Off != headerCRC {
		t.Errorf("header: %v", err)
	}
	if _, _, err := CurrentState(b, testUUID(0x10)); !errors.As(err, &ce) || ce.Off != StateOff {
		t.Errorf("state: %v", err)
	}
}

func TestZeroBlockIsNoPool(t *testing.T) {
	b := make([]byte, BlockSize)
	if _, _, err := CurrentHeader(b); err == nil {
		t.Error("a block of zeros has a header")
	}
	if _, _, err := CurrentState(b, UUID{}); err == nil {
		t.Error("a block of zeros has a state")
	}
}

func TestHigherSlotCounts(t *testing.T) {
	b := testBlock()
	next := testState(8)
	next.Encode(b[StateOff:], testUUID(0x10))
	if s, slot, err := CurrentState(b, testUUID(0x10)); err != nil || slot != 0 || s.Seq != 8 {
		t.Errorf("slot %d, seq %d, %v", slot, s.Seq, err)
	}
}

func TestFlagsString(t *testing.T) {
	for f, want := range map[Flags]string{0: "", Inconsistent | Clean: "inconsistent,clean", Memory | MayDegrade | 32: "memory,may-degrade,0x20"} {
		if f.String() != want {
			t.Errorf("%d: %q", f, f)
		}
	}
}

func TestUUID(t *testing.T) {
	const text = "00112233-4455-6677-8899-aabbccddeeff"
	u, err := ParseUUID(text)
	if err != nil || u.String() != text || u[4] != 0x44 || u.IsZero() {
		t.Errorf("%v, %v", u, err)
	}
	for _, bad := range []string{"", text[1:], text + "0", "00112233x4455-6677-8899-aabbccddeeff", "0011223g-4455-6677-8899-aabbccddeeff"} {
		if u, err := ParseUUID(bad); err == nil || !u.IsZero() {
			t.Errorf("%q: %v, %v", bad, u, err)
		}
	}
	a, b := NewUUID(), NewUUID()
	if a == b || a[6]>>4 != 4 || a[8]>>6 != 2 {
		t.Errorf("%v, %v", a, b)
	}
	if back, err := ParseUUID(a.String()); err != nil || back != a {
		t.Errorf("%v became %v, %v", a, back, err)
	}
}

func FuzzBlock(f *testing.F) {
	f.Add(testBlock())
	f.Add(testBlock()[:StateOff+StateLen])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, torn, err := CurrentHeader(b)
		if err == nil {
			got := make([]byte, HeaderLen)
			h.Encode(got)
			from := 0
			if torn {
				from = HeaderCopyOff
			}
			var again Header
			if again.Decode(got) != nil || again != h || len(b) < from+HeaderLen {
				t.Fatalf("%+v became %+v", h, again)
			}
		}
		s, slot, err := CurrentState(b, h.PoolUUID)
		if err == nil {
			got := make([]byte, StateLen)
			s.Encode(got, h.PoolUUID)
			var again State
			if again.Decode(got, h.PoolUUID) != nil || again != s || slot>>1 != 0 {
				t.Fatalf("%+v became %+v", s, again)
			}
		}
	})
}

// A random write into either slot never gives anything but one of the two states.
func TestTornStateWrite(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pool, old := testUUID(0x10), testState(7)
	for range 2000 {
		b := testBlock()
		next := testState(8)
		next.Gen = r.Uint64()
		var slot [StateLen]byte
		next.Encode(slot[:], pool)
		for line := 0; line < StateLen; line += 64 { // any subset of its cache lines arrives
			if r.IntN(2) == 0 {
				copy(b[StateOff+line:StateOff+line+64], slot[line:])
			}
		}
		got, _, err := CurrentState(b, pool)
		if err != nil || got != old && got != next {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}
