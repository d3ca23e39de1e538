package wire

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

func TestFlushRoundTrip(t *testing.T) {
	full := Flush{Seq: math.MaxUint64, Session: 2, Ranges: make([]pmem.Range, MaxRanges)}
	for i := range full.Ranges {
		full.Ranges[i] = pmem.Range{Off: uint64(i) << 40, Len: uint64(i)}
	}
	buf := make([]byte, MaxFlush)
	for _, want := range []Flush{
		{Seq: 1, Session: 2, Ranges: []pmem.Range{}},
		{Seq: 1, Answer: true, Seal: pmem.Seal{Off: 4096}, Ranges: []pmem.Range{{Off: 4104, Len: 8}}},
		{Seq: 1, Seal: pmem.Seal{Off: 4096}, Stage: Staged, StageAt: 7 * StageUnit, Ranges: []pmem.Range{{Off: 4104, Len: 8}}},
		{Seq: 1, Answer: true, Stage: Fetch, StageAt: StageUnit * math.MaxUint32, Ranges: []pmem.Range{{Off: 4104, Len: 8}}},
		full,
	} {
		n := want.Encode(buf)
		var got Flush
		got.Ranges = make([]pmem.Range, 0, MaxRanges)
		if err := got.Decode(buf[:n]); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
}

func TestFlushRefusesEveryFlippedByte(t *testing.T) {
	m := Flush{Seq: 1, Session: 2, Answer: true, Seal: pmem.Seal{Off: 8192, Val: 3}, Ranges: []pmem.Range{{Off: 4096, Len: 64}}}
	buf := make([]byte, MaxFlush)
	good := buf[:m.Encode(buf)]
	a := FlushAnswer{FlushOK, 1, 2, 3, 4}
	ans := make([]byte, AnswerSize)
	a.Encode(ans)
	check := func(good []byte, decode func([]byte) error) {
		for i := range good {
			b := bytes.Clone(good)
			b[i] ^= 1
			if err := decode(b); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d of %d flipped: %v", i, len(good), err)
			}
			if err := decode(good[:i]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("cut to %d of %d: %v", i, len(good), err)
			}
		}
		if err := decode(append(bytes.Clone(good), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a byte too many: %v", err)
		}
	}
	check(good, new(Flush).Decode)
	check(ans, new(FlushAnswer).Decode)
}

func TestFlushRefusesBadSeals(t *testing.T) {
	buf := make([]byte, MaxFlush)
	for _, seal := range []pmem.Seal{{Off: 4097, Val: 1}, {Off: 0, Val: 1}, {Off: 4088, Val: 1}} {
		m := Flush{Seal: seal}
		if err := new(Flush).Decode(buf[:m.Encode(buf)]); err != errFlushSeal {
			t.Errorf("seal at %d: %v", seal.Off, err)
		}
	}
}

func TestCheckCannotWrap(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		r  pmem.Range
		ok bool
	}{
		{pmem.Range{Off: 4096, Len: size - 4096}, true},
		{pmem.Range{Off: 4096, Len: size - 4095}, false},
		{pmem.Range{Off: 4095, Len: 1}, false},
		{pmem.Range{Off: size, Len: 0}, true},
		{pmem.Range{Off: size + 1, Len: 0}, false},
		{pmem.Range{Off: 8192, Len: math.MaxUint64}, false},
		{pmem.Range{Off: math.MaxUint64, Len: 2}, false},
		{pmem.Range{Off: math.MaxUint64 - 1, Len: 8192}, false},
	} {
		m := Flush{Ranges: []pmem.Range{c.r}}
		if where, ok := m.Check(size); ok != c.ok || !ok && where != c.r.Off {
			t.Errorf("%+v: %v at %d", c.r, ok, where)
		}
	}
	for off, want := range map[uint64]bool{4096: true, size - 8: true, size - 4: false, size: false, math.MaxUint64 - 7: false, 8: false} {
		m := Flush{Seal: pmem.Seal{Off: off, Val: 1}}
		if _, ok := m.Check(size); ok != want {
			t.Errorf("seal at %d: %v", off, ok)
		}
	}
}

func TestFlushAllocatesNothing(t *testing.T) {
	buf := make([]byte, MaxFlush)
	m := Flush{Seq: 1, Answer: true, Seal: pmem.Seal{Off: 8192, Val: 3}, Ranges: make([]pmem.Range, MaxRanges)}
	got := Flush{Ranges: make([]pmem.Range, 0, MaxRanges)}
	var a FlushAnswer
	n := testing.AllocsPerRun(100, func() {
		if err := got.Decode(buf[:m.Encode(buf)]); err != nil {
			t.Fatal(err)
		}
		got.Check(1 << 30)
		a.Encode(buf)
		if err := a.Decode(buf[:AnswerSize]); err != nil {
			t.Fatal(err)
		}
		got.Decode(buf[:3])
	})
	if n != 0 {
		t.Errorf("%v allocations per flush and answer", n)
	}
}

func TestPrivate(t *testing.T) {
	want := Private{3, 4}
	var got Private
	b := want.Append(nil)
	if err := got.Decode(b); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := got.Decode(b[:15]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short: %v", err)
	}
	b[4] = 9
	var ve *VersionError
	if err := got.Decode(b); !errors.As(err, &ve) || ve.Got != 9 {
		t.Errorf("version: %v", err)
	}
}

// A request that says two things of the staging area, or a fetch that would change something, is no request.
func TestFlushRefusesBadStages(t *testing.T) {
	buf := make([]byte, MaxFlush)
	for name, m := range map[string]Flush{
		"offset without flag": {StageAt: StageUnit},
		"fetch with a seal":   {Stage: Fetch, Answer: true, Seal: pmem.Seal{Off: 4096, Val: 1}},
		"fetch, no answer":    {Stage: Fetch},
	} {
		if err := new(Flush).Decode(buf[:m.Encode(buf)]); err != errFlushStage {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := Flush{Stage: Staged, Answer: true}
	b := buf[:m.Encode(buf)]
	b[5] |= flagFetch
	le.PutUint32(b[44:], sum(b, 44))
	if err := new(Flush).Decode(b); err != errFlushStage {
		t.Errorf("both: %v", err)
	}
}

func TestCheckStageCannotWrap(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		at   uint64
		lens []uint64
		ok   bool
	}{
		{0, []uint64{size}, true},
		{0, []uint64{size, 1}, false},
		{0, []uint64{size - 1, 1, 0}, true},
		{64, []uint64{size - 64}, true},
		{64, []uint64{size - 63}, false},
		{64, []uint64{math.MaxUint64, 65}, false},
		{size, []uint64{0}, true},
		{size + 64, nil, false},
		{size + 64, []uint64{1}, false},
		{StageUnit * math.MaxUint32, []uint64{1}, false},
	} {
		m := Flush{StageAt: c.at}
		for _, n := range c.lens {
			m.Ranges = append(m.Ranges, pmem.Range{Len: n})
		}
		if m.CheckStage(size) != c.ok {
			t.Errorf("%d bytes at %d: want %v", c.lens, c.at, c.ok)
		}
	}
}
