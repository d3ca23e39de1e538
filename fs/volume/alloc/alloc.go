package alloc

import "fmt"

const blockSize = 4096

// Allocator is the space of one pool. Block numbers and offsets are those of the pool.
type Allocator struct {
	first, end uint64 // blocks of the general area
	perChunk   uint64 // blocks of a chunk
	slots      uint64 // nodes of a chunk
	nodeSize   uint64
	reserve    uint64 // chunks' worth of nodes that data must leave

	used bitmap   // a bit per block of the pool; set for all outside the general area and all of a node chunk
	free []uint32 // per chunk: free blocks; in a node chunk: free slots
	home []uint32 // per chunk: 1 + place of its slots in nodes if it is a node chunk, else 0

	// Each chunk is in at most one of these sets, by what can be had from it.
	partial bitset // data chunks with some blocks free, and chunks at the edges that can never hold nodes
	whole   bitset // chunks of which all is free
	room    bitset // node chunks with free slots

	nodes      []bitmap // slots of each node chunk, by home
	homes      []uint32 // places in nodes to use again
	freeBlocks uint64
	freeSlots  uint64
	cursor     uint64 // block after the last data allocation
	nodeChunk  uint64 // chunk of the last node
}

// New makes an allocator in which the blocks from firstBlock up to endBlock are free. A chunk has chunkBytes, a power of
// two and a multiple of both the block and the node size.
func New(firstBlock, endBlock uint64, chunkBytes, nodeSize, reserveChunks uint32) *Allocator {
	a := &Allocator{
		first: firstBlock, end: endBlock,
		perChunk: uint64(chunkBytes) / blockSize, slots: uint64(chunkBytes / nodeSize),
		nodeSize: uint64(nodeSize), reserve: uint64(reserveChunks),
		freeBlocks: endBlock - firstBlock, cursor: firstBlock, nodeChunk: firstBlock * blockSize / uint64(chunkBytes),
	}
	chunks := (endBlock + a.perChunk - 1) / a.perChunk
	a.used = newBitmap(chunks * a.perChunk)
	a.used.set(0, firstBlock)
	a.used.set(endBlock, chunks*a.perChunk-endBlock)
	a.free, a.home = make([]uint32, chunks), make([]uint32, chunks)
	a.partial, a.whole, a.room = newBitset(chunks), newBitset(chunks), newBitset(chunks)
	for c := firstBlock / a.perChunk; c < chunks; c++ {
		lo, hi := max(c*a.perChunk, firstBlock), min((c+1)*a.perChunk, endBlock)
		a.setFree(c, hi-lo)
	}
	return a
}

// setFree notes the free blocks of a data chunk and puts it into the set that it belongs to.
func (a *Allocator) setFree(c, blocks uint64) {
	a.free[c] = uint32(blocks)
	switch blocks {
	case 0:
		a.partial.remove(c)
		a.whole.remove(c)
	case a.perChunk:
		a.partial.remove(c)
		a.whole.add(c)
	default:
		a.whole.remove(c)
		a.partial.add(c)
	}
}

// Total is the number of blocks of the general area.
func (a *Allocator) Total() uint64 { return a.end - a.first }

// End is the first block behind the general area.
func (a *Allocator) End() uint64 { return a.end }

// FreeBlocks is the number of blocks that neither hold data nor belong to a node chunk.
func (a *Allocator) FreeBlocks() uint64 { return a.freeBlocks }

// DataAvailable is the number of blocks that AllocData can still give: the free ones without what the reserve keeps back.
func (a *Allocator) DataAvailable() uint64 {
	return a.freeBlocks - (a.whole.n-a.breakable())*a.perChunk
}

// breakable is the number of wholly free chunks that data may break into.
func (a *Allocator) breakable() uint64 {
	nodeChunks := a.freeSlots/a.slots + a.whole.n
	if nodeChunks <= a.reserve {
		return 0
	}
	return min(nodeChunks-a.reserve, a.whole.n)
}

// check panics if blocks from blk on are not n blocks of the general area.
func (a *Allocator) check(blk, n uint64) {
	if !a.inside(blk, n) {
		panic(fmt.Sprintf("alloc: free of %d blocks at block %d, outside of the general area %d..%d", n, blk, a.first, a.end))
	}
}

func (a *Allocator) inside(blk, n uint64) bool {
	return blk >= a.first && blk <= a.end && n <= a.end-blk
}
