package tree

import (
	"encoding/binary"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// FuzzNode gives a tree up to four nodes with any bytes, but for what a change would have to get right to be met at all: magic
// and own offset. Whatever they say, reading and changing the tree ends and panics nowhere, and a tree that Walk finds whole
// keeps what is put into it.
func FuzzNode(f *testing.F) {
	const size, births = 1024, 5
	p := newPool(f, size, 4, nil)
	t, err := Create(p.config(), births)
	if err != nil {
		f.Fatal(err)
	}
	for i := range uint64(40) {
		if err := t.Put(newKey(i, i), []byte("a value")); err != nil {
			f.Fatal(err)
		}
	}
	t.Freeze(nil)
	root, _, height := t.Root()
	image := p.bytes[size:]
	f.Add(image, uint8(root/size), uint8(height))
	f.Add(image[:size], uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, root, height uint8) {
		// Changes find nodes behind those that are given.
		p := newPool(t, size, 24, nil)
		p.free = p.free[:20]
		copy(p.bytes[size:5*size], b)
		for off := size; off < 5*size; off += size {
			binary.LittleEndian.PutUint32(p.bytes[off+magicOff:], nodeMagic)
			binary.LittleEndian.PutUint64(p.bytes[off+selfOff:], uint64(off))
			binary.LittleEndian.PutUint32(p.bytes[off+crcOff:], layout.CRC(testUUID, p.bytes[off+crcStart:off+size]))
		}
		at := (1 + uint64(root)%4) * size
		birth := node(p.bytes[at:]).birth()
		tr := New(p.config(), at, birth, int(height%8), min(birth, 1<<62)+1)
		whole := tr.Walk(true, nil, func(Key, []byte) error { return nil }) == nil
		for i := range uint64(3) {
			k := newKey(i*17, i)
			tr.Get(k)
			tr.Floor(k)
			tr.Ascend(k, newKey(^uint64(0), 0), func(Key, []byte) bool { return true })
		}
		k := newKey(7, 9)
		if err := tr.Put(k, []byte("new")); err == nil && whole {
			if v, ok := tr.Get(k); !ok || string(v) != "new" {
				t.Fatalf("what was put is %q, %v", v, ok)
			}
		}
		_ = tr.Patch(newKey(3, 3), 2, []byte("xyz"))
		for i := range uint64(4) {
			_, _ = tr.Delete(newKey(i, i))
		}
		_ = tr.Walk(true, nil, func(Key, []byte) error { return nil })
		tr.Freeze(nil)
	})
}
