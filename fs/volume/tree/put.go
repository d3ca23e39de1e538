package tree

import "fmt"

// Put sets the value of k.
func (t *Tree) Put(k Key, v []byte) error {
	if len(v) > t.maxValue {
		return fmt.Errorf("%w: put of %d bytes, at most %d fit", ErrTooLarge, len(v), t.maxValue)
	}
	found, err := t.descend(k)
	if err != nil {
		return err
	}
	leaf := &t.path[0]
	if found && len(leaf.nd.value(leaf.slot)) == len(v) {
		return t.overwrite(0, v)
	}
	extra, err := t.plan(found, len(v))
	if err != nil {
		return err
	}
	if err := t.edit(extra); err != nil {
		return err
	}
	if found {
		leaf.nd.remove(leaf.slot)
	}
	t.insert(k, v)
	return nil
}

// Patch replaces bytes of the value of k from off on.
func (t *Tree) Patch(k Key, off int, b []byte) error {
	found, err := t.descend(k)
	if err != nil {
		return err
	}
	if !found {
		return ErrNotFound
	}
	v := t.path[0].nd.value(t.path[0].slot)
	if off < 0 || off > len(v) || len(b) > len(v)-off {
		return fmt.Errorf("%w: patch of %d bytes at %d of a value of %d", ErrTooLarge, len(b), off, len(v))
	}
	return t.overwrite(off, b)
}

// overwrite stores b over the value that the path leads to, from off on.
func (t *Tree) overwrite(off int, b []byte) error {
	if err := t.edit(0); err != nil {
		return err
	}
	leaf := &t.path[0]
	copy(leaf.nd.value(leaf.slot)[off:], b)
	return nil
}

// plan counts the nodes that splits need when a value of n bytes goes into the leaf of the path, in place of the old one if
// replace. It verifies the nodes that will be rearranged for it.
func (t *Tree) plan(replace bool, n int) (extra int, err error) {
	size, gone := slotSize+n, 0
	if leaf := &t.path[0]; replace {
		gone = slotSize + len(leaf.nd.value(leaf.slot))
	}
	for level := 0; level < t.height; level++ {
		nd := t.path[level].nd
		if gone > 0 || nd.contiguous() < size {
			if err := t.verify(nd); err != nil {
				return 0, err
			}
		}
		if nd.used()-gone+size <= nd.capacity() {
			return extra, nil
		}
		extra++
		size, gone = slotSize+childSize, 0
	}
	return extra + 1, nil // a new root
}

// insert puts an entry into the leaf of the path, at the path's slot, and splits nodes upwards as needed. The path is
// editable and the nodes for the splits are set aside.
func (t *Tree) insert(k Key, v []byte) {
	for level := 0; ; level++ {
		if level == t.height {
			t.grow()
		}
		s := &t.path[level]
		if s.nd.used()+slotSize+len(v) <= s.nd.capacity() {
			t.insertAt(s.nd, s.slot, k, v)
			return
		}
		off, right := t.birth(level)
		t.split(s.nd, right, s.slot, k, v)
		k = right.key(0)
		putChild(t.pointer[:], off, t.epoch)
		v = t.pointer[:]
		if level+1 < t.height {
			t.path[level+1].slot++
		}
	}
}

// grow puts a new root above the present one, which has just been split, and the path's next slot behind it.
func (t *Tree) grow() {
	var left [childSize]byte
	putChild(left[:], t.root, t.rootBirth)
	off, nd := t.birth(t.height)
	nd.insert(0, Key{}, left[:])
	t.path[t.height] = step{off, nd, 1}
	t.root, t.rootBirth = off, t.epoch
	t.height++
}

// insertAt inserts an entry that fits, after making its room contiguous.
func (t *Tree) insertAt(nd node, i int, k Key, v []byte) {
	if nd.contiguous() < slotSize+len(v) {
		t.rebuild(nd, nd, nil)
	}
	nd.insert(i, k, v)
}

// rebuild fills nd with the entries of a and then of b, which fit; nd may be one of them.
func (t *Tree) rebuild(nd, a, b node) {
	t.scratch.init(nd.self(), nd.birth(), nd.level())
	t.scratch.appendFrom(a, 0, a.count())
	if b != nil {
		t.scratch.appendFrom(b, 0, b.count())
	}
	copy(nd, t.scratch)
}

// split spreads the entries of left, and a new one for its slot i, over left and the empty node right.
func (t *Tree) split(left, right node, i int, k Key, v []byte) {
	n := left.count()
	m := splitAt(left, i, len(v))
	if i < m {
		right.appendFrom(left, m-1, n)
		left.truncate(m - 1)
		t.insertAt(left, i, k, v)
		return
	}
	right.appendFrom(left, m, i)
	right.insert(right.count(), k, v)
	right.appendFrom(left, i, n)
	left.truncate(m)
}

// splitAt is how many entries stay left when an entry with a value of size bytes goes into slot i, counting that one. A
// leaf that gets a new last entry keeps all others. Otherwise both sides get about half of the bytes.
//
// Both sides fit: an entry takes at most half a node, so all together take at most one and a half. If the first half of the
// bytes, rounded up to whole entries, exceeds a node, then without its last entry it still has more than half a node.
func splitAt(nd node, i, size int) int {
	n := nd.count()
	if nd.level() == 0 && i == n {
		return n
	}
	half := (nd.used() + slotSize + size + 1) / 2
	sum := 0
	for m := 0; ; m++ {
		entry := slotSize + size
		switch {
		case m < i:
			entry = slotSize + len(nd.value(m))
		case m > i:
			entry = slotSize + len(nd.value(m-1))
		}
		sum += entry
		switch {
		case sum > nd.capacity():
			return m
		case sum >= half:
			return m + 1
		}
	}
}
