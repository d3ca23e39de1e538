package oplog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

const ringOff = layout.LogOff

var testUUID = [16]byte{9, 8, 7, 6, 5, 4, 3, 2, 1}

// media is a pool whose ring a log writes to. Seals are stored by seal, as an executor of drains does.
type media struct {
	pool []byte
	log  *Log
}

func newMedia(ringLen int) *media {
	m := &media{pool: make([]byte, ringOff+ringLen+64)}
	m.log = New(m.ring(), ringOff, testUUID)
	return m
}

func (m *media) ring() []byte { return m.pool[ringOff : len(m.pool)-64] }

func (m *media) seal(s pmem.Seal) { binary.LittleEndian.PutUint64(m.pool[s.Off:], s.Val) }

func (m *media) read(off uint64, b []byte) error {
	if off < ringOff || off+uint64(len(b)) > uint64(ringOff+len(m.ring())) {
		return fmt.Errorf("read of %d bytes at %d, outside of the ring", len(b), off)
	}
	copy(b, m.pool[off:])
	return nil
}

// point is where a scan can start: after a record.
type point struct{ pos, lsn, seal, term uint64 }

func (m *media) here() point { return point{m.log.Pos(), m.log.LSN(), m.log.LastSeal(), m.log.term} }

func (m *media) append(t testing.TB, body []byte, term uint64) pmem.Seal {
	t.Helper()
	_, seal, _, err := m.log.Append(body, 1, term, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

// scan returns the bodies after p, and where the log ends.
func (m *media) scan(t testing.TB, p point) (bodies [][]byte, end point) {
	t.Helper()
	pos, lsn, seal, term, n, err := Scan(m.read, ringOff, uint64(len(m.ring())), p.pos, p.lsn, p.seal, p.term, testUUID,
		func(rec layout.Record, body []byte) error {
			if int(rec.Len) != len(body) || rec.LSN != p.lsn+uint64(len(bodies))+1 {
				t.Fatalf("record %+v with %d bytes, after %d and %d more", rec, len(body), p.lsn, len(bodies))
			}
			bodies = append(bodies, bytes.Clone(body))
			return nil
		})
	if err != nil || n != len(bodies) {
		t.Fatalf("scan: %d records, %v", n, err)
	}
	return bodies, point{pos, lsn, seal, term}
}

// Random bodies over hundreds of laps. At each step a scan from the oldest record that is not released finds exactly those
// appended and sealed since, and the room is exactly what they leave.
func TestLog_RoundTripOverWraps(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMedia(4096)
	starts, bodies := []point{{}}, [][]byte{}
	var used, laps uint64
	term := uint64(1)
	for range 20000 {
		body := make([]byte, rng.IntN(1+rng.IntN(1500)))
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		if rng.IntN(30) == 0 {
			term++
		}
		if m.log.Free() != 4096-64-used {
			t.Fatalf("free %d with %d in use", m.log.Free(), used)
		}
		before := m.here()
		_, seal, ranges, err := m.log.Append(body, 1, term, 5, nil)
		if fits := Space(uint64(len(body))) <= 4096-64-used; fits != (err == nil) {
			t.Fatalf("append of %d bytes with %d in use: %v", len(body), used, err)
		}
		if err != nil {
			if !errors.Is(err, ErrFull) || m.here() != before {
				t.Fatalf("%v; log moved from %v to %v", err, before, m.here())
			}
			drop := 1 + rng.IntN(len(bodies))
			for _, b := range bodies[:drop] {
				used -= Space(uint64(len(b)))
			}
			starts, bodies = starts[drop:], bodies[drop:]
			m.log.Release(starts[0].pos)
			continue
		}
		checkRanges(t, m, before.pos, len(body), seal, ranges)
		if m.log.Pos() < before.pos {
			laps++
		}
		if got, _ := m.scan(t, starts[0]); len(got) != len(bodies) {
			t.Fatalf("a record counts before it is sealed: %d, want %d", len(got), len(bodies))
		}
		m.seal(seal)
		used += Space(uint64(len(body)))
		starts, bodies = append(starts, m.here()), append(bodies, body)
		got, end := m.scan(t, starts[0])
		if len(got) != len(bodies) || end != m.here() {
			t.Fatalf("scan found %d records up to %+v, want %d up to %+v", len(got), end, len(bodies), m.here())
		}
		for i := range got {
			if !bytes.Equal(got[i], bodies[i]) {
				t.Fatalf("record %d has another body", i)
			}
		}
	}
	if laps < 200 {
		t.Errorf("only %d laps", laps)
	}
}

// checkRanges: the ranges are header and body without the seal word, and nothing else.
func checkRanges(t *testing.T, m *media, pos uint64, n int, seal pmem.Seal, ranges []pmem.Range) {
	t.Helper()
	at := ringOff + pos
	if seal.Off != at || len(ranges) == 0 || len(ranges) > 2 || ranges[0].Off != at+8 {
		t.Fatalf("record at %d: seal at %d, ranges %v", at, seal.Off, ranges)
	}
	sum := uint64(0)
	for i, r := range ranges {
		if sum += r.Len; r.Len == 0 || r.Off+r.Len > uint64(ringOff+len(m.ring())) || i == 1 && r.Off != ringOff {
			t.Fatalf("ranges %v of a record at %d", ranges, at)
		}
	}
	if sum != uint64(56+n) {
		t.Fatalf("ranges %v hold %d bytes, want %d", ranges, sum, 56+n)
	}
}

// All but a prefix of a sealed record, and in a second go all but a suffix, is what stood there before. The scan ends
// before it, with no error.
func TestScan_EveryTornRecordEndsTheLog(t *testing.T) {
	for _, bodyLen := range []int{0, 1, 64, 200, 700} {
		m := newMedia(4096)
		seals := []pmem.Seal{}
		for range 5 { // so that the last record wraps for the long bodies, and stands on old ones
			seals = append(seals, m.append(t, bytes.Repeat([]byte{0x11}, 650), 1))
			m.seal(seals[len(seals)-1])
			m.log.Release(m.log.Pos())
		}
		start := m.here()
		before := bytes.Clone(m.pool)
		m.seal(m.append(t, bytes.Repeat([]byte{0x22}, bodyLen), 1))
		after := bytes.Clone(m.pool)
		places := []int{}
		for i := range uint64(64 + bodyLen) {
			if at := ringOff + int((start.pos+i)%4096); before[at] != after[at] {
				places = append(places, at)
			}
		}
		for cut := range len(places) {
			for _, torn := range [][]int{places[:cut+1], places[cut:]} {
				copy(m.pool, after)
				for _, at := range torn {
					m.pool[at] = before[at]
				}
				if bodies, end := m.scan(t, start); len(bodies) != 0 || end != start {
					t.Fatalf("body of %d bytes, torn at %d of %d: a scan believes it", bodyLen, cut, len(places))
				}
			}
		}
		copy(m.pool, after)
		for i := range 64 + bodyLen {
			at := ringOff + int((start.pos+uint64(i))%4096)
			m.pool[at] ^= 1
			if bodies, _ := m.scan(t, start); len(bodies) != 0 {
				t.Fatalf("body of %d bytes, byte %d flipped: a scan believes it", bodyLen, i)
			}
			m.pool[at] ^= 1
		}
		if bodies, _ := m.scan(t, start); len(bodies) != 1 {
			t.Fatal("the whole record does not count")
		}
	}
}

// Records 1 to 4 are written by term 1. A promoted copy that had only record 1 writes its own record 2, of the same size.
// The old records 3 and 4 still stand behind it, whole and sealed, and must not count.
func TestScan_StaleChainNeverRevives(t *testing.T) {
	for _, term := range []uint64{1, 2} {
		m := newMedia(4096)
		m.seal(m.append(t, []byte("one"), 1))
		fork := m.here()
		for _, b := range []string{"two", "three", "four"} {
			m.seal(m.append(t, []byte(b), 1))
		}
		if got, _ := m.scan(t, point{}); len(got) != 4 {
			t.Fatalf("%d records before the fork", len(got))
		}
		m.log.Reset(fork.pos, fork.lsn, fork.seal, fork.term)
		seal := m.append(t, []byte("TWO"), term)
		if got, _ := m.scan(t, point{}); len(got) != 1 {
			t.Fatalf("the stale seal of a record made %d records valid", len(got)-1)
		}
		m.seal(seal)
		if got, end := m.scan(t, point{}); len(got) != 2 || string(got[1]) != "TWO" || end != m.here() {
			t.Fatalf("term %d: records %q", term, got)
		}
	}
}

// A record whose chain fits but whose term is lower than that of the record before ends the log.
func TestScan_LowerTermEndsTheLog(t *testing.T) {
	m := newMedia(4096)
	m.seal(m.append(t, []byte("x"), 4))
	if got, _ := m.scan(t, point{term: 4}); len(got) != 1 {
		t.Error("a record of the same term does not count")
	}
	if got, end := m.scan(t, point{term: 5}); len(got) != 0 || end.term != 5 {
		t.Error("a record of a lower term counts")
	}
	if _, _, _, err := m.log.Append(nil, 0, 3, 0, nil); !errors.Is(err, ErrTerm) {
		t.Errorf("append in a lower term: %v", err)
	}
}

func TestLog_TooLarge(t *testing.T) {
	m := newMedia(4096)
	if _, _, _, err := m.log.Append(make([]byte, 4096-128+1), 0, 1, 0, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("body as long as the ring: %v", err)
	}
	m.append(t, make([]byte, 4096-128), 1)
	if m.log.Free() != 0 {
		t.Errorf("%d bytes are free", m.log.Free())
	}
	big := newMedia(2 << 20)
	if _, _, _, err := big.log.Append(make([]byte, layout.MaxBody+1), 0, 1, 0, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("body beyond 1 MiB: %v", err)
	}
	big.seal(big.append(t, make([]byte, layout.MaxBody), 1))
	if got, _ := big.scan(t, point{}); len(got) != 1 || len(got[0]) != layout.MaxBody {
		t.Error("the longest body does not come back")
	}
}

// Reset leaves the ring free, Release says which records before the position are still needed.
func TestLog_ResetAndRelease(t *testing.T) {
	m := newMedia(4096)
	m.log.Reset(4032, 7, 0x700000007, 2)
	if m.log.Free() != 4096-64 || m.log.Pos() != 4032 || m.log.LSN() != 7 || m.log.LastSeal() != 0x700000007 {
		t.Errorf("after reset: %+v, free %d", m.here(), m.log.Free())
	}
	m.log.Release(192)
	if m.log.Free() != 192 {
		t.Errorf("free %d, want 192", m.log.Free())
	}
	start := m.here()
	_, seal, ranges, err := m.log.Append([]byte("body"), 1, 2, 0, nil)
	if err != nil || len(ranges) != 2 || ranges[1] != (pmem.Range{Off: ringOff, Len: 4}) || m.log.Free() != 64 {
		t.Fatalf("header in the last 64 bytes: %v, ranges %v, free %d", err, ranges, m.log.Free())
	}
	m.seal(seal)
	if got, _ := m.scan(t, start); len(got) != 1 || string(got[0]) != "body" {
		t.Errorf("records %q", got)
	}
}

// Of a log whose record 2 is damaged, Later finds record 3: wherever the ring wraps, but not without its seal, nor by its own number.
func TestLater(t *testing.T) {
	const ring = 2048
	for pos := uint64(0); pos < ring; pos += layout.RecordAlign {
		m := newMedia(ring)
		m.log.Reset(pos, 1, 0x100000001, 1)
		m.append(t, bytes.Repeat([]byte{2}, 300), 1) // without its seal
		at := m.log.Pos()
		view := func(off, n uint64) ([]byte, error) {
			b := make([]byte, n)
			return b, m.read(off, b)
		}
		later := func(lsn uint64) (layout.Record, uint64, bool) {
			rec, off, ok, err := Later(view, ringOff, ring, pos, lsn, testUUID)
			if err != nil {
				t.Fatal(err)
			}
			return rec, off, ok
		}
		seal := m.append(t, bytes.Repeat([]byte{3}, 500), 1)
		if rec, off, ok := later(1); ok {
			t.Fatalf("position %d: record %d at offset %d counts, and is not sealed", pos, rec.LSN, off)
		}
		m.seal(seal)
		if rec, off, ok := later(1); !ok || rec.LSN != 3 || off != ringOff+at {
			t.Fatalf("position %d: record %d at offset %d (%v), expected record 3 at %d", pos, rec.LSN, off, ok, ringOff+at)
		}
		if _, _, ok := later(3); ok {
			t.Fatalf("position %d: a record counts as one behind itself", pos)
		}
		m.ring()[(at+layout.RecordHeader+499)%ring] ^= 1
		if _, _, ok := later(1); ok {
			t.Fatalf("position %d: a damaged record counts", pos)
		}
	}
}

func TestScan_Errors(t *testing.T) {
	m := newMedia(4096)
	m.seal(m.append(t, []byte("body"), 1))
	fault, stop := errors.New("fault"), errors.New("stop")
	none := func(layout.Record, []byte) error { return nil }
	for _, failAt := range []int{0, 1} {
		reads := 0
		_, _, _, _, _, err := Scan(func(off uint64, b []byte) error {
			if reads++; reads > failAt {
				return fault
			}
			return m.read(off, b)
		}, ringOff, 4096, 0, 0, 0, 0, testUUID, none)
		if !errors.Is(err, fault) {
			t.Errorf("read %d fails: %v", failAt, err)
		}
	}
	fails := func(layout.Record, []byte) error { return stop }
	if pos, _, _, _, n, err := Scan(m.read, ringOff, 4096, 0, 0, 0, 0, testUUID, fails); err != stop || n != 0 || pos != 0 {
		t.Errorf("error of the function: %v after %d records", err, n)
	}
	for _, c := range [][3]uint64{
		{ringOff, 4096, 4096}, {ringOff, 4096, 65}, {ringOff, 0, 0}, {ringOff, 4097, 0}, {^uint64(0) - 100, 4096, 0},
	} {
		if _, _, _, _, _, err := Scan(m.read, c[0], c[1], c[2], 0, 0, 0, testUUID, none); !errors.Is(err, layout.ErrCorrupt) {
			t.Errorf("ring at %d of %d bytes, position %d: %v", c[0], c[1], c[2], err)
		}
	}
}

func TestAppend_AllocatesNothing(t *testing.T) {
	m := newMedia(8192)
	body, ranges := make([]byte, 1000), make([]pmem.Range, 0, 2)
	n := testing.AllocsPerRun(1000, func() {
		if _, _, _, err := m.log.Append(body, 1, 1, 1, ranges); err != nil {
			t.Fatal(err)
		}
		m.log.Release(m.log.Pos())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever the ring holds, a scan ends, reads only the ring, and hands out records that fit into it once.
func FuzzScan(f *testing.F) {
	m := newMedia(4096)
	m.seal(m.append(f, []byte("one"), 1))
	m.seal(m.append(f, bytes.Repeat([]byte{7}, 900), 1))
	f.Add(bytes.Clone(m.ring()), uint64(0), true)
	f.Add([]byte{}, uint64(4032), false)
	f.Fuzz(func(t *testing.T, ring []byte, pos uint64, sealFirst bool) {
		m := newMedia(4096)
		copy(m.ring(), ring)
		pos = pos % 4096 &^ 63
		if sealFirst { // let the fuzzer get past the seal of one record
			head := m.ring()[pos : pos+64]
			n := binary.LittleEndian.Uint32(head[24:]) % 4000
			binary.LittleEndian.PutUint32(head[24:], n)
			binary.LittleEndian.PutUint64(head[8:], 1)
			binary.LittleEndian.PutUint64(head[32:], 0)
			double := append(bytes.Clone(m.ring()), m.ring()...)
			body := double[pos+64 : pos+64+uint64(n)]
			binary.LittleEndian.PutUint64(head, layout.RecordSeal(testUUID, 1, head, body, nil))
		}
		total := uint64(0)
		_, _, _, _, n, err := Scan(m.read, ringOff, 4096, pos, 0, 0, 0, testUUID, func(rec layout.Record, _ []byte) error {
			total += Space(uint64(rec.Len))
			return nil
		})
		if err != nil || total > 4096 {
			t.Errorf("%d records of %d bytes, %v", n, total, err)
		}
		if first := uint64(binary.LittleEndian.Uint32(m.ring()[pos+24:])); sealFirst && n == 0 && Space(first) <= 4096 {
			t.Errorf("a sealed record of %d bytes does not count", first)
		}
	})
}
