package tree

import "errors"

// Damage is a node that a Survey could not use: what should stand between Lo and Hi is lost with it.
type Damage struct {
	Off, Birth uint64 // where it should stand and when it was born, as its parent says
	Level      int
	Lo         Key
	Hi         *Key  // nil: no upper bound
	Err        error // a *DamageError
	// Doubtful: a node above it is damaged, so that its place and its bounds may be wrong too.
	Doubtful bool
}

// Lost tells whether the entry of k would stand below the node.
func (d *Damage) Lost(k Key) bool { return !k.Less(d.Lo) && (d.Hi == nil || k.Less(*d.Hi)) }

// Survey is Walk with verify for a tree that may be damaged: a node that is not what it must be is reported, and the walk goes
// on with its neighbours. Below an inner node of which only the checksum is wrong it goes on too, since each child
// proves itself. Nodes is called for each node and says whether to go on below it: false where it was met before, since a
// forged tree may reach a node more often than a walk can last. A fault of the medium ends it, as everywhere.
func (t *Tree) Survey(nodes func(off uint64) bool, leaf func(k Key, v []byte), damaged func(Damage)) {
	s := survey{t, nodes, leaf, damaged}
	if nd, err := t.enterRoot(); nd == nil {
		damaged(Damage{Off: t.root, Birth: t.rootBirth, Level: t.height - 1, Err: err})
	} else {
		s.visit(nd, Key{}, nil, false)
	}
}

type survey struct {
	t       *Tree
	nodes   func(off uint64) bool
	leaf    func(k Key, v []byte)
	damaged func(Damage)
}

// visit goes through a node whose place, header and sizes are good.
func (s *survey) visit(nd node, lo Key, hi *Key, doubtful bool) {
	if !s.nodes(nd.self()) {
		return
	}
	if err := s.t.verifyAll(nd, lo, hi); err != nil {
		s.damaged(Damage{nd.self(), nd.birth(), nd.level(), lo, hi, err, doubtful})
		var what *DamageError
		if nd.level() == 0 || !errors.As(err, &what) || what.Field != crcField {
			return
		}
		doubtful = true
	}
	if nd.level() == 0 {
		for i := range nd.count() {
			s.leaf(nd.key(i), nd.value(i))
		}
		return
	}
	for i := range nd.count() {
		end := hi
		if i+1 < nd.count() {
			next := nd.key(i + 1)
			end = &next
		}
		child, err := s.t.enterChild(nd, i)
		if err != nil {
			off, birth, _ := nd.child(i)
			s.damaged(Damage{off, birth, nd.level() - 1, nd.key(i), end, err, doubtful})
			continue
		}
		s.visit(child, nd.key(i), end, doubtful)
	}
}

// Node calls head and then slot, for each slot in order, with what stands in a node that the running Survey has told of.
func (t *Tree) Node(off uint64, head func(level int, birth uint64, n int), slot func(k Key, v []byte)) {
	nd := t.at(off)
	head(nd.level(), nd.birth(), nd.count())
	for i := range nd.count() {
		slot(nd.key(i), nd.value(i))
	}
}

// CheckNode tells why b is not the node that should stand in the place of d, nil if it is: header, slots, order, bounds and CRC.
func (t *Tree) CheckNode(d *Damage, b []byte) error {
	if len(b) != t.nodeSize {
		return t.damaged(d.Off, "size", uint64(len(b)), "a whole node")
	}
	nd := node(b)
	if !t.isNode(nd, d.Off, d.Birth, d.Level) {
		return t.badHeader(nd, d.Off, d.Birth, d.Level)
	}
	return t.verifyAll(nd, d.Lo, d.Hi)
}

// Salvage makes a tree with damaged nodes readable: nothing enters the bad ones, which a Survey found, since a node with a wrong
// checksum may say anything, and Ascend goes on behind them. TakeErr tells whether a call met one.
func (t *Tree) Salvage(bad map[uint64]bool) { t.bad = bad }

// TakeErr is Err, and forgets it.
func (t *Tree) TakeErr() error {
	if err := t.err.Swap(nil); err != nil {
		return *err
	}
	return nil
}
