package layout

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzDecodeSuper(f *testing.F) {
	f.Add(sealed(testSuper()))
	f.Add(make([]byte, BlockSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= SuperEnd { // let the fuzzer get past the seal
			copy(b[24:], testUUID[:])
			binary.LittleEndian.PutUint64(b, superSeal(testUUID, binary.LittleEndian.Uint64(b[48:]), b))
		}
		s, err := DecodeSuper(b, testUUID)
		if err != nil {
			return
		}
		if end := s.BitmapOff + s.BitmapLen; end > s.PoolSize || s.LogOff+s.LogLen > s.BitmapOff || s.FirstBlock*BlockSize < end ||
			s.Root+uint64(s.NodeSize) > s.PoolSize || s.LogPos+RecordHeader > s.LogLen {
			t.Errorf("accepted areas that overlap or leave the pool: %+v", s)
		}
		out := make([]byte, BlockSize)
		s.Encode(out)
		if !bytes.Equal(out[8:216], b[8:216]) {
			t.Errorf("encodes to other bytes")
		}
	})
}

func FuzzDirents(f *testing.F) {
	f.Add(AddDirent(AddDirent(nil, nil, 1, 2, "b"), nil, 3, 4, "c"), "b")
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 255}, "x")
	f.Fuzz(func(t *testing.T, list []byte, name string) {
		whole := EachDirent(list, func(int, uint64, uint8, []byte) bool { return true }) == nil
		_, _, _, had := FindDirent(list, name)
		if len(name) == 0 || len(name) > 255 {
			return
		}
		added := AddDirent(nil, list, 9, 1, name)
		if ino, _, _, ok := FindDirent(added, name); !ok || ino != 9 {
			t.Errorf("added %q is not found", name)
		}
		if !whole {
			return
		}
		if err := EachDirent(added, func(int, uint64, uint8, []byte) bool { return true }); err != nil {
			t.Errorf("add broke the list: %v", err)
		}
		if !had && !bytes.Equal(RemoveDirent(nil, added, name), list) {
			t.Errorf("add and remove of %q changed the list", name)
		}
	})
}

func FuzzXattrs(f *testing.F) {
	f.Add(PutXattr(nil, nil, Xattr{Name: []byte("user.a"), Vlen: 1, Data: []byte("v")}), []byte("user.b"))
	f.Add([]byte{255, 1, 0, 0, 0, 0}, []byte("x"))
	f.Fuzz(func(t *testing.T, list, name []byte) {
		whole := EachXattr(list, func(x Xattr) bool { x.Run(); return true }) == nil
		_, had := FindXattr(list, name)
		if len(name) == 0 || len(name) > 255 {
			return
		}
		added := PutXattr(nil, list, Xattr{Name: name, Vlen: 2, Data: []byte("hi")})
		if x, ok := FindXattr(added, name); !ok || string(x.Data) != "hi" {
			t.Errorf("put %q is not found", name)
		}
		if !whole {
			return
		}
		if err := EachXattr(added, func(Xattr) bool { return true }); err != nil {
			t.Errorf("put broke the list: %v", err)
		}
		if !had && !bytes.Equal(RemoveXattr(nil, added, name), list) {
			t.Errorf("put and remove of %q changed the list", name)
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add(make([]byte, InodeSize))
	f.Add([]byte{5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := DecodeInode(b); err == nil {
			out := make([]byte, InodeSize)
			i.Encode(out)
			if !bytes.Equal(out[:96], b[:96]) {
				t.Error("inode encodes to other bytes")
			}
		}
		if e, err := DecodeExtent(b); err == nil {
			out := make([]byte, ExtentSize)
			e.Encode(out)
			if !bytes.Equal(out, b) {
				t.Error("extent encodes to other bytes")
			}
		}
		if r, err := DecodeRecord(b); err == nil {
			out := make([]byte, RecordHeader)
			r.Encode(out)
			if r.Len > MaxBody || !bytes.Equal(out[8:48], b[8:48]) {
				t.Error("record header encodes to other bytes")
			}
		}
	})
}

func FuzzEachOp(f *testing.F) {
	f.Add(AppendInodes(AppendPatch(AppendDelete(AppendPut(nil, Key{1, 2}, []byte("v")), Key{3, 4}), Key{5, 6}, 7, []byte("p")), -1))
	f.Add([]byte{6})
	f.Fuzz(func(t *testing.T, body []byte) {
		var out []byte
		err := EachOp(body, func(o Op) error {
			switch o.Kind {
			case OpPut:
				out = AppendPut(out, o.Key, o.Val)
			case OpDelete:
				out = AppendDelete(out, o.Key)
			case OpPatch:
				out = AppendPatch(out, o.Key, o.Off, o.Val)
			case OpNextIno:
				out = AppendNextIno(out, uint64(o.Num))
			case OpInodes:
				out = AppendInodes(out, o.Num)
			}
			return nil
		})
		if !bytes.HasPrefix(body, out) || err == nil && len(out) != len(body) {
			t.Errorf("operations encode to other bytes")
		}
	})
}
