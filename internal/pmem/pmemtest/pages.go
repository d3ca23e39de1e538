package pmemtest

import (
	"bytes"
	"slices"
)

const page = 4096

// pages are the bytes of a region. Pages in which nothing but zeros was ever put are one and the same: a pool has many of them, and to compare with one is to read the
// other side only.
type pages [][]byte

// zeros is never stored to.
var zeros [page]byte

func divide(b []byte) (p pages) {
	for part := range slices.Chunk(b, page) {
		if blank := zeros[:len(part)]; bytes.Equal(part, blank) {
			p = append(p, blank)
		} else {
			p = append(p, bytes.Clone(part))
		}
	}
	return p
}

// at is a view of n bytes within a page, to be read only.
func (p pages) at(off, n int) []byte { return p[off/page][off%page:][:n] }

// put stores b within a page.
func (p pages) put(off int, b []byte) {
	own := &p[off/page]
	if &(*own)[0] == &zeros[0] {
		*own = make([]byte, len(*own))
	}
	copy((*own)[off%page:], b)
}
