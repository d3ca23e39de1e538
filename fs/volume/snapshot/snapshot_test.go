package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

type run struct{ first, n uint64 }

// lists is a space as two lists.
type lists struct{ nodes, data, dropped []run }

func each(l []run) func(fn func(first, n uint64)) {
	return func(fn func(first, n uint64)) {
		for _, r := range l {
			fn(r.first, r.n)
		}
	}
}

func (l lists) space() Space { return Space{each(l.nodes), each(l.data), each(l.dropped)} }

func decode(b []byte, epoch uint64) (l lists, err error) {
	add := func(to *[]run) func(first, n uint64) bool {
		return func(first, n uint64) bool {
			*to = append(*to, run{first, n})
			return true
		}
	}
	return l, Decode(b, epoch, add(&l.nodes), add(&l.data), add(&l.dropped))
}

var sample = lists{nodes: []run{{0x4400, 3}, {0x4405, 300}}, data: []run{{7, 1}}, dropped: []run{{0x4401, 1}}}

func TestGoldenBytes(t *testing.T) {
	want, err := hex.DecodeString(strings.ReplaceAll(`504d465350414345 0900000000000000 0200000000000000 0100000000000000 0100000000000000`+
		` 808801 03 02 ac02 07 01 818801 01`, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	got := Append(nil, 9, sample.space())
	if !bytes.Equal(got, want) {
		t.Errorf("bytes differ from the format\n got %x\nwant %x", got, want)
	}
	l, err := decode(got, 9)
	if err != nil || !cmp.Equal(l, sample, cmp.AllowUnexported(lists{}, run{})) {
		t.Errorf("decoded %v, %v", l, err)
	}
}

// Whatever is not whole, or is of another epoch, is refused.
func TestDecode_Refuses(t *testing.T) {
	b := Append(nil, 9, sample.space())
	for n := range b {
		if _, err := decode(b[:n], 9); !errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("cut off after %d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := decode(append(b[:len(b):len(b)], 0), 9); !errors.Is(err, layout.ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := decode(b, 10); !errors.Is(err, layout.ErrCorrupt) {
		t.Errorf("another epoch: %v", err)
	}
	refuse := func(uint64, uint64) bool { return false }
	if err := Decode(b, 9, refuse, refuse, refuse); !errors.Is(err, layout.ErrCorrupt) {
		t.Errorf("a run that cannot be: %v", err)
	}
	for _, l := range []lists{{nodes: []run{{5, 0}}}, {nodes: []run{{5, ^uint64(0)}}}} {
		if _, err := decode(Append(nil, 9, l.space()), 9); !errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("%v: %v", l, err)
		}
	}
}

// FuzzDecode: no bytes make it crash or loop, and what it accepts has disjoint runs in ascending order.
func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, 9, sample.space()))
	f.Add(Append(nil, 9, lists{}.space()))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(b, 9)
		if err != nil {
			return
		}
		for _, rs := range [][]run{l.nodes, l.data, l.dropped} {
			end := uint64(0)
			for _, r := range rs {
				if r.first < end || r.n == 0 || r.first+r.n < r.first {
					t.Fatalf("accepted %v", rs)
				}
				end = r.first + r.n
			}
		}
		if again, err := decode(Append(nil, 9, l.space()), 9); err != nil || !cmp.Equal(again, l, cmp.AllowUnexported(lists{}, run{})) {
			t.Errorf("encoded anew it is %v, %v", again, err)
		}
	})
}
