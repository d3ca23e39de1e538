package tree

// Walk visits every reachable node from the root down, and every entry in ascending order; either function may be nil.
// It ends with the first error of theirs, or at a damaged node with layout.ErrCorrupt. With verify it checks all that the
// format promises: the CRC (nodes of the open epoch have none yet), the slots, and the order and bounds of the keys.
func (t *Tree) Walk(verify bool, fn func(off uint64, level int, birth uint64) error, leaf func(k Key, v []byte) error) error {
	nd, err := t.enterRoot()
	if err != nil {
		return err
	}
	w := walk{t: t, verify: verify, node: fn, leaf: leaf}
	return w.visit(nd, Key{}, nil)
}

type walk struct {
	t      *Tree
	verify bool
	node   func(off uint64, level int, birth uint64) error
	leaf   func(k Key, v []byte) error
}

// visit walks a node whose keys are at least lo and, if hi is not nil, less than *hi.
func (w *walk) visit(nd node, lo Key, hi *Key) error {
	if w.verify {
		if err := w.t.verifyAll(nd, lo, hi); err != nil {
			return err
		}
	}
	if w.node != nil {
		if err := w.node(nd.self(), nd.level(), nd.birth()); err != nil {
			return err
		}
	}
	if nd.level() == 0 {
		return w.entries(nd)
	}
	for i := range nd.count() {
		end := hi
		if i+1 < nd.count() {
			next := nd.key(i + 1)
			end = &next
		}
		child, err := w.t.enterChild(nd, i)
		if err != nil {
			return err
		}
		if err := w.visit(child, nd.key(i), end); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entries(nd node) error {
	for i := 0; w.leaf != nil && i < nd.count(); i++ {
		v := nd.value(i)
		if v == nil {
			return w.t.damaged(nd.self(), "slot", uint64(i), "a value within the node")
		}
		if err := w.leaf(nd.key(i), v); err != nil {
			return err
		}
	}
	return nil
}

// verifyAll checks an entered node by itself and against the bounds that its parent gives it.
func (t *Tree) verifyAll(nd node, lo Key, hi *Key) error {
	if err := t.verify(nd); err != nil {
		return err
	}
	n := nd.count()
	for i := range n {
		if i > 0 && !nd.key(i-1).Less(nd.key(i)) {
			return t.damaged(nd.self(), "slot", uint64(i), "a key greater than the one before")
		}
	}
	if n > 0 && (nd.key(0).Less(lo) || nd.level() > 0 && nd.key(0) != lo || hi != nil && !nd.key(n-1).Less(*hi)) {
		return t.damaged(nd.self(), "n", uint64(n), "slots with keys in the bounds that the parent gives")
	}
	return nil
}
