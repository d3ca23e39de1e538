package crash

import (
	"bytes"
	"testing"
)

// Bytes written after a version show in it where its group has a block to write to in place.
func TestWrote(t *testing.T) {
	const later = 0x2b
	hole := version{data: make([]byte, 4*blockSize)}
	cut := version{data: hole.data, partial: true}
	block := version{data: append(make([]byte, blockSize), 1)}
	n := &node{writes: []write{{off: 2*blockSize - 1, data: []byte{7, 7}}, {off: 0, data: bytes.Repeat([]byte{later}, 4*blockSize)}}}
	for what, c := range map[string]struct {
		v    version
		off  int
		byte byte
		want bool
	}{
		"into a hole":                                       {hole, blockSize, later, false},
		"into a block that is there":                        {block, blockSize, later, true},
		"the write that is there in part":                   {cut, 2*blockSize - 1, 7, true},
		"over a block that the part may have got":           {cut, blockSize, later, true},
		"over the other one":                                {cut, 2*blockSize + 5, later, true},
		"over a block that the part did not touch":          {cut, 0, later, false},
		"the same behind it":                                {cut, 3 * blockSize, later, false},
		"what nobody wrote":                                 {block, blockSize, later + 1, false},
		"before the write that is there in part was stored": {version{data: hole.data, partial: true, at: 2}, blockSize, later, false},
	} {
		if got := n.wrote(c.v, c.off, c.byte); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
