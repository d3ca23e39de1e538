package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The vectors are those of the SipHash paper's reference implementation: key 00..0f, input 00, 01, 02 ...
func TestSipHash_ReferenceVectors(t *testing.T) {
	var in []byte
	for i := range 64 {
		in = append(in, byte(i))
	}
	for n, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5} {
		if got := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, string(in[:n])); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	if h := Hash56([16]byte{}, "x"); h == 0 || h > MaxSub {
		t.Errorf("hash %#x does not fit 56 bits", h)
	}
}

func TestCRC_IsSeededWithTheUUID(t *testing.T) {
	b := []byte("some bytes, of two parts")
	want := crc32.Checksum(append(testUUID[:], b...), crc32.MakeTable(crc32.Castagnoli))
	if got := CRC(testUUID, b[:7], b[7:]); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

func sealed(s Super) []byte {
	b := make([]byte, BlockSize)
	s.Encode(b)
	binary.LittleEndian.PutUint64(b, s.Seal(b))
	return b
}

func TestDecodeSuper_RoundTripAndEveryFlippedByte(t *testing.T) {
	b := sealed(testSuper())
	if got, err := DecodeSuper(b, testUUID); err != nil || got != testSuper() {
		t.Fatalf("decoded %+v, %v", got, err)
	}
	for i := range SuperEnd {
		b[i] ^= 0x10
		if _, err := DecodeSuper(b, testUUID); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		b[i] ^= 0x10
	}
	if _, err := DecodeSuper(b, [16]byte{1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("other pool: %v", err)
	}
	if _, err := DecodeSuper(b[:100], testUUID); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short slot: %v", err)
	}
	if SuperOff(6) != SuperOff0 || SuperOff(7) != SuperOff1 {
		t.Error("even epochs belong to slot A, odd ones to slot B")
	}
}

// A slot with a good seal and a field out of bounds is refused, and the error names the field.
func TestDecodeSuper_Bounds(t *testing.T) {
	for field, wrong := range map[string][]func(*Super){
		"pool_size":   {func(s *Super) { s.PoolSize++ }, func(s *Super) { s.PoolSize = 1 << 63 }, func(s *Super) { s.PoolSize = 0 }},
		"node_size":   {func(s *Super) { s.NodeSize = 0 }, func(s *Super) { s.NodeSize = 8192 }},
		"log_off":     {func(s *Super) { s.LogOff = 0 }},
		"log_len":     {func(s *Super) { s.LogLen = 0 }, func(s *Super) { s.LogLen = 1 << 40 }, func(s *Super) { s.LogLen = ^uint64(4095) }},
		"log_pos":     {func(s *Super) { s.LogPos = s.LogLen }, func(s *Super) { s.LogPos = 65 }},
		"bitmap_off":  {func(s *Super) { s.BitmapOff = LogOff }, func(s *Super) { s.BitmapOff = ^uint64(4095) }},
		"bitmap_len":  {func(s *Super) { s.BitmapLen = 1 << 40 }, func(s *Super) { s.BitmapLen = 1 }},
		"first_block": {func(s *Super) { s.FirstBlock = 1 }, func(s *Super) { s.FirstBlock = ^uint64(0) }},
		"chunk":       {func(s *Super) { s.Chunk = 4096 * 17 }, func(s *Super) { s.Chunk = 4096 }, func(s *Super) { s.Chunk = 0 }},
		"reserve":     {func(s *Super) { s.Reserve = ^uint32(0) }},
		"height":      {func(s *Super) { s.Height = 0 }, func(s *Super) { s.Height = 33 }},
		"root":        {func(s *Super) { s.Root = 0 }, func(s *Super) { s.Root++ }, func(s *Super) { s.Root = s.PoolSize }},
		"root_birth":  {func(s *Super) { s.RootBirth = 8 }},
		"lsn_seal":    {func(s *Super) { s.LSNSeal++ }},
		"next_ino":    {func(s *Super) { s.NextIno = 1 }},
		"inodes":      {func(s *Super) { s.Inodes = s.NextIno }},
	} {
		for i, change := range wrong {
			s := testSuper()
			change(&s)
			if _, err := DecodeSuper(sealed(s), testUUID); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), " "+field+":") {
				t.Errorf("%s, case %d: %v", field, i, err)
			}
		}
	}
}

// Lists against a map: random adds, changes and removals with few names.
func TestDirents_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var list []byte
	model := map[string]uint64{}
	for range 5000 {
		name := strings.Repeat("n", rng.IntN(3)) + fmt.Sprint(rng.IntN(12))
		ino := rng.Uint64N(100) + 1
		if rng.IntN(2) == 0 {
			list = RemoveDirent(nil, list, name)
			delete(model, name)
		} else {
			list = AddDirent(nil, list, ino, uint8(ino), name)
			model[name] = ino
		}
		names := slices.Sorted(maps.Keys(model))
		err := EachDirent(list, func(i int, ino uint64, typ uint8, n []byte) bool {
			if string(n) != names[i] || ino != model[names[i]] || typ != uint8(ino) {
				t.Fatalf("entry %d is %q, inode %d, type %d", i, n, ino, typ)
			}
			names[i] = ""
			return true
		})
		if err != nil || strings.Join(names, "") != "" {
			t.Fatalf("%v; not listed: %q", err, names)
		}
		got, _, i, ok := FindDirent(list, name)
		if want, in := model[name]; ok != in || got != want || ok && i != slices.Index(slices.Sorted(maps.Keys(model)), name) {
			t.Fatalf("%q: found %d at %d, %v; want %d, %v", name, got, i, ok, want, in)
		}
	}
	list = SetDirent(nil, AddDirent(nil, nil, 1, 2, "x"), "x", 3, 4)
	if ino, typ, _, _ := FindDirent(list, "x"); ino != 3 || typ != 4 || len(list) != DirentHeader+1 {
		t.Errorf("changed entry has inode %d, type %d", ino, typ)
	}
}

func TestXattrs_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var list []byte
	model := map[string]Xattr{}
	for range 5000 {
		x := Xattr{Name: fmt.Appendf(nil, "user.%d", rng.IntN(8)), Vlen: uint32(rng.IntN(MaxXattrInline + 1))}
		x.Data = bytes.Repeat([]byte{7}, int(x.Vlen))
		if rng.IntN(3) == 0 {
			x.Form, x.Vlen, x.Data = XattrBlocks, 4097, make([]byte, XattrRunSize)
			XattrRun{rng.Uint64(), 2}.Encode(x.Data)
		}
		if rng.IntN(3) == 0 {
			list = RemoveXattr(nil, list, x.Name)
			delete(model, string(x.Name))
		} else {
			list = PutXattr(nil, list, x)
			model[string(x.Name)] = x
		}
		n := 0
		err := EachXattr(list, func(x Xattr) bool {
			n++
			m, ok := model[string(x.Name)]
			_, run := x.Run()
			return ok && m.Form == x.Form && m.Vlen == x.Vlen && bytes.Equal(m.Data, x.Data) && run == (x.Form == XattrBlocks)
		})
		if err != nil || n != len(model) {
			t.Fatalf("%v; listed %d of %d", err, n, len(model))
		}
		if got, ok := FindXattr(list, x.Name); ok != (model[string(x.Name)].Name != nil) || ok && got.Vlen != model[string(x.Name)].Vlen {
			t.Fatalf("%q: found %v %+v", x.Name, ok, got)
		}
	}
	short := Xattr{Form: XattrBlocks, Vlen: 9000, Data: make([]byte, XattrRunSize)}
	XattrRun{5, 2}.Encode(short.Data)
	if _, ok := short.Run(); ok {
		t.Error("a run of 2 blocks passed for a value of 9000 bytes")
	}
}

func TestEachOp_RoundTripAndEveryPrefix(t *testing.T) {
	want := []Op{
		{Kind: OpPut, Key: Key{1, 2}, Val: []byte("v")},
		{Kind: OpPatch, Key: Key{3, 4}, Off: 40, Val: []byte("patch")},
		{Kind: OpDelete, Key: Key{5, 6}},
		{Kind: OpInodes, Num: -3},
		{Kind: OpNextIno, Num: 77},
	}
	var body []byte
	ends := map[int]bool{0: true}
	for _, o := range want {
		switch o.Kind {
		case OpPut:
			body = AppendPut(body, o.Key, o.Val)
		case OpDelete:
			body = AppendDelete(body, o.Key)
		case OpPatch:
			body = AppendPatch(body, o.Key, o.Off, o.Val)
		case OpNextIno:
			body = AppendNextIno(body, uint64(o.Num))
		case OpInodes:
			body = AppendInodes(body, o.Num)
		}
		ends[len(body)] = true
	}
	i := 0
	err := EachOp(body, func(o Op) error {
		w := want[i]
		i++
		if o.Kind != w.Kind || o.Key != w.Key || o.Off != w.Off || o.Num != w.Num || !bytes.Equal(o.Val, w.Val) {
			t.Errorf("operation %d is %+v, want %+v", i, o, w)
		}
		return nil
	})
	if err != nil || i != len(want) {
		t.Errorf("%d operations, %v", i, err)
	}
	for n := range body {
		err := EachOp(body[:n], func(Op) error { return nil })
		if ends[n] != (err == nil) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("prefix of %d bytes: %v", n, err)
		}
	}
	stop := errors.New("stop")
	if err := EachOp(body, func(Op) error { return stop }); err != stop {
		t.Errorf("error of the function: got %v", err)
	}
}

func TestDecode_RefusesWhatDoesNotFit(t *testing.T) {
	long := make([]byte, RecordHeader)
	(&Record{Len: MaxBody + 1}).Encode(long)
	bad := make([]byte, InodeSize)
	(&Inode{Ctime: Time{0, nsecPerSec}}).Encode(bad)
	_, e1 := DecodeRecord(long)
	_, e2 := DecodeRecord(long[:63])
	_, e3 := DecodeInode(bad)
	_, e4 := DecodeInode(bad[:127])
	_, e5 := DecodeExtent(make([]byte, ExtentSize))
	_, e6 := DecodeExtent(make([]byte, 23))
	for i, err := range []error{e1, e2, e3, e4, e5, e6} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

func TestHotPath_AllocatesNothing(t *testing.T) {
	s, ino, ext, rec := testSuper(), Inode{Mode: 0100644}, Extent{N: 1}, Record{}
	b, buf, name := make([]byte, BlockSize), make([]byte, 0, 4096), "a name"
	list := AddDirent(nil, nil, 1, 2, name)
	xs := PutXattr(nil, nil, Xattr{Name: []byte(name), Vlen: 1, Data: []byte("v")})
	n := testing.AllocsPerRun(100, func() {
		s.Encode(b)
		s.Seal(b)
		ino.Encode(b)
		_, _ = DecodeInode(b[:InodeSize])
		ext.Encode(b)
		_, _ = DecodeExtent(b[:ExtentSize])
		rec.Encode(b)
		_, _ = DecodeRecord(b)
		RecordSeal(testUUID, 1, b, b, nil)
		Hash56(s.HashKey, name)
		FindDirent(list, name)
		AddDirent(buf, list, 3, 4, "another")
		RemoveDirent(buf, list, name)
		FindXattr(xs, b[:3])
		RemoveXattr(buf, xs, b[:3])
		body := AppendPatch(AppendDelete(AppendPut(buf, Key{}, b[:100]), Key{}), Key{}, 1, b[:9])
		_ = EachOp(AppendInodes(AppendNextIno(body, 1), 1), func(Op) error { return nil })
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The sum of bytes is the hash of the same bytes as a name, whatever their length.
func TestSum64_IsSipHash(t *testing.T) {
	key := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	var b []byte
	for n := range 300 {
		want := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, string(b))
		if got := Sum64(key, b); got != want {
			t.Errorf("%d bytes: %#x, expected %#x", n, got, want)
		}
		b = append(b, byte(n))
	}
}
