package ibverbs

import "encoding/binary"

// A completion brings back a number, from which the queue pair and the place of the request are found: bit 63 is set for a receive,
// bits 32 to 62 are the handle of the queue pair, bits 0 to 31 count the requests of the queue. A handle is used again only
// after all others, so a completion that arrives after its queue pair is gone finds nothing. No queue pair has the handle nobody.
const (
	recvBit   = 1 << 63
	nobody    = 0
	maxHandle = 1<<31 - 1
)

func workID(handle uint32, recv bool, seq uint32) uint64 {
	id := uint64(handle)<<32 | uint64(seq)
	if recv {
		id |= recvBit
	}
	return id
}

func splitID(id uint64) (handle uint32, recv bool, seq uint32) {
	return uint32(id>>32) & maxHandle, id&recvBit != 0, uint32(id)
}

// littleEndian is v in the byte order of the wire, for C to read byte by byte.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return binary.NativeEndian.Uint64(b[:])
}
