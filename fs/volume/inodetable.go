package volume

import "slices"

// chunkLen bounds what growing a table copies.
const chunkLen = 1 << 16

// inodeTable is what a check keeps of all inodes, in ascending order of their numbers: 24 bytes each, and 40 bytes more for
// each directory.
type inodeTable struct {
	chunks [][]inodeRecord
	dirs   []dirRecord
	there  uint64 // records that have an inode
}

// inodeRecord is one inode. Names and links count up to their width, which no valid inode reaches.
type inodeRecord struct {
	ino   Ino
	names uint32 // that name it
	nlink uint32 // as it says itself
	dir   uint32 // 1 + index in inodeTable.dirs, 0 if it is no directory
	typ   uint8  // mode >> 12
	there bool   // it has an INODE key; else only others
}

// dirRecord is what a directory has beside.
type dirRecord struct {
	parent  Ino // as it says itself
	namedIn Ino // the directory with its last name
	subdirs uint32
	rooted  rootedness
}

// rootedness is whether the parents of a directory lead to the root.
type rootedness uint8

const (
	unknown rootedness = iota
	asking             // on the way up from where the question began
	rooted
	lostDir
)

// add appends an inode. Its number is greater than all before.
func (t *inodeTable) add(r inodeRecord) {
	last := len(t.chunks) - 1
	if last < 0 || len(t.chunks[last]) == chunkLen {
		first := 64
		if last >= 0 {
			first = chunkLen
		}
		t.chunks = append(t.chunks, make([]inodeRecord, 0, first))
		last++
	}
	t.chunks[last] = append(t.chunks[last], r)
	if r.there {
		t.there++
	}
}

// find is the record of an inode, nil if there is none.
func (t *inodeTable) find(ino Ino) *inodeRecord {
	c, ok := slices.BinarySearchFunc(t.chunks, ino, func(c []inodeRecord, ino Ino) int {
		switch {
		case c[len(c)-1].ino < ino:
			return -1
		case c[0].ino > ino:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	chunk := t.chunks[c]
	i, ok := slices.BinarySearchFunc(chunk, ino, func(r inodeRecord, ino Ino) int {
		switch {
		case r.ino < ino:
			return -1
		case r.ino > ino:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &chunk[i]
}

// each calls fn for every record in order.
func (t *inodeTable) each(fn func(*inodeRecord)) {
	for _, c := range t.chunks {
		for i := range c {
			fn(&c[i])
		}
	}
}

// directory is what the table has of an inode that is a directory, nil if it is none.
func (t *inodeTable) directory(ino Ino) *dirRecord {
	r := t.find(ino)
	if r == nil || r.dir == 0 {
		return nil
	}
	return &t.dirs[r.dir-1]
}

// leadsToRoot tells whether the parents of a directory do. Each directory is asked once, so that neither a deep tree nor a ring of
// directories takes long.
func (t *inodeTable) leadsToRoot(d *dirRecord) bool {
	var path []*dirRecord
	answer := lostDir
	for up := d; up != nil; up = t.directory(up.parent) {
		if up.rooted != unknown {
			if up.rooted == rooted {
				answer = rooted
			}
			break
		}
		up.rooted = asking
		path = append(path, up)
		if up.parent == Root {
			answer = rooted
			break
		}
	}
	for _, up := range path {
		up.rooted = answer
	}
	return d.rooted == rooted
}
