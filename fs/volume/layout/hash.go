package layout

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the seeded CRC-32C: over the pool's UUID and then over the parts. It allocates nothing.
func CRC(uuid [16]byte, parts ...[]byte) uint32 {
	crc := seed(&uuid)
	for _, p := range parts {
		crc = crc32.Update(crc, castagnoli, p)
	}
	return crc
}

// seed runs the CRC over the UUID byte by byte: crc32.Update would move the array to the heap.
func seed(uuid *[16]byte) uint32 {
	crc := ^uint32(0)
	for _, b := range uuid {
		crc = castagnoli[byte(crc)^b] ^ crc>>8
	}
	return ^crc
}

// Hash56 is the low 56 bits of SipHash-2-4 of the name, with 0 mapped to 1. The key is the pool's hash_key, so that names
// made to collide on one pool do not collide on another. Source: Aumasson and Bernstein, "SipHash: a fast short-input
// PRF", 2012.
func Hash56(key [16]byte, name string) uint64 {
	h := sipHash(binary.LittleEndian.Uint64(key[0:]), binary.LittleEndian.Uint64(key[8:]), name) & MaxSub
	return max(h, 1)
}

type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *sipState) word(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

// Sum64 is SipHash-2-4 of b. Who does not know the key, the pool's hash_key, cannot find other bytes with the same sum.
func Sum64(key [16]byte, b []byte) uint64 {
	s := newSip(binary.LittleEndian.Uint64(key[0:]), binary.LittleEndian.Uint64(key[8:]))
	n := len(b)
	for ; len(b) >= 8; b = b[8:] {
		s.word(binary.LittleEndian.Uint64(b))
	}
	var last [8]byte
	copy(last[:], b)
	last[7] = byte(n)
	return s.sum(binary.LittleEndian.Uint64(last[:]))
}

func newSip(k0, k1 uint64) sipState {
	return sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
}

// sum ends the hash with the last word, whose highest byte is the length.
func (s *sipState) sum(last uint64) uint64 {
	s.word(last)
	s.v2 ^= 0xff
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

func sipHash(k0, k1 uint64, name string) uint64 {
	s := newSip(k0, k1)
	var m uint64
	for i := range len(name) {
		m |= uint64(name[i]) << (i % 8 * 8)
		if i%8 == 7 {
			s.word(m)
			m = 0
		}
	}
	return s.sum(m | uint64(len(name))<<56)
}
