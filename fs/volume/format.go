package volume

import (
	"fmt"
	"math/bits"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

const (
	// MinPool is the smallest pool in bytes.
	MinPool = 1 << 20
	// minLog is the shortest log: a record, at most a quarter of it, holds any rename.
	minLog = 64 << 10

	maxBitmaps = 9        // of all copies together, and of each of 8 targets
	bitSpan    = 64 << 10 // bytes of the pool per bit of a bitmap
)

// Check returns the error that Format of size bytes would have, before a byte is written.
func (p Params) Check(size uint64) error {
	_, err := plan(size, p)
	return err
}

// Format writes an empty file system into a region: super slots, log and root directory. What was there is lost. The
// pool header is not touched. An error names the parameter that cannot be.
func Format(r pmem.Region, p Params) error {
	s, err := plan(uint64(len(r.Bytes())), p)
	if err != nil {
		return err
	}
	var formatErr error
	if fault := pmem.Guard(func() { formatErr = format(r, s, p) }); fault != nil {
		return fmt.Errorf("format: %w", fault)
	}
	if formatErr != nil {
		return fmt.Errorf("format: %w", formatErr)
	}
	return nil
}

// plan decides where everything goes.
func plan(size uint64, p Params) (layout.Super, error) {
	size -= size % layout.BlockSize
	if size < MinPool {
		return layout.Super{}, fmt.Errorf("format: pool of %d bytes: at least %d are needed", size, MinPool)
	}
	setDefaults(&p, size)
	bitmap := blocksOf((size+bitSpan-1)/bitSpan/8+1) * layout.BlockSize * maxBitmaps
	s := layout.Super{
		Epoch: 1, Height: 1, NodeSize: p.NodeSize, LogOff: layout.LogOff, LogLen: p.LogLen,
		BitmapOff: layout.LogOff + p.LogLen, BitmapLen: bitmap, Chunk: p.Chunk, Reserve: p.Reserve,
		FirstBlock: (layout.LogOff + p.LogLen + bitmap) / layout.BlockSize,
		NextIno:    Root + 1, Inodes: 1, PoolSize: size, HashKey: p.HashKey, PoolUUID: p.PoolUUID,
	}
	return s, checkPlan(&s)
}

func setDefaults(p *Params, size uint64) {
	if p.NodeSize == 0 {
		p.NodeSize = 4096
	}
	if p.Chunk == 0 {
		part := uint64(1) << (bits.Len64(size/128) - 1)
		p.Chunk = uint32(min(2<<20, max(part, layout.MinChunkNodes*uint64(p.NodeSize))))
	}
	if p.LogLen == 0 {
		p.LogLen = min(64<<20, size/8) / layout.BlockSize * layout.BlockSize
	}
	if p.Reserve == 0 {
		p.Reserve = reserveOf(size, p.Chunk)
	}
}

// reserveOf is how many chunks a pool of size bytes holds back.
func reserveOf(size uint64, chunk uint32) uint32 {
	return uint32(min(max(64<<20, size/50), size/8) / uint64(chunk))
}

func checkPlan(s *layout.Super) error {
	chunk, node := uint64(s.Chunk), uint64(s.NodeSize)
	switch {
	case node != 1024 && node != 2048 && node != 4096:
		return fmt.Errorf("format: node size %d: it must be 1024, 2048 or 4096", node)
	case chunk&(chunk-1) != 0 || chunk < layout.MinChunkNodes*node || chunk < layout.BlockSize:
		return fmt.Errorf("format: chunk of %d bytes: it must be a power of two and hold at least %d nodes", chunk, layout.MinChunkNodes)
	case s.LogLen%layout.BlockSize != 0 || s.LogLen < minLog || s.LogLen > s.PoolSize/8:
		return fmt.Errorf("format: log of %d bytes: it must be whole blocks, at least %d bytes and at most an eighth of the pool", s.LogLen, minLog)
	case uint64(s.Reserve)*chunk > s.PoolSize/8 || s.Reserve < 1:
		return fmt.Errorf("format: reserve of %d chunks of %d bytes: it must be at least one chunk and at most an eighth of the pool", s.Reserve, chunk)
	case s.FirstBlock*layout.BlockSize+(uint64(s.Reserve)+2)*chunk+chunk > s.PoolSize:
		return fmt.Errorf("format: chunk of %d bytes: too large for a pool of %d", chunk, s.PoolSize)
	}
	return nil
}

// format stores all of an empty file system.
//
// Order of durable steps: 1 both seals are cleared, so that a crash from here on leaves no pool; 2 the log and the
// bitmaps are zero (a record of an earlier pool with this UUID must not continue the new chain), the root node is
// there; 3 both supers, sealed one after the other.
func format(r pmem.Region, s layout.Super, p Params) error {
	for _, off := range SealWords() {
		if err := pmem.Drain(r, nil, pmem.Seal{Off: off}); err != nil {
			return err
		}
	}
	b := r.Bytes()
	shared := pmem.Range{Off: s.LogOff, Len: s.FirstBlock*layout.BlockSize - s.LogOff}
	if err := pmem.Zero(b[shared.Off : shared.Off+shared.Len]); err != nil {
		return err
	}
	ranges, err := formatRoot(b, &s, p)
	if err != nil {
		return err
	}
	if err := pmem.Drain(r, append(ranges, shared), pmem.Seal{}); err != nil {
		return err
	}
	for s.Epoch = 1; s.Epoch <= 2; s.Epoch++ {
		off := layout.SuperOff(s.Epoch)
		slot := b[off : off+layout.BlockSize]
		s.Encode(slot)
		if err := pmem.Drain(r, []pmem.Range{{Off: off + 8, Len: layout.BlockSize - 8}}, pmem.Seal{Off: off, Val: s.Seal(slot)}); err != nil {
			return err
		}
	}
	return nil
}

// formatRoot stores the tree of the first epoch, which holds the root directory.
func formatRoot(b []byte, s *layout.Super, p Params) ([]pmem.Range, error) {
	sp := newSpace(s)
	t, err := tree.Create(tree.Config{Bytes: b, NodeSize: int(s.NodeSize), UUID: s.PoolUUID, Nodes: &sp}, s.Epoch)
	if err != nil {
		return nil, err
	}
	mode := p.Mode & 07777
	if mode == 0 {
		mode = 0755
	}
	var val [layout.InodeSize]byte
	root := layout.Inode{Mode: 0040000 | mode, Nlink: 2, UID: p.UID, GID: p.GID, Parent: Root}
	now := layout.Time(p.Now)
	root.Mtime, root.Ctime, root.Atime, root.Btime = now, now, now, now
	root.Encode(val[:])
	if err := t.Put(inodeKey(Root), val[:]); err != nil {
		return nil, err
	}
	ranges := t.Freeze(nil)
	s.Root, s.RootBirth, _ = t.Root()
	return ranges, nil
}

// SealWords are the pool offsets of the seals of both super slots. A full copy of a pool leaves them out and ends with a
// checkpoint.
func SealWords() [2]uint64 { return [2]uint64{layout.SuperOff0, layout.SuperOff1} }

// LocalAreas are the ranges of the pool that belong to each copy alone and are never pushed, beside the pool header.
func (v *Volume) LocalAreas() []pmem.Range {
	return []pmem.Range{{Off: v.super.BitmapOff, Len: v.super.BitmapLen}}
}

// LogEnd is the pool offset behind the log ring. Super slots and log lie before it.
func (v *Volume) LogEnd() uint64 { return v.super.LogOff + v.super.LogLen }
