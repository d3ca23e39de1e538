package alloc

import "math/bits"

// bitmap has one bit per block or node slot, 1 = used. Runs are handled a word at a time.
type bitmap []uint64

func newBitmap(size uint64) bitmap { return make(bitmap, (size+63)/64) }

// mask has the bits of a word from bit i on, at most n of them; n is what they cover.
func mask(i, n uint64) (m, covered uint64) {
	i %= 64
	covered = min(n, 64-i)
	return ^uint64(0) >> (64 - covered) << i, covered
}

func (b bitmap) set(i, n uint64) {
	for n > 0 {
		m, k := mask(i, n)
		b[i/64] |= m
		i, n = i+k, n-k
	}
}

func (b bitmap) clear(i, n uint64) {
	for n > 0 {
		m, k := mask(i, n)
		b[i/64] &^= m
		i, n = i+k, n-k
	}
}

// count is the number of used bits among n from i on.
func (b bitmap) count(i, n uint64) (used uint64) {
	for n > 0 {
		m, k := mask(i, n)
		used += uint64(bits.OnesCount64(b[i/64] & m))
		i, n = i+k, n-k
	}
	return used
}

// nextFree is the first free bit from i on, or end if there is none before it.
func (b bitmap) nextFree(i, end uint64) uint64 {
	for i < end {
		if w := ^b[i/64] >> (i % 64); w != 0 {
			return min(i+uint64(bits.TrailingZeros64(w)), end)
		}
		i = i - i%64 + 64
	}
	return end
}

// nextUsed is the first used bit from i on, or end if there is none before it.
func (b bitmap) nextUsed(i, end uint64) uint64 {
	for i < end {
		if w := b[i/64] >> (i % 64); w != 0 {
			return min(i+uint64(bits.TrailingZeros64(w)), end)
		}
		i = i - i%64 + 64
	}
	return end
}

// freeFrom is the first of the free bits that end right before hi, no bit before lo; hi if the last one is used.
func (b bitmap) freeFrom(lo, hi uint64) uint64 {
	for hi > lo {
		last := hi - 1
		if w := b[last/64] << (63 - last%64); w != 0 {
			return max(hi-uint64(bits.LeadingZeros64(w)), lo)
		}
		hi = last - last%64
	}
	return lo
}

// usedFrom is the same for used bits.
func (b bitmap) usedFrom(lo, hi uint64) uint64 {
	for hi > lo {
		last := hi - 1
		if w := ^b[last/64] << (63 - last%64); w != 0 {
			return max(hi-uint64(bits.LeadingZeros64(w)), lo)
		}
		hi = last - last%64
	}
	return lo
}
