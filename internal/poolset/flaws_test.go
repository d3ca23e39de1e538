package poolset

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestFlaws flips every byte that counts in block 0. With one place damaged the other one is taken, and Flaws says where and
// what; with both damaged there is an error that does.
func TestFlaws(t *testing.T) {
	h := Header{Attr: Attr{Signature: Signature, Major: 1, PoolUUID: NewUUID(), CopyID: NewUUID()}, PoolSize: 1 << 20}
	states := [2]State{{Seq: 4, Term: 7, Gen: 1}, {Seq: 5, Term: 8, Gen: 2}}
	block := make([]byte, BlockSize)
	h.Encode(block)
	h.Encode(block[HeaderCopyOff:])
	for i, s := range states {
		s.Encode(block[StateOff+i*StateLen:], h.PoolUUID)
	}
	if err := Flaws(block, h.PoolUUID); err != nil {
		t.Fatal("nothing is damaged: ", err)
	}
	for _, c := range []struct {
		what  string
		at, n int
		twin  int // where the same stands again
	}{
		{"pool header", 0, HeaderLen, HeaderCopyOff},
		{"copy of the pool header", HeaderCopyOff, HeaderLen, 0},
		{"state slot 0", StateOff, stateCRC + 4, StateOff + StateLen},
		{"state slot 1", StateOff + StateLen, stateCRC + 4, StateOff},
	} {
		for i := range c.n {
			b := bytes.Clone(block)
			b[c.at+i] ^= 0x40
			got, torn, err := CurrentHeader(b)
			if err != nil || got != h || torn != (c.at == 0) {
				t.Fatalf("%s, byte %d: header %+v, %v, %v", c.what, i, got, torn, err)
			}
			want := 1
			if c.at == StateOff+StateLen {
				want = 0
			}
			if s, slot, err := CurrentState(b, h.PoolUUID); err != nil || slot != want || s != states[want] {
				t.Fatalf("%s, byte %d: state %+v in slot %d, %v", c.what, i, s, slot, err)
			}
			flaw := Flaws(b, h.PoolUUID)
			ce := new(CorruptError)
			if !errors.As(flaw, &ce) || ce.What != c.what || int(ce.Off) < c.at || int(ce.Off) >= c.at+c.n ||
				!strings.Contains(flaw.Error(), fmt.Sprintf("%#x", ce.Off)) {
				t.Fatalf("%s, byte %d: flaws: %v", c.what, i, flaw)
			}
			b[c.twin+i] ^= 0x40
			_, _, headerErr := CurrentHeader(b)
			_, _, stateErr := CurrentState(b, h.PoolUUID)
			if err := errors.Join(headerErr, stateErr); !errors.As(err, &ce) || ce.Expected == "" || ce.Found == "" {
				t.Fatalf("%s, byte %d in both places: %v", c.what, i, err)
			}
		}
	}
	clear(block[StateOff+StateLen:])
	if err := Flaws(block, h.PoolUUID); err != nil {
		t.Error("a slot that was never written: ", err)
	}
}
