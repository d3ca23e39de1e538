package tree

import "github.com/pmemfs/pmemfs/internal/mutant"

// take sets n nodes aside for the change to come, or none.
func (t *Tree) take(n int) bool {
	for t.spares = 0; t.spares < n; t.spares++ {
		off, ok := t.nodes.AllocNode()
		if !ok {
			for t.spares > 0 {
				t.spares--
				t.nodes.FreeNode(t.spare[t.spares])
			}
			return false
		}
		t.spare[t.spares] = off
	}
	return true
}

// next is the next node of those set aside.
func (t *Tree) next() (off uint64, nd node) {
	t.spares--
	t.born++
	off = t.spare[t.spares]
	return off, t.at(off)
}

// birth makes an empty node out of one set aside.
func (t *Tree) birth(level int) (off uint64, nd node) {
	off, nd = t.next()
	nd.init(off, t.epoch, level)
	return off, nd
}

// old counts the nodes of the path that must be copied before an edit, and verifies them. They are the lower end of the
// path, since no child is younger than its parent.
func (t *Tree) old() (n int, err error) {
	for n < t.height && t.path[n].nd.birth() < t.epoch && !mutant.On(mutant.TreeInPlace) {
		if err := t.verify(t.path[n].nd); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// copyPath replaces the lowest n nodes of the path by copies of this epoch. They were verified and set aside.
func (t *Tree) copyPath(n int) {
	for level := n - 1; level >= 0; level-- {
		s := &t.path[level]
		off, nd := t.next()
		copy(nd, s.nd)
		nd.place(off, t.epoch)
		t.replaced = append(t.replaced, s.off)
		s.off, s.nd = off, nd
		if level == t.height-1 {
			t.root, t.rootBirth = off, t.epoch
		} else {
			up := &t.path[level+1]
			putChild(up.nd.value(up.slot), off, t.epoch)
		}
	}
}

// edit makes all nodes of the path editable and sets extra nodes aside.
func (t *Tree) edit(extra int) error {
	n, err := t.old()
	if err != nil {
		return err
	}
	if n+extra > 0 {
		if !t.take(n + extra) {
			return ErrNoNodes
		}
		t.copyPath(n)
	}
	return nil
}

// drop lets go of a node that the tree no longer reaches.
func (t *Tree) drop(nd node) {
	if nd.birth() < t.epoch {
		t.replaced = append(t.replaced, nd.self())
		return
	}
	t.born--
	t.nodes.FreeNode(nd.self())
}

// Worst is an upper bound of the nodes that so many puts, patches and deletions may allocate from now on.
//
// A level has no more nodes to copy than there are changes, nor than fit below one root. A leaf splits at most once per
// put. An inner node, once split or merged, takes in at least a quarter of its slots before it splits again.
func (t *Tree) Worst(puts int) int {
	slots := (t.nodeSize - slotsOff) / (slotSize + childSize)
	refill := slots / 4
	total, splits := 0, puts
	for level := range t.height {
		touched := 1
		for depth := t.height - 1 - level; depth > 0 && touched < puts; depth-- {
			touched *= slots
		}
		touched = min(touched, puts)
		if level > 0 {
			splits = min(puts, touched+splits/refill)
		}
		total += touched + splits
	}
	for ; splits > 0; splits /= refill {
		total += 1 + splits/refill
	}
	return total
}
