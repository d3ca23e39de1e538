package alloc

import "math/bits"

// bitset is a set of small integers that finds its next member in a few steps: level 0 has a bit per integer, a bit of
// each further level tells whether a word of the level below is not zero. The last level is one word.
type bitset struct {
	levels [][]uint64
	n      uint64 // members
}

func newBitset(size uint64) bitset {
	var s bitset
	for {
		size = (size + 63) / 64
		s.levels = append(s.levels, make([]uint64, max(size, 1)))
		if size <= 1 {
			return s
		}
	}
}

func (s *bitset) has(i uint64) bool { return s.levels[0][i/64]>>(i%64)&1 != 0 }

func (s *bitset) add(i uint64) {
	if s.has(i) {
		return
	}
	s.n++
	for _, words := range s.levels {
		was := words[i/64]
		words[i/64] = was | 1<<(i%64)
		if was != 0 {
			return
		}
		i /= 64
	}
}

func (s *bitset) remove(i uint64) {
	if !s.has(i) {
		return
	}
	s.n--
	for _, words := range s.levels {
		words[i/64] &^= 1 << (i % 64)
		if words[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// near finds the first member from i on, or from 0 on if there is none.
func (s *bitset) near(i uint64) (uint64, bool) {
	if m, ok := s.from(i); ok {
		return m, true
	}
	return s.from(0)
}

// from finds the first member that is at least i: up the levels until a word has a later bit, then down again.
func (s *bitset) from(i uint64) (uint64, bool) {
	for l, words := range s.levels {
		if i/64 >= uint64(len(words)) {
			return 0, false
		}
		if w := words[i/64] >> (i % 64); w != 0 {
			return s.down(l, i+uint64(bits.TrailingZeros64(w))), true
		}
		i = i/64 + 1
	}
	return 0, false
}

// down follows the lowest members from bit i of a level to level 0.
func (s *bitset) down(level int, i uint64) uint64 {
	for level > 0 {
		level--
		i = i*64 + uint64(bits.TrailingZeros64(s.levels[level][i]))
	}
	return i
}
