package pmemtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Effort bounds the enumeration of crash images at one event.
type Effort struct {
	Subsets int // up to so many choices (as a power of two) all are taken
	Singles int // beyond, so many units are lost alone, and kept alone; the others are left to the random images
	Pairs   int // beyond, all pairs of so many units are kept, and lost
	Random  int // beyond, so many images choose at random, half of them with torn units
}

// Image is one choice of a version for each unit, valid during the call that it was handed to.
type Image struct {
	r     *Region
	picks []pick
	Hash  uint64 // equal for equal bytes
}

// pick is a unit that does not hold its base version.
type pick struct {
	unit, version int  // of the later ones
	torn          byte // bit i: word i is that of the version before; only the first 8 words
}

// String names the choice: what a failure prints.
func (m *Image) String() string {
	if len(m.picks) == 0 {
		return "nothing beyond what is durable"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d uncertain units of %d bytes are kept:", len(m.picks), len(m.r.list), m.r.unit)
	for i, p := range m.picks {
		if i == 24 {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " %#x", p.unit*m.r.unit)
		if n := len(m.r.open[p.unit].later) / m.r.unit; n > 1 {
			fmt.Fprintf(&b, "(version %d of %d)", p.version+1, n)
		}
		if p.torn != 0 {
			fmt.Fprintf(&b, "(torn %08b)", p.torn)
		}
	}
	return b.String()
}

// Bytes writes the image over the region's work copy, hands it to look, and takes back what look changed.
func (m *Image) Bytes(look func(b []byte)) {
	r := m.r
	for _, p := range m.picks {
		copy(r.at(r.work, p.unit), m.content(p))
	}
	defer r.restore()
	look(r.work)
}

// Clone is a copy of the image's bytes.
func (m *Image) Clone() (b []byte) {
	m.Bytes(func(w []byte) { b = bytes.Clone(w) })
	return b
}

func (r *Region) restore() {
	for i, base := range r.base {
		if work := r.work[i*page:][:len(base)]; !equal(work, base) {
			copy(work, base)
		}
	}
}

// content of the unit under p.
func (m *Image) content(p pick) []byte {
	r, later := m.r, m.r.open[p.unit].later
	b := later[p.version*r.unit:][:r.unit]
	if p.torn == 0 {
		return b
	}
	old := r.durable(p.unit)
	if p.version > 0 {
		old = later[(p.version-1)*r.unit:][:r.unit]
	}
	b = bytes.Clone(b)
	for i := range 8 {
		if p.torn>>i&1 == 1 {
			copy(b[8*i:8*i+8], old[8*i:8*i+8])
		}
	}
	return b
}

func (m *Image) hash() {
	m.Hash = m.r.digest
	for _, p := range m.picks {
		m.Hash ^= hash(p.unit, m.r.durable(p.unit)) ^ hash(p.unit, m.content(p))
	}
}

// enumeration hands images out until try has enough.
type enumeration struct {
	r     *Region
	units []int
	rnd   *rand.Rand
	try   func(*Image) bool
	image Image
	over  bool
}

// Images calls try for crash images of this moment: nothing kept, everything kept, each unit kept alone and lost alone, all
// choices if there are few, else pairs and random ones, as far as effort goes. The same bytes may come more than
// once, with the same Hash. It ends early when try returns false.
func (r *Region) Images(effort Effort, rnd *rand.Rand, try func(*Image) bool) {
	e := enumeration{r: r, units: r.units(), rnd: rnd, try: try, image: Image{r: r}}
	n := len(e.units)
	e.emit(func(int) int { return 0 })
	if n == 0 || e.over {
		return
	}
	e.emit(e.last)
	if choices := e.choices(1 << effort.Subsets); choices > 0 {
		e.all(choices)
		return
	}
	e.singles(effort.Singles)
	e.pairs(min(n, effort.Pairs))
	for i := 0; i < effort.Random && !e.over; i++ {
		e.random(i)
	}
}

// versions of unit number i, the base included.
func (e *enumeration) versions(i int) int {
	return len(e.r.open[e.units[i]].later)/e.r.unit + 1
}

func (e *enumeration) last(i int) int { return e.versions(i) - 1 }

// choices is the number of images, 0 if there are more than limit.
func (e *enumeration) choices(limit int) int {
	n := 1
	for i := range e.units {
		if n *= e.versions(i); n > limit {
			return 0
		}
	}
	return n
}

// emit tries the image in which unit number i holds version choose(i), 0 for the base.
func (e *enumeration) emit(choose func(i int) int) {
	e.image.picks = e.image.picks[:0]
	for i, u := range e.units {
		if v := choose(i); v > 0 {
			e.image.picks = append(e.image.picks, pick{unit: u, version: v - 1})
		}
	}
	e.submit()
}

func (e *enumeration) submit() {
	if e.over {
		return
	}
	e.image.hash()
	e.over = !e.try(&e.image)
}

func (e *enumeration) all(choices int) {
	for c := range choices {
		rest := c
		e.emit(func(i int) int {
			n := e.versions(i)
			v := rest % n
			rest /= n
			return v
		})
	}
}

func (e *enumeration) singles(limit int) {
	order := e.some(limit)
	for _, k := range order {
		for v := range e.versions(k) {
			e.emit(func(i int) int {
				if i == k {
					return v
				}
				return e.last(i)
			})
			e.emit(func(i int) int {
				if i == k {
					return v
				}
				return 0
			})
		}
	}
}

// some are up to limit of the units, at random if there are more.
func (e *enumeration) some(limit int) []int {
	order := make([]int, len(e.units))
	for i := range order {
		order[i] = i
	}
	if len(order) <= limit {
		return order
	}
	e.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order[:limit]
}

func (e *enumeration) pairs(limit int) {
	order := e.some(limit)
	for x, a := range order {
		for _, b := range order[:x] {
			e.emit(func(i int) int {
				if i == a || i == b {
					return e.last(i)
				}
				return 0
			})
			e.emit(func(i int) int {
				if i == a || i == b {
					return 0
				}
				return e.last(i)
			})
		}
	}
}

// random takes any version of each unit; the share of base versions differs from image to image.
func (e *enumeration) random(round int) {
	lost := e.rnd.Float64()
	e.image.picks = e.image.picks[:0]
	for i, u := range e.units {
		if e.rnd.Float64() < lost {
			continue
		}
		p := pick{unit: u, version: e.rnd.IntN(e.versions(i) - 1)}
		if round%2 == 1 && e.r.mode != Pages && e.rnd.IntN(4) == 0 {
			p.torn = byte(e.rnd.Uint32())
		}
		e.image.picks = append(e.image.picks, p)
	}
	e.submit()
}

// plain is a region over bytes that somebody else keeps.
type plain struct{ b []byte }

// Plain is a region over the bytes of an image: all of them count as durable at once.
func Plain(b []byte) pmem.Region { return plain{b} }

func (p plain) Bytes() []byte             { return p.b }
func (p plain) Flush([]pmem.Range) error  { return nil }
func (p plain) Fence() error              { return nil }
func (p plain) Prefault(pmem.Range) error { return nil }
func (p plain) Sync() error               { return nil }
func (p plain) Promise() pmem.Promise     { return pmem.Persistent }
func (p plain) Kind() pmem.Kind           { return pmem.Heap }
func (p plain) Close() error              { return nil }

func (p plain) Store64(off, val uint64) error {
	binary.LittleEndian.PutUint64(p.b[off:], val)
	return nil
}
