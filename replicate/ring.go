package replicate

import "github.com/pmemfs/pmemfs/replicate/wire"

// ring hands out the bytes of a bounce buffer in turn. What is handed out is free again when the target has proven that it needs it no
// more: the source of a WRITE may be read until then, and staged bytes are copied later than they arrive.
type ring struct {
	base uint64 // of the ring in its buffer, a multiple of StageUnit
	size uint64 // a multiple of StageUnit
	// Both count bytes handed out since the beginning; the place of n is n % size.
	tail uint64 // next byte
	head uint64 // oldest byte in use
}

// fit makes the next n bytes to be handed out free, in one piece, and aligned to StageUnit. It reports false if too much is in use. With n at most half
// of the ring an empty one always has room.
func (r *ring) fit(n uint64) bool {
	next := (r.tail + wire.StageUnit - 1) / wire.StageUnit * wire.StageUnit
	if rest := r.size - next%r.size; rest < n {
		next += rest
	}
	if r.head == r.tail { // what is skipped is in use by nobody
		r.head, r.tail = next, next
	}
	if next+n-r.head > r.size {
		return false
	}
	r.tail = next
	return true
}

// take hands out n bytes of those that fit has found, and returns their offset in the buffer.
func (r *ring) take(n uint64) uint64 {
	at := r.at()
	r.tail += n
	return at
}

// at is the offset in the buffer of the next byte.
func (r *ring) at() uint64 { return r.base + r.tail%r.size }

// release frees all that was handed out before the tail was at mark.
func (r *ring) release(mark uint64) { r.head = max(r.head, mark) }
