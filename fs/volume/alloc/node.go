package alloc

import "fmt"

// AllocNode takes a node and returns its pool offset: from a node chunk with room, near the last one so that nodes of one
// epoch stand together, else from a wholly free chunk.
func (a *Allocator) AllocNode() (off uint64, ok bool) {
	c, ok := a.room.near(a.nodeChunk)
	if !ok {
		if c, ok = a.whole.near(a.nodeChunk); !ok {
			return 0, false
		}
		a.makeNodeChunk(c)
	}
	a.nodeChunk = c
	slots := a.nodes[a.home[c]-1]
	slot := slots.nextFree(0, a.slots)
	a.takeSlot(c, slots, slot)
	return (c*a.slots + slot) * a.nodeSize, true
}

// NodesAvailable is the number of nodes that AllocNode can still give.
func (a *Allocator) NodesAvailable() uint64 { return a.freeSlots + a.whole.n*a.slots }

// MarkNode takes this very node, at mount. It changes nothing and returns false if the node is taken already, if its
// chunk holds data or is no whole chunk of the general area, or if off is no place for a node.
func (a *Allocator) MarkNode(off uint64) bool {
	if off%a.nodeSize != 0 || !a.inside(off/blockSize, 1) {
		return false
	}
	c, slot := off/a.nodeSize/a.slots, off/a.nodeSize%a.slots
	if a.home[c] == 0 {
		if !a.whole.has(c) {
			return false
		}
		a.makeNodeChunk(c)
	}
	slots := a.nodes[a.home[c]-1]
	if slots.count(slot, 1) != 0 {
		return false
	}
	a.takeSlot(c, slots, slot)
	return true
}

func (a *Allocator) takeSlot(c uint64, slots bitmap, slot uint64) {
	slots.set(slot, 1)
	a.freeSlots--
	a.free[c]--
	if a.free[c] == 0 {
		a.room.remove(c)
	}
}

// HasNode tells whether the node at off is taken.
func (a *Allocator) HasNode(off uint64) bool {
	if off%a.nodeSize != 0 || !a.inside(off/blockSize, 1) {
		return false
	}
	c, slot := off/a.nodeSize/a.slots, off/a.nodeSize%a.slots
	return a.home[c] != 0 && a.nodes[a.home[c]-1].count(slot, 1) != 0
}

// FreeNode gives a node back. A chunk without nodes is free again.
func (a *Allocator) FreeNode(off uint64) {
	if !a.HasNode(off) {
		panic(fmt.Sprintf("alloc: free of offset %d, where no node is", off))
	}
	c, slot := off/a.nodeSize/a.slots, off/a.nodeSize%a.slots
	a.nodes[a.home[c]-1].clear(slot, 1)
	a.freeSlots++
	a.free[c]++
	a.room.add(c)
	if uint64(a.free[c]) == a.slots {
		a.makeDataChunk(c)
	}
}

// makeNodeChunk turns a wholly free chunk into a node chunk.
func (a *Allocator) makeNodeChunk(c uint64) {
	a.setFree(c, 0)
	a.used.set(c*a.perChunk, a.perChunk)
	a.freeBlocks -= a.perChunk
	a.home[c] = a.newHome()
	a.free[c] = uint32(a.slots)
	a.freeSlots += a.slots
	a.room.add(c)
}

// newHome is 1 + the place of an empty map of slots.
func (a *Allocator) newHome() uint32 {
	if last := len(a.homes) - 1; last >= 0 {
		h := a.homes[last]
		a.homes = a.homes[:last]
		return h
	}
	a.nodes = append(a.nodes, newBitmap(a.slots))
	return uint32(len(a.nodes))
}

// makeDataChunk turns a node chunk of which all slots are free into a wholly free chunk.
func (a *Allocator) makeDataChunk(c uint64) {
	a.homes = append(a.homes, a.home[c])
	a.home[c] = 0
	a.freeSlots -= a.slots
	a.room.remove(c)
	a.used.clear(c*a.perChunk, a.perChunk)
	a.freeBlocks += a.perChunk
	a.setFree(c, a.perChunk)
}
