package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

var emptySum = sha256.Sum256(nil)

func examples() []message {
	sum := [sumSize]byte{1, 2, 31: 32}
	return []message{
		{kind: kindOffer, size: 0x0102030405060708, mode: 0o644, name: "name"},
		{kind: kindAccept, off: 5, sum: sum, addr: 6, rkey: 7, slot: 1 << 20, n: 8},
		{kind: kindStart, off: 5},
		{kind: kindFilled, seq: 9, n: 10},
		{kind: kindFreed, seq: 11},
		{kind: kindFinish, sum: sum},
		{kind: kindDone, sum: sum},
		{kind: kindRefuse, why: reasonNoSpace, text: "full"},
		{kind: kindAlive},
	}
}

func TestMessage_RoundTrip(t *testing.T) {
	for _, m := range examples() {
		b := make([]byte, maxMessage)
		n := m.encode(b)
		var got message
		if err := got.decode(b[:n]); err != nil || got != m {
			t.Errorf("%v: %v, %+v", m.kind, err, got)
		}
		for i := range n {
			bad := bytes.Clone(b[:n])
			bad[i] ^= 0x40
			if got.decode(bad) == nil {
				t.Errorf("%v with byte %d changed is taken", m.kind, i)
			}
		}
		if got.decode(b[:n-1]) == nil || got.decode(b[:n+1]) == nil {
			t.Errorf("%v with a byte too few or too many is taken", m.kind)
		}
	}
	long := message{kind: kindRefuse, text: strings.Repeat("x", 1000)}
	if n := long.encode(make([]byte, maxMessage)); n > maxMessage {
		t.Errorf("a text of 1000 bytes makes a message of %d", n)
	}
}

func TestGoldenBytes(t *testing.T) {
	b := make([]byte, maxMessage)
	for i, want := range []string{
		"534e444601011000" + "0b9dc3c9" + "00000000" + "0807060504030201" + "a4010000" + "6e616d65",
		"534e444601023c00" + "5d1233ca" + "00000000" + "0500000000000000" + "01020000000000000000000000000000000000000000000000000000000000" + "20" + "0600000000000000" + "07000000" + "00001000" + "08000000",
		"534e444601030800" + "4b0a2de6" + "00000000" + "0500000000000000",
		"534e444601040c00" + "7aa95541" + "00000000" + "0900000000000000" + "0a000000",
	} {
		m := examples()[i]
		if got := hex.EncodeToString(b[:m.encode(b)]); got != want {
			t.Errorf("%v\n got %s\nwant %s", m.kind, got, want)
		}
	}
	s := state{size: 3, durable: 2, sum: [sumSize]byte{0xab}}
	if got, want := hex.EncodeToString(s.encode()), "534e445301000000"+"0300000000000000"+"0200000000000000"+"ab"+strings.Repeat("00", 31)+"00000000"+"ce2f6313"; got != want {
		t.Errorf("state\n got %s\nwant %s", got, want)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range examples() {
		b := make([]byte, maxMessage)
		f.Add(b[:m.encode(b)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again message
		if m.decode(b) != nil {
			return
		}
		out := make([]byte, maxMessage)
		if n := m.encode(out); again.decode(out[:n]) != nil || again != m {
			t.Errorf("%+v becomes %+v", m, again)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add((&state{size: 3, durable: 2}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var s state
		if s.decode(b) == nil && !bytes.Equal(s.encode(), b) {
			t.Errorf("% x is taken for %+v", b, s)
		}
	})
}
