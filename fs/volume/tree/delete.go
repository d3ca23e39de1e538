package tree

// Delete removes k and tells whether it was there.
func (t *Tree) Delete(k Key) (bool, error) {
	found, err := t.descend(k)
	if err != nil || !found {
		return false, err
	}
	if err := t.edit(0); err != nil {
		return false, err
	}
	leaf := &t.path[0]
	leaf.nd.remove(leaf.slot)
	for level := 0; level < t.height-1 && t.merge(level); level++ {
	}
	t.shrink()
	return true, nil
}

// merge joins the path's node of a level with a neighbour under the same parent, if it is nearly empty and they fit. The
// path's node is of this epoch and takes in the neighbour's entries, so that no further node is needed.
func (t *Tree) merge(level int) bool {
	nd := t.path[level].nd
	if nd.used() >= nd.capacity()/4 {
		return false
	}
	up := &t.path[level+1]
	if up.slot > 0 {
		if left := t.partner(nd, up.nd, up.slot-1); left != nil {
			t.rebuild(nd, left, nd)
			putChild(up.nd.value(up.slot-1), nd.self(), t.epoch)
			up.nd.remove(up.slot)
			t.drop(left)
			return true
		}
	}
	if up.slot+1 < up.nd.count() {
		if right := t.partner(nd, up.nd, up.slot+1); right != nil {
			t.rebuild(nd, nd, right)
			up.nd.remove(up.slot + 1)
			t.drop(right)
			return true
		}
	}
	return false
}

// partner is the child in slot i of up if nd can be merged with it, else nil. A damaged one is left where it is.
func (t *Tree) partner(nd, up node, i int) node {
	p, err := t.enterChild(up, i)
	if err != nil || t.verify(p) != nil || t.verify(nd) != nil {
		return nil
	}
	limit := nd.capacity() / 4 * 3
	if nd.count() == 0 {
		limit = nd.capacity()
	}
	if nd.used()+p.used() > limit {
		return nil
	}
	return p
}

// shrink makes the only child of the root the root, as long as there is just one.
func (t *Tree) shrink() {
	for t.height > 1 {
		nd, err := t.enterRoot()
		if err != nil || nd.count() != 1 {
			return
		}
		child, err := t.enterChild(nd, 0)
		if err != nil {
			return
		}
		t.root, t.rootBirth = child.self(), child.birth()
		t.height--
		t.drop(nd)
	}
}
