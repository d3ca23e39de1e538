package layout

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

var testUUID = [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}

func testSuper() Super {
	return Super{
		Epoch: 7, Term: 3, Root: 0x4400000, RootBirth: 6, Height: 2, NodeSize: 4096,
		LSN: 9, LSNSeal: 0x1122334400000009, LogPos: 0x140, LogOff: LogOff, LogLen: 0x4000000,
		BitmapOff: 0x4003000, BitmapLen: 0x1000, FirstBlock: 0x4004, Chunk: 0x200000, Reserve: 32,
		NextIno: 12, Inodes: 5, PoolSize: 1 << 30,
		HashKey: [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, PoolUUID: testUUID,
		SnapOff: 0x5000000, SnapLen: 0x123, SnapSum: 0x1011121314151617,
	}
}

// wantBytes compares with bytes written by hand from docs/format.md; blanks separate fields.
func wantBytes(t *testing.T, got []byte, want string) {
	t.Helper()
	w, err := hex.DecodeString(strings.Join(strings.Fields(want), ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, w) {
		t.Errorf("bytes differ from the format\n got %x\nwant %x", got, w)
	}
}

func TestSuper_GoldenBytes(t *testing.T) {
	b := bytes.Repeat([]byte{0xee}, BlockSize)
	s := testSuper()
	s.Encode(b)
	wantBytes(t, b[:216], `
		eeeeeeeeeeeeeeee 504d465355504552 01000000 01000000
		a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 0000004000000000
		0700000000000000 0300000000000000 0000400400000000 0600000000000000 02000000 00100000
		0900000000000000 0900000044332211 4001000000000000
		0030000000000000 0000000400000000 0030000400000000 0010000000000000
		0440000000000000 00002000 20000000 0c00000000000000 0500000000000000
		0102030405060708090a0b0c0d0e0f10
		0000000500000000 2301000000000000 1716151413121110`)
	if !bytes.Equal(b[216:], make([]byte, BlockSize-216)) {
		t.Error("the rest of the slot is not zero")
	}
	if got, want := s.Seal(b), uint64(0xc2ca213000000007); got != want {
		t.Errorf("seal %#x, want %#x", got, want)
	}
}

func TestInode_GoldenBytes(t *testing.T) {
	i := Inode{
		Mode: 0o100644, Nlink: 2, UID: 1000, GID: 100, Rdev: 0x0801, Flags: 4, Size: 5000, Blocks: 2,
		Mtime: Time{1, 2}, Ctime: Time{3, 4}, Atime: Time{-1, 999999999}, Btime: Time{7, 8}, Parent: 1,
	}
	b := bytes.Repeat([]byte{0xee}, InodeSize)
	i.Encode(b)
	wantBytes(t, b, `a4810000 02000000 e8030000 64000000 01080000 04000000 8813000000000000 0200000000000000
		010000000000000002000000 030000000000000004000000 ffffffffffffffffffc99a3b 070000000000000008000000
		0100000000000000 0000000000000000000000000000000000000000000000000000000000000000`)
	got, err := DecodeInode(b)
	if err != nil || got != i {
		t.Errorf("decoded %+v, %v; want %+v", got, err, i)
	}
}

func TestExtent_GoldenBytes(t *testing.T) {
	e := Extent{Pblk: 0x4005, N: 16, Flags: Unwritten, Birth: 7}
	b := make([]byte, ExtentSize)
	e.Encode(b)
	wantBytes(t, b, `0540000000000000 10000000 01000000 0700000000000000`)
	if got, err := DecodeExtent(b); err != nil || got != e {
		t.Errorf("decoded %+v, %v; want %+v", got, err, e)
	}
}

func TestDirents_GoldenBytes(t *testing.T) {
	list := AddDirent(nil, nil, 5, 8, "b")
	list = AddDirent(nil, list, 6, 4, "ab")
	wantBytes(t, list, `0600000000000000 04 02 6162  0500000000000000 08 01 62`)
}

func TestXattrs_GoldenBytes(t *testing.T) {
	run := make([]byte, XattrRunSize)
	XattrRun{0x4006, 2}.Encode(run)
	list := PutXattr(nil, nil, Xattr{Name: []byte("user.b"), Form: XattrInline, Vlen: 2, Data: []byte("hi")})
	list = PutXattr(nil, list, Xattr{Name: []byte("user.a"), Form: XattrBlocks, Vlen: 5000, Data: run})
	wantBytes(t, list, `06 01 88130000 757365722e61 0640000000000000 02000000  06 00 02000000 757365722e62 6869`)
}

func TestRecord_GoldenBytes(t *testing.T) {
	var body []byte
	body = AppendPut(body, Key{1, 2}, []byte("xyz"))
	body = AppendDelete(body, Key{3, 4})
	body = AppendPatch(body, Key{5, 6}, 40, []byte{9})
	body = AppendNextIno(body, 12)
	body = AppendInodes(body, -1)
	wantBytes(t, body, `
		01 0100000000000000 0200000000000000 0300 78797a
		02 0300000000000000 0400000000000000
		03 0500000000000000 0600000000000000 2800 0100 09
		04 0c00000000000000
		05 ffffffffffffffff`)
	b := bytes.Repeat([]byte{0xee}, RecordHeader)
	r := Record{LSN: 9, Term: 3, Len: uint32(len(body)), N: 5, PrevSeal: 0x5566778800000008, Time: 0x1234}
	r.Encode(b)
	wantBytes(t, b, `eeeeeeeeeeeeeeee 0900000000000000 0300000000000000 4f000000 05000000
		0800000088776655 3412000000000000 00000000000000000000000000000000`)
	seal := RecordSeal(testUUID, 9, b, body[:10], body[10:])
	if want := uint64(0x06c1d85d00000009); seal != want {
		t.Errorf("seal %#x, want %#x", seal, want)
	}
}

func TestKey_LayoutAndNext(t *testing.T) {
	if k := MakeKey(7, TypeExtent, 9); k != (Key{7, 3<<56 | 9}) || k.Type() != TypeExtent || k.Sub() != 9 {
		t.Errorf("key %x", k)
	}
	for _, c := range []struct{ k, next Key }{
		{Key{1, 2}, Key{1, 3}},
		{Key{1, ^uint64(0)}, Key{2, 0}},
		{Key{^uint64(0), ^uint64(0)}, Key{^uint64(0), ^uint64(0)}},
	} {
		if got := c.k.Next(); got != c.next {
			t.Errorf("next of %x is %x, want %x", c.k, got, c.next)
		}
	}
	if !(Key{1, 9}).Less(Key{2, 0}) || (Key{2, 0}).Less(Key{2, 0}) || (Key{2, 1}).Compare(Key{2, 0}) != 1 || (Key{2, 0}).Compare(Key{2, 1}) != -1 {
		t.Error("order of keys is wrong")
	}
}
