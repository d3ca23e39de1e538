package volume

import (
	"math"
	"sync"
)

// holds counts the references that the kernel has to inodes. There can be as many as the kernel caches inodes, so it is
// compact, it holds no pointers that a collector would follow, and it shrinks. Inodes made one after the other, which are
// mostly held together, share a slot.
//
// It is cut into shards by the hash, so that no single step moves more than a small part of it. Each shard has its own lock, a
// leaf under Volume.mu: the kernel takes and gives back references at the pace of stat(2), and must not wait for lookups
// that read a large tree.
type holds struct{ shards [holdShards]holdShard }

type holdShard struct {
	mu    sync.Mutex
	table holdTable
	large map[Ino]uint64 // the counts of at least math.MaxUint16
}

const (
	holdShards = 64
	holdMin    = 16 // slots of a shard that has any, at least
)

// holdTable is a hash table with linear probing. The number of slots is a power of two, or zero.
type holdTable struct {
	slots []holdSlot
	used  int
}

// holdSlot has the counts of the inodes from 8*page on; all zero: the slot is empty. MaxUint16 stands for what large says.
type holdSlot struct {
	page   uint64
	counts [8]uint16
}

func (s *holdSlot) empty() bool { return s.counts == [8]uint16{} }

func holdHash(page uint64) uint64 { return page * 0x9e3779b97f4a7c15 }

func (h *holds) shard(ino Ino) *holdShard { return &h.shards[holdHash(ino/8)>>58] }

// count is the number of references to ino.
func (h *holds) count(ino Ino) uint64 {
	s := h.shard(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(ino)
}

func (s *holdShard) count(ino Ino) uint64 {
	t := &s.table
	if t.used == 0 {
		return 0
	}
	if n := t.slots[t.find(ino/8)].counts[ino%8]; n < math.MaxUint16 {
		return uint64(n)
	}
	return s.large[ino]
}

// add counts one reference more.
func (h *holds) add(ino Ino) {
	s := h.shard(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.table
	t.makeRoom()
	slot := &t.slots[t.find(ino/8)]
	if slot.empty() {
		slot.page = ino / 8
		t.used++
	}
	switch n := &slot.counts[ino%8]; *n {
	case math.MaxUint16:
		s.large[ino]++
	case math.MaxUint16 - 1:
		if s.large == nil {
			s.large = make(map[Ino]uint64)
		}
		*n, s.large[ino] = math.MaxUint16, math.MaxUint16
	default:
		*n++
	}
}

// drop takes back n references, or all if there are fewer, and tells whether none is left.
func (h *holds) drop(ino Ino, n uint64) (none bool) {
	s := h.shard(ino)
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.count(ino)
	if had == 0 {
		return true
	}
	left := had - min(n, had)
	if left >= math.MaxUint16 {
		s.large[ino] = left
		return false
	}
	if had >= math.MaxUint16 {
		delete(s.large, ino)
	}
	t := &s.table
	i := t.find(ino / 8)
	t.slots[i].counts[ino%8] = uint16(left)
	if t.slots[i].empty() {
		t.remove(i)
	}
	return left == 0
}

// find is the slot of a page, or the empty one that the page would get. There is an empty one.
func (t *holdTable) find(page uint64) int {
	i := t.home(page)
	for t.slots[i].page != page && !t.slots[i].empty() {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// home is where the search for a page begins. The highest bits of the hash chose the shard.
func (t *holdTable) home(page uint64) int { return int(holdHash(page)>>16) & (len(t.slots) - 1) }

// makeRoom keeps a quarter of the slots empty.
func (t *holdTable) makeRoom() {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.resize(max(holdMin, 2*len(t.slots)))
	}
}

// remove takes out slot i, which has become empty, and moves those that follow it closer to their homes, so that a search
// that ends at an empty slot misses none.
func (t *holdTable) remove(i int) {
	mask := len(t.slots) - 1
	t.used--
	for j := (i + 1) & mask; !t.slots[j].empty(); j = (j + 1) & mask {
		if (j-t.home(t.slots[j].page))&mask >= (j-i)&mask {
			t.slots[i], t.slots[j] = t.slots[j], holdSlot{}
			i = j
		}
	}
	if len(t.slots) > holdMin && 8*t.used < len(t.slots) {
		t.resize(len(t.slots) / 4)
	}
}

func (t *holdTable) resize(n int) {
	old := t.slots
	t.slots = make([]holdSlot, max(n, holdMin))
	for _, s := range old {
		if !s.empty() {
			t.slots[t.find(s.page)] = s
		}
	}
}
