package volume

import (
	"encoding/binary"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// TestDamage: whatever is wrong with a pool, it is refused with what was found and expected, or Check finds it, or it
// shows the very same content. A last record that is damaged is what a crash leaves too: then the state before it is right.
// Nothing done to it panics, hangs or takes much memory.
func TestDamage(t *testing.T) {
	s := newSpecimen(t)
	rnd := random(t)
	share := 1
	if race {
		share = 40 // of the cases one is run
	}
	for _, group := range []struct {
		name  string
		cases []damage
	}{
		{"super", s.supers()}, {"truncation", s.truncations()}, {"tree", s.trees(rnd, 2)}, {"log", s.logs()},
	} {
		t.Run(group.name, func(t *testing.T) {
			var refused, found int
			for i := rnd.IntN(share); i < len(group.cases); i += share {
				d := group.cases[i]
				v, err := s.judge(d.name, i%3 == 0, d.spoil)
				switch {
				case err != nil:
					t.Errorf("%s: %v", d.name, err)
				case v.refused != nil:
					refused++
				case v.found != "":
					found++
				case !d.blind && v.content != s.content && (v.content != s.before || !d.last):
					t.Errorf("%s: nobody noticed, and the content differs", d.name)
				}
			}
			t.Logf("%d cases: %d refused, %d found by Check", len(group.cases)/share, refused, found)
		})
	}
}

// FuzzImage spoils a specimen in up to 16 places: five bytes say where, what, and whether the checksums are made right
// again.
func FuzzImage(f *testing.F) {
	s := newSpecimen(f)
	f.Add([]byte{0, 40, 0, 1, 0})
	f.Add([]byte{1, 80, 0, 33, 0x80})
	f.Add([]byte{2, 0, 0, 255, 0x81})
	f.Add([]byte{9, 88, 2, 0, 0x83, 10, 3, 1, 7, 0x82})
	f.Add([]byte{255, 70, 0, 9, 0x80, 254, 24, 0, 0xff, 0x81})
	f.Fuzz(func(t *testing.T, edits []byte) {
		fixed, logged := false, false
		v, err := s.judge("image", true, func(image []byte) []byte {
			for n, edits := 0, edits; len(edits) >= 5 && n < 16; n, edits = n+1, edits[5:] {
				area, log := s.area(edits[0])
				at := area.off + uint64(binary.LittleEndian.Uint16(edits[1:]))%area.len
				change(image[at:min(at+8, area.off+area.len)], edits[3], edits[4]&3)
				logged = logged || log
				if edits[4]&0x80 != 0 {
					fixed = true
					s.fix(image, area, log)
				}
			}
			return image
		})
		if err != nil {
			t.Fatal(err)
		}
		// Several records damaged at the end of the log are what a crash leaves too.
		if v.refused == nil && v.found == "" && !fixed && !logged && v.content != s.content {
			t.Fatal("nobody noticed, and the content differs")
		}
	})
}

// fix makes the checksums of an area right again.
func (s *specimen) fix(image []byte, area place, log bool) {
	switch {
	case log:
		s.resealLog(image)
	case area.off < layout.LogOff:
		resealSuper(image, area.off)
	default:
		resealNode(image, area.off)
	}
}

// area is a super slot, a record or a node.
func (s *specimen) area(i uint8) (p place, log bool) {
	switch n := len(s.records); {
	case i < 2:
		return place{layout.SuperOff(uint64(i)), layout.SuperEnd}, false
	case int(i)-2 < n:
		return s.records[i-2], true
	default:
		return place{s.nodes[(int(i)-2-n)%len(s.nodes)], specimenNode}, false
	}
}

// change spoils up to 8 bytes: one of them flipped or set, or a number moved or replaced.
func change(b []byte, val, how uint8) {
	var w [8]byte
	copy(w[:], b)
	le := binary.LittleEndian
	switch n := le.Uint64(w[:]); how {
	case 0:
		w[0] ^= val
	case 1:
		w[0] = val
	case 2:
		le.PutUint64(w[:], n+uint64(int8(val)))
	case 3:
		le.PutUint64(w[:], uint64(val)<<(val%57))
	}
	copy(b, w[:])
}
