package volume

import (
	"maps"
	"slices"
)

// compare tests the whole volume against a model. exact: content must be equal; else bytes written after the flush count
// as well, and the model takes over what it finds.
func (f *fuzzer) compare(n *mnode, exact bool, links map[Ino]*mnode) {
	f.t.Helper()
	if links[n.ino] != nil {
		return
	}
	links[n.ino] = n
	a := f.rig.attr(n.ino)
	if a.Mode != n.mode || a.Nlink != n.nlink || a.UID != n.uid && n.ino != Root {
		f.fatal("inode %d: mode %o links %d uid %d, expected %o %d %d", n.ino, a.Mode, a.Nlink, a.UID, n.mode, n.nlink, n.uid)
	}
	f.compareXattrs(n)
	switch {
	case n.dir():
		f.compareNames(n, exact, links)
	case n.reg():
		f.compareData(n, exact)
	case n.target != "":
		if got, err := f.v.Readlink(n.ino); got != n.target || err != nil {
			f.fatal("inode %d: target differs: %v", n.ino, err)
		}
	}
}

func (f *fuzzer) compareNames(n *mnode, exact bool, links map[Ino]*mnode) {
	f.t.Helper()
	if got, want := f.names(n.ino), slices.Sorted(maps.Keys(n.names)); !slices.Equal(got, want) {
		f.fatal("directory %d: names %q, expected %q", n.ino, got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		c := n.names[name]
		if a, err := f.v.Lookup(n.ino, name); err != nil || a.Ino != c.ino {
			f.fatal("lookup %q in %d: inode %d, %v, expected %d", name, n.ino, a.Ino, err, c.ino)
		}
		f.compare(c, exact, links)
	}
}

func (f *fuzzer) compareData(n *mnode, exact bool) {
	f.t.Helper()
	got := f.content(n.ino)
	if len(got) != len(n.data) {
		f.fatal("inode %d has %d bytes, expected %d", n.ino, len(got), len(n.data))
	}
	for i := range got {
		if got[i] != n.data[i] && (exact || !n.wrote(i, got[i])) {
			f.fatal("inode %d: byte %d of %d is %#x, expected %#x", n.ino, i, len(got), got[i], n.data[i])
		}
	}
	n.data = got
	f.compareSpans(n)
}

// compareSpans tests that what is called a hole reads as zeros, and that spans take turns up to the end.
func (f *fuzzer) compareSpans(n *mnode) {
	f.t.Helper()
	last := false
	for off := 0; off < len(n.data); {
		data, end, err := f.v.Span(n.ino, uint64(off))
		if err != nil || int(end) <= off || int(end) > len(n.data) || off > 0 && data == last {
			f.fatal("inode %d: span at %d of %d ends at %d, data %v, %v", n.ino, off, len(n.data), end, data, err)
		}
		if !data && !allZero(n.data[off:end]) {
			f.fatal("inode %d: bytes %d to %d are called a hole", n.ino, off, end)
		}
		off, last = int(end), data
	}
}

// crashed opens what a crash may leave and compares it with the state of the group that it recovered to.
func (f *fuzzer) crashed(keep float64) {
	f.t.Helper()
	f.op("crash keeping %.1f", keep)
	f.crash(f.rnd, keep)
	s := f.snaps[f.rec.LSN]
	if s == nil {
		f.fatal("recovered to group %d, which never was closed", f.rec.LSN)
	}
	f.root, f.held = s, nil
	s.parent = s
	for _, n := range f.nodes((*mnode).reg) {
		n.writes = f.life[n.ino].writes
	}
	f.compare(s, false, make(map[Ino]*mnode))
	f.keepOnly(f.rec.LSN)
}
