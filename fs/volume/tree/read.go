package tree

// Get is the value of k: a view, valid until the next change.
func (t *Tree) Get(k Key) (v []byte, ok bool) {
	nd, err := t.enterRoot()
	for err == nil && nd.level() > 0 {
		nd, err = t.enterChild(nd, nd.route(k))
	}
	if err != nil {
		return nil, false
	}
	i, found := nd.find(k)
	if !found {
		return nil, false
	}
	return t.entry(nd, i)
}

// entry is the value in slot i of a leaf.
func (t *Tree) entry(nd node, i int) (v []byte, ok bool) {
	if v = nd.value(i); v == nil {
		_ = t.damaged(nd.self(), "slot", uint64(i), "a value within the node")
		return nil, false
	}
	return v, true
}

// Floor is the entry with the greatest key that is at most k.
func (t *Tree) Floor(k Key) (Key, []byte, bool) {
	nd, err := t.enterRoot()
	if err != nil {
		return Key{}, nil, false
	}
	return t.floor(nd, k)
}

func (t *Tree) floor(nd node, k Key) (Key, []byte, bool) {
	i := nd.upper(k) - 1
	if nd.level() == 0 {
		if i < 0 {
			return Key{}, nil, false
		}
		v, ok := t.entry(nd, i)
		return nd.key(i), v, ok
	}
	for ; i >= 0; i-- {
		child, err := t.enterChild(nd, i)
		if err != nil {
			return Key{}, nil, false
		}
		if key, v, ok := t.floor(child, k); ok || t.Err() != nil {
			return key, v, ok
		}
	}
	return Key{}, nil, false
}

// Ascend calls fn for the entries with from <= key < to in ascending order until fn returns false. Fn must not change
// the tree; its v is a view, valid until the next change.
func (t *Tree) Ascend(from, to Key, fn func(k Key, v []byte) bool) {
	nd, err := t.enterRoot()
	if err == nil {
		s := scan{t, from, to, fn}
		s.ascend(nd)
	}
}

// scan is one Ascend. From is the smallest key that may come next, so that even in a damaged tree no entry comes twice.
type scan struct {
	t        *Tree
	from, to Key
	fn       func(k Key, v []byte) bool
}

// ascend returns false at the end of the scan.
func (s *scan) ascend(nd node) bool {
	if nd.level() == 0 {
		return s.leaf(nd)
	}
	for i := nd.route(s.from); i < nd.count() && (i == 0 || nd.key(i).Less(s.to)); i++ {
		child, err := s.t.enterChild(nd, i)
		if err != nil && s.t.bad != nil {
			continue
		}
		if err != nil || !s.ascend(child) {
			return false
		}
	}
	return true
}

func (s *scan) leaf(nd node) bool {
	i, _ := nd.find(s.from)
	for ; i < nd.count(); i++ {
		k := nd.key(i)
		if !k.Less(s.to) {
			return false
		}
		if k.Less(s.from) {
			_ = s.t.damaged(nd.self(), "slot", uint64(i), "a key in ascending order")
			return false
		}
		v, ok := s.t.entry(nd, i)
		if !ok || !s.fn(k, v) {
			return false
		}
		s.from = k.Next()
	}
	return true
}
