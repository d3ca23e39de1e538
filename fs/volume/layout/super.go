package layout

import "encoding/binary"

// Places and sizes that every pool shares.
const (
	BlockSize = 4096
	SuperOff0 = 4096
	SuperOff1 = 8192
	LogOff    = 12288

	// SuperEnd is where the used part of a super slot ends; bytes 8..SuperEnd-1 are covered by the seal and pushed.
	SuperEnd = 512
	// MaxHeight bounds the levels of a tree: even the smallest nodes with the fewest children reach every offset below it.
	MaxHeight = 32
	// MinChunkNodes is how many nodes a chunk holds at least.
	MinChunkNodes = 16

	superMagic   = "PMFSUPER"
	superVersion = 1
	checksumKind = 1 // CRC-32C
)

// Super is the content of a super slot: the root of the tree and where everything stands. Offsets and lengths are in
// bytes, FirstBlock in blocks, Reserve in chunks.
type Super struct {
	Epoch, Term, Root, RootBirth uint64
	Height, NodeSize             uint32
	LSN, LSNSeal, LogPos         uint64
	LogOff, LogLen               uint64
	BitmapOff, BitmapLen         uint64
	FirstBlock                   uint64
	Chunk, Reserve               uint32
	NextIno, Inodes              uint64
	PoolSize                     uint64
	HashKey, PoolUUID            [16]byte
	// SnapOff, SnapLen and SnapSum are place, length and Sum64 of a snapshot of the allocator in this very state. Zero: there is
	// none.
	SnapOff, SnapLen, SnapSum uint64
}

// SuperOff is the pool offset of the slot that an epoch is written to.
func SuperOff(epoch uint64) uint64 {
	if epoch%2 == 0 {
		return SuperOff0
	}
	return SuperOff1
}

// Encode writes bytes 8..4095 of the slot b. The seal, bytes 0..7, stays as it is: it may only be stored when the rest
// is persistent.
func (s *Super) Encode(b []byte) {
	b = b[:BlockSize]
	clear(b[8:])
	le := binary.LittleEndian
	copy(b[8:], superMagic)
	le.PutUint32(b[16:], superVersion)
	le.PutUint32(b[20:], checksumKind)
	copy(b[24:], s.PoolUUID[:])
	le.PutUint64(b[40:], s.PoolSize)
	le.PutUint64(b[48:], s.Epoch)
	le.PutUint64(b[56:], s.Term)
	le.PutUint64(b[64:], s.Root)
	le.PutUint64(b[72:], s.RootBirth)
	le.PutUint32(b[80:], s.Height)
	le.PutUint32(b[84:], s.NodeSize)
	le.PutUint64(b[88:], s.LSN)
	le.PutUint64(b[96:], s.LSNSeal)
	le.PutUint64(b[104:], s.LogPos)
	le.PutUint64(b[112:], s.LogOff)
	le.PutUint64(b[120:], s.LogLen)
	le.PutUint64(b[128:], s.BitmapOff)
	le.PutUint64(b[136:], s.BitmapLen)
	le.PutUint64(b[144:], s.FirstBlock)
	le.PutUint32(b[152:], s.Chunk)
	le.PutUint32(b[156:], s.Reserve)
	le.PutUint64(b[160:], s.NextIno)
	le.PutUint64(b[168:], s.Inodes)
	copy(b[176:], s.HashKey[:])
	le.PutUint64(b[192:], s.SnapOff)
	le.PutUint64(b[200:], s.SnapLen)
	le.PutUint64(b[208:], s.SnapSum)
}

// Seal is the seal word for the encoded slot b.
func (s *Super) Seal(b []byte) uint64 { return superSeal(s.PoolUUID, s.Epoch, b) }

func superSeal(uuid [16]byte, epoch uint64, b []byte) uint64 {
	return uint64(CRC(uuid, b[8:SuperEnd]))<<32 | epoch&0xffffffff
}

// DecodeSuper reads a slot and checks its seal, magic, version, UUID and the bounds of each field. That the slot is the
// one that its epoch belongs to is for the caller to check, see SuperOff.
func DecodeSuper(b []byte, uuid [16]byte) (Super, error) {
	if len(b) < SuperEnd {
		return Super{}, corrupt("super: found %d bytes, expected at least %d", len(b), SuperEnd)
	}
	if string(b[8:16]) != superMagic {
		return Super{}, corrupt("super: magic: found %q, expected %q", b[8:16], superMagic)
	}
	s := readSuper(b)
	if found, want := binary.LittleEndian.Uint64(b), superSeal(uuid, s.Epoch, b); found != want {
		return Super{}, corrupt("super: seal: found %#x, expected %#x", found, want)
	}
	if s.PoolUUID != uuid {
		return Super{}, corrupt("super: pool_uuid: found %x, expected %x", s.PoolUUID, uuid)
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != superVersion {
		return Super{}, corrupt("super: version: found %d, expected %d; open the pool with a matching program", v, superVersion)
	}
	if v := binary.LittleEndian.Uint32(b[20:]); v != checksumKind {
		return Super{}, corrupt("super: checksum kind: found %d, expected %d", v, checksumKind)
	}
	return s, s.check()
}

func readSuper(b []byte) Super {
	le := binary.LittleEndian
	return Super{
		PoolUUID:  [16]byte(b[24:40]),
		PoolSize:  le.Uint64(b[40:]),
		Epoch:     le.Uint64(b[48:]),
		Term:      le.Uint64(b[56:]),
		Root:      le.Uint64(b[64:]),
		RootBirth: le.Uint64(b[72:]),
		Height:    le.Uint32(b[80:]),
		NodeSize:  le.Uint32(b[84:]),
		LSN:       le.Uint64(b[88:]),
		LSNSeal:   le.Uint64(b[96:]),
		LogPos:    le.Uint64(b[104:]),
		LogOff:    le.Uint64(b[112:]),
		LogLen:    le.Uint64(b[120:]),
		BitmapOff: le.Uint64(b[128:]),
		BitmapLen: le.Uint64(b[136:]),

		FirstBlock: le.Uint64(b[144:]),
		Chunk:      le.Uint32(b[152:]),
		Reserve:    le.Uint32(b[156:]),
		NextIno:    le.Uint64(b[160:]),
		Inodes:     le.Uint64(b[168:]),
		HashKey:    [16]byte(b[176:192]),
		SnapOff:    le.Uint64(b[192:]),
		SnapLen:    le.Uint64(b[200:]),
		SnapSum:    le.Uint64(b[208:]),
	}
}

// check tests the bounds of every field. The first wrong one is named. No sum in it can wrap: each is formed only after
// its parts are known to lie within the pool.
func (s *Super) check() error {
	ns, chunk := uint64(s.NodeSize), uint64(s.Chunk)
	for _, c := range []struct {
		ok    bool
		field string
		found uint64
		want  string
	}{
		{s.PoolSize%BlockSize == 0 && s.PoolSize > LogOff && s.PoolSize>>62 == 0, "pool_size", s.PoolSize, "whole blocks"},
		{ns == 1024 || ns == 2048 || ns == 4096, "node_size", ns, "1024, 2048 or 4096"},
		{s.LogOff == LogOff, "log_off", s.LogOff, "12288"},
		{s.LogLen > 0 && s.LogLen%BlockSize == 0 && s.LogLen <= s.PoolSize-LogOff,
			"log_len", s.LogLen, "whole blocks within the pool"},
		{s.LogPos < s.LogLen && s.LogPos%RecordAlign == 0, "log_pos", s.LogPos, "a multiple of 64 below log_len"},
		{s.BitmapOff%BlockSize == 0 && s.BitmapOff >= LogOff+s.LogLen && s.BitmapOff <= s.PoolSize,
			"bitmap_off", s.BitmapOff, "a block after the log"},
		{s.BitmapLen%BlockSize == 0 && s.BitmapLen <= s.PoolSize-s.BitmapOff,
			"bitmap_len", s.BitmapLen, "whole blocks within the pool"},
		{s.FirstBlock < s.PoolSize/BlockSize && s.FirstBlock*BlockSize >= s.BitmapOff+s.BitmapLen,
			"first_block", s.FirstBlock, "a block of the pool after the bitmaps"},
		{chunk >= BlockSize && chunk&(chunk-1) == 0 && chunk >= MinChunkNodes*ns,
			"chunk", chunk, "a power of two of at least 16 nodes"},
		{uint64(s.Reserve)*chunk <= s.PoolSize, "reserve", uint64(s.Reserve), "chunks within the pool"},
		{s.Height >= 1 && s.Height <= MaxHeight, "height", uint64(s.Height), "1 to 32"},
		{s.Root%max(ns, 1) == 0 && s.Root/BlockSize >= s.FirstBlock && s.Root < s.PoolSize,
			"root", s.Root, "an aligned node in the general area"},
		{s.RootBirth <= s.Epoch, "root_birth", s.RootBirth, "at most the epoch"},
		{s.LSNSeal == 0 || uint32(s.LSNSeal) == uint32(s.LSN), "lsn_seal", s.LSNSeal, "a seal of the record lsn, or 0"},
		{s.NextIno >= 2, "next_ino", s.NextIno, "at least 2"},
		{s.Inodes < s.NextIno, "inodes", s.Inodes, "fewer than next_ino"},
		{s.SnapLen == 0 || s.SnapOff%BlockSize == 0 && s.SnapOff/BlockSize >= s.FirstBlock && s.SnapOff <= s.PoolSize,
			"snap_off", s.SnapOff, "a block of the general area"},
		{s.SnapLen == 0 || s.SnapLen <= s.PoolSize-s.SnapOff, "snap_len", s.SnapLen, "bytes within the pool"},
	} {
		if !c.ok {
			return corrupt("super of epoch %d: %s: found %d, expected %s", s.Epoch, c.field, c.found, c.want)
		}
	}
	return nil
}
