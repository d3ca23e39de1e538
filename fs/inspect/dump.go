package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/oplog"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Dumper writes the structure of a pool as docs/format.md describes it, each thing with its pool offset. It takes any bytes: what is
// damaged is said to be, and the dump goes on.
type Dumper struct {
	Bytes []byte // the whole pool
	UUID  [16]byte
	Out   io.Writer

	err error // of Out, the first
}

func (d *Dumper) line(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.Out, format+"\n", args...)
	}
}

// Header writes the pool header and both state slots.
func (d *Dumper) Header() error {
	block := d.Bytes[:poolset.BlockSize]
	h, torn, err := poolset.CurrentHeader(block)
	if err != nil {
		d.line("header at 0x0: %v", err)
	} else {
		d.line("header at 0x0: signature %q version %d features %#x/%#x/%#x pool %v copy %v created %d pool_size %d copy taken %v",
			h.Signature, h.Major, h.Compat, h.Incompat, h.ROCompat, h.PoolUUID, h.CopyID, h.Created, h.PoolSize, torn)
	}
	for i := range 2 {
		off := poolset.StateOff + i*poolset.StateLen
		var s poolset.State
		if err := s.Decode(block[off:], d.UUID); err != nil {
			d.line("state slot %d at %#x: %v", i, off, err)
			continue
		}
		d.line("state slot %d at %#x: seq %d term %d writer %v gen %016x flags %q sync_gen %016x sync_id %016x boot %v history %016x peers %v",
			i, off, s.Seq, s.Term, s.Writer, s.Gen, s.Flags.String(), s.SyncGen, s.SyncID, s.BootID, s.History, s.Peers)
	}
	return d.err
}

// Supers writes both super slots.
func (d *Dumper) Supers() error {
	for _, off := range [2]uint64{layout.SuperOff0, layout.SuperOff1} {
		s, err := d.super(off)
		if err != nil {
			d.line("super slot at %#x: %v", off, err)
			continue
		}
		d.line("super slot at %#x: seal %#x epoch %d term %d root %#x root_birth %d height %d node_size %d lsn %d lsn_seal %#x log_pos %d log_off %#x log_len %d "+
			"bitmap_off %#x bitmap_len %d first_block %d chunk %d reserve %d next_ino %d inodes %d pool_size %d",
			off, binary.LittleEndian.Uint64(d.Bytes[off:]), s.Epoch, s.Term, s.Root, s.RootBirth, s.Height, s.NodeSize, s.LSN, s.LSNSeal, s.LogPos, s.LogOff, s.LogLen,
			s.BitmapOff, s.BitmapLen, s.FirstBlock, s.Chunk, s.Reserve, s.NextIno, s.Inodes, s.PoolSize)
	}
	return d.err
}

func (d *Dumper) super(off uint64) (layout.Super, error) {
	if off > uint64(len(d.Bytes)) || uint64(len(d.Bytes))-off < layout.SuperEnd {
		return layout.Super{}, fmt.Errorf("the pool ends before it: %w", layout.ErrCorrupt)
	}
	s, err := layout.DecodeSuper(d.Bytes[off:off+layout.SuperEnd], d.UUID)
	if err == nil && s.PoolSize > uint64(len(d.Bytes)) {
		err = fmt.Errorf("%w: pool_size: found %d, expected at most %d", layout.ErrCorrupt, s.PoolSize, len(d.Bytes))
	}
	return s, err
}

// best is the super slot that a mount would start from.
func (d *Dumper) best() (best layout.Super, err error) {
	found := false
	var errs []error
	for _, off := range [2]uint64{layout.SuperOff0, layout.SuperOff1} {
		s, err := d.super(off)
		if err != nil {
			errs = append(errs, err)
		} else if !found || s.Epoch > best.Epoch {
			best, found = s, true
		}
	}
	if !found {
		return best, fmt.Errorf("no super slot is valid: %w", errors.Join(errs...))
	}
	return best, nil
}

// Log writes the records that a mount would replay, with their operations.
func (d *Dumper) Log() error {
	s, err := d.best()
	if err != nil {
		return err
	}
	pos := s.LogPos
	_, _, _, _, n, err := oplog.Scan(d.read, s.LogOff, s.LogLen, s.LogPos, s.LSN, s.LSNSeal, s.Term, s.PoolUUID, func(r layout.Record, body []byte) error {
		d.line("record %d at %#x: seal %#x term %d bytes %d operations %d prev_seal %#x time %d", r.LSN, s.LogOff+pos, r.Seal, r.Term, r.Len, r.N, r.PrevSeal, r.Time)
		pos = (pos + oplog.Space(uint64(r.Len))) % s.LogLen
		if err := layout.EachOp(body, d.op); err != nil {
			d.line("  %v", err)
		}
		return d.err
	})
	if err == nil {
		d.line("log: %d records after group %d, the next one goes to %#x", n, s.LSN, s.LogOff+pos)
	}
	return errors.Join(err, d.err)
}

func (d *Dumper) op(o layout.Op) error {
	switch o.Kind {
	case layout.OpPut:
		d.line("  put %s: %s", layout.KeyText(o.Key), layout.ValueText(o.Key, o.Val))
	case layout.OpDelete:
		d.line("  delete %s", layout.KeyText(o.Key))
	case layout.OpPatch:
		d.line("  patch %s: %x at byte %d", layout.KeyText(o.Key), o.Val, o.Off)
	case layout.OpNextIno:
		d.line("  next_ino %d", uint64(o.Num))
	case layout.OpInodes:
		d.line("  inodes %+d", o.Num)
	}
	return nil
}

func (d *Dumper) read(off uint64, b []byte) error {
	if off > uint64(len(d.Bytes)) || uint64(len(b)) > uint64(len(d.Bytes))-off {
		return fmt.Errorf("%w: %d bytes at offset %d of a pool of %d", layout.ErrCorrupt, len(b), off, len(d.Bytes))
	}
	copy(b, d.Bytes[off:])
	return nil
}

// Nodes writes the nodes of the last checkpoint, each with its keys and values: all, or the one at off if that is not 0.
func (d *Dumper) Nodes(off uint64) error {
	met := false
	err := d.survey(func(t *tree.Tree, at uint64) {
		if off != 0 && at != off {
			return
		}
		met = true
		level := 0
		t.Node(at, func(l int, birth uint64, n int) {
			level = l
			d.line("node at %#x: level %d birth %d slots %d", at, l, birth, n)
		}, func(k layout.Key, v []byte) {
			if level > 0 && len(v) == 16 {
				d.line("  from %s: node at %#x born %d", layout.KeyText(k), binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:]))
			} else {
				d.line("  %s: %s", layout.KeyText(k), layout.ValueText(k, v))
			}
		})
	}, func(layout.Key, []byte) {})
	if err == nil && off != 0 && !met {
		err = fmt.Errorf("the last checkpoint has no node at offset %d", off)
	}
	return err
}

// Inode writes the keys and values of one inode in the last checkpoint, its place among the orphans too.
func (d *Dumper) Inode(ino uint64) error {
	return d.survey(func(*tree.Tree, uint64) {}, func(k layout.Key, v []byte) {
		if k.Hi == ino || k.Hi == 0 && k.Type() == layout.TypeOrphan && k.Sub() == ino {
			d.line("%s: %s", layout.KeyText(k), layout.ValueText(k, v))
		}
	})
}

// survey goes through the tree of the last checkpoint, and tells of damaged nodes.
func (d *Dumper) survey(node func(t *tree.Tree, off uint64), leaf func(k layout.Key, v []byte)) error {
	s, err := d.best()
	if err != nil {
		return err
	}
	t := tree.New(tree.Config{Bytes: d.Bytes, NodeSize: int(s.NodeSize), UUID: s.PoolUUID}, s.Root, s.RootBirth, int(s.Height), s.Epoch+1)
	seen := make(map[uint64]bool)
	t.Survey(func(off uint64) bool {
		if seen[off] {
			d.line("node at %#x: reached a second time", off)
			return false
		}
		seen[off] = true
		node(t, off)
		return d.err == nil
	}, leaf, func(bad tree.Damage) { d.line("node at %#x: %v", bad.Off, bad.Err) })
	return d.err
}
