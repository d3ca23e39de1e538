package wire

import "math/bits"

// Limits of the chunks of a Region: bytes of one, and how many.
const (
	MinChunk  = 64 << 10
	MaxChunks = 4096
)

// Chunk is a registered piece of a pool: the remote address of its first byte, and the key.
type Chunk struct {
	Base uint64
	RKey uint32
}

// Region is where a session finds the pool. Chunk i holds the pool offsets [i*ChunkSize, (i+1)*ChunkSize), the first one from
// FirstOffset on, the last one up to PoolSize. A work request stays within one chunk. Without chunks, and with a ChunkSize of 0, the pool is out
// of reach, and there is a staging area.
type Region struct {
	PoolSize  uint64
	ChunkSize uint64 // a power of two
	Chunks    []Chunk
}

// At is the remote address of pool offset off, which is within the region, and its key.
func (m *Region) At(off uint64) (addr uint64, rkey uint32) {
	i := off >> bits.TrailingZeros64(m.ChunkSize)
	c := &m.Chunks[i]
	if i == 0 {
		return c.Base + off - FirstOffset, c.RKey
	}
	return c.Base + off&(m.ChunkSize-1), c.RKey
}

// Rest is how many bytes from off on are in one chunk, at most.
func (m *Region) Rest(off uint64) uint64 { return m.ChunkSize - off&(m.ChunkSize-1) }

func (m *Region) append(b []byte) []byte {
	b = le.AppendUint64(b, m.PoolSize)
	b = le.AppendUint64(b, m.ChunkSize)
	b = le.AppendUint32(b, uint32(len(m.Chunks)))
	for _, c := range m.Chunks {
		b = le.AppendUint64(b, c.Base)
		b = le.AppendUint32(b, c.RKey)
	}
	return b
}

// take demands as many chunks as the pool needs, so that At finds every offset below PoolSize.
func (m *Region) take(c *cursor, what string) error {
	m.PoolSize, m.ChunkSize = c.u64(), c.u64()
	n := c.u32()
	switch {
	case c.short:
		return c.end(what)
	case m.ChunkSize == 0 && n == 0:
		m.Chunks = nil
		return nil
	case m.ChunkSize < MinChunk || m.ChunkSize&(m.ChunkSize-1) != 0:
		return corrupt("%s: chunks of %d bytes, which is no power of two of at least %d", what, m.ChunkSize, MinChunk)
	case m.PoolSize <= FirstOffset || n > MaxChunks || uint64(n) != (m.PoolSize-1)/m.ChunkSize+1:
		return corrupt("%s: %d chunks of %d bytes do not make a pool of %d bytes", what, n, m.ChunkSize, m.PoolSize)
	}
	m.Chunks = make([]Chunk, n)
	for i := range m.Chunks {
		m.Chunks[i] = Chunk{c.u64(), c.u32()}
	}
	return nil
}

// Area is registered memory of the target that is no part of the pool. Len is in bytes; 0: there is none.
type Area struct {
	Base uint64
	RKey uint32
	Len  uint64
}

func (m *Area) append(b []byte) []byte {
	b = le.AppendUint64(b, m.Base)
	b = le.AppendUint32(b, m.RKey)
	return le.AppendUint64(b, m.Len)
}

func (m *Area) take(c *cursor) { m.Base, m.RKey, m.Len = c.u64(), c.u32(), c.u64() }
