package volume

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/posixacl"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// specimen is a small pool with one of everything, as a crash leaves it: both super slots, and records to replay.
type specimen struct {
	image   []byte
	super   layout.Super // the one that counts
	content string       // what census says of it
	before  string       // the same without the last record
	nodes   []uint64     // offsets of the nodes of the tree, from the root down
	records []place      // of the log, from the first that is replayed
	region  pmem.Region  // for the cases
}

// place is so many bytes from an offset on.
type place struct{ off, len uint64 }

const specimenNode = 1024

// newSpecimen builds it: two checkpoints with a tree of several levels, and behind them a log.
func newSpecimen(t testing.TB) *specimen {
	t.Helper()
	r := &rig{t: t, region: pmem.NewHeap(MinPool), clock: 1_000_000, term: 1}
	p := Params{PoolUUID: testUUID, HashKey: [16]byte{42}, NodeSize: specimenNode, LogLen: minLog}
	if err := Format(r.region, p); err != nil {
		t.Fatal(err)
	}
	r.media = bytes.Clone(r.region.Bytes())
	r.open()
	fillSpecimen(r)
	r.commit()
	r.flip()
	r.flip()
	changeSpecimen(r)
	r.collect()
	r.drain()

	s := &specimen{image: bytes.Clone(r.media), region: pmem.NewHeap(MinPool)}
	v, rec, err := openImage(s.image)
	if err != nil || rec.Replayed < 4 || rec.Slot != nil || rec.Orphans < 2 {
		t.Fatalf("the specimen itself: %+v, %v", rec, err)
	}
	s.content = census(v)
	s.locate(t)
	last := s.records[len(s.records)-1].off
	image := bytes.Clone(s.image)
	clear(image[last : last+8])
	if v, _, err = openImage(image); err != nil {
		t.Fatal("without the last record: ", err)
	}
	s.before = census(v)
	return s
}

// fillSpecimen makes what the tree holds.
func fillSpecimen(r *rig) {
	r.t.Helper()
	mk := func(dir Ino, name string, m Make) Ino {
		a, err := r.v.Make(dir, name, m)
		if err != nil {
			r.t.Fatalf("make %q: %v", name, err)
		}
		return a.Ino
	}
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	below := r.make(r.make(Root, "dir", syscall.S_IFDIR|0755), "below", syscall.S_IFDIR|0700)
	f := r.file("file")
	r.write(f, 0, pattern(9000, 3))
	r.write(f, 40000, pattern(100, 4))
	must(r.v.Preallocate(f, 60000, 9000))
	must(r.v.SetXattr(f, "user.small", []byte("value"), 0))
	must(r.v.SetXattr(f, "trusted.large", pattern(5000, 5), 0))
	must(second(r.v.Link(f, below, "second name")))
	must(r.v.SetXattr(below, posixacl.Default, smallACL(), 0))
	must(r.v.SetXattr(f, posixacl.Access, smallACL(), 0))
	mk(below, "long", Make{Mode: syscall.S_IFLNK | 0777, Target: strings.Repeat("long/", 100)})
	mk(below, "short", Make{Mode: syscall.S_IFLNK | 0777, Target: "file"})
	mk(below, "null", Make{Mode: syscall.S_IFCHR | 0666, Rdev: 0x103})
	mk(below, "fifo", Make{Mode: syscall.S_IFIFO | 0644})
	must(r.v.SetFlags(r.file("protected"), FlagAppend))
	for i := range 60 {
		r.write(r.make(below, fmt.Sprintf("file %d", i), syscall.S_IFREG|0644), 0, pattern(100, byte(i)))
	}
	r.write(r.file("held"), 0, pattern(5000, 6))
	r.write(r.file("gone"), 0, pattern(5000, 7))
	must(r.v.Unlink(Root, "gone")) // an orphan until it is reclaimed
}

// changeSpecimen makes what the log holds: each kind of operation, over several records.
func changeSpecimen(r *rig) {
	r.t.Helper()
	held, err := r.v.Lookup(Root, "held")
	if err != nil {
		r.t.Fatal(err)
	}
	r.v.Hold(held.Ino)
	f := r.file("late")
	for i, step := range []func() error{
		func() error { return r.v.Unlink(Root, "held") },
		func() error { r.write(f, 0, pattern(6000, 8)); return nil },
		func() error { return r.v.SetXattr(f, "user.late", pattern(300, 9), 0) },
		func() error { return r.v.Rename(Root, "late", Root, "later", 0) },
		func() error { r.make(Root, "last", syscall.S_IFDIR|0755); return nil },
	} {
		if err := step(); err != nil {
			r.t.Fatalf("step %d: %v", i, err)
		}
		r.commit()
	}
}

// smallACL gives one user more than the group.
func smallACL() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, 6, ^uint32(0)}, {2, 6, 1000}, {4, 4, ^uint32(0)}, {16, 6, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		b = le.AppendUint16(b, uint16(e[0]))
		b = le.AppendUint16(b, uint16(e[1]))
		b = le.AppendUint32(b, e[2])
	}
	return b
}

// locate finds nodes and records by docs/format.md.
func (s *specimen) locate(t testing.TB) {
	t.Helper()
	slots, err := readSlots(func(off uint64, b []byte) error { copy(b, s.image[off:]); return nil }, testUUID, MinPool)
	if err != nil {
		t.Fatal(err)
	}
	s.super = slots.best
	s.addNode(s.super.Root)
	if s.super.Height < 3 {
		t.Fatalf("the tree has %d levels", s.super.Height)
	}
	pos := s.super.LogOff + s.super.LogPos
	for lsn := s.super.LSN + 1; binary.LittleEndian.Uint64(s.image[pos+8:]) == lsn; lsn++ {
		n := uint64(binary.LittleEndian.Uint32(s.image[pos+24:]))
		s.records = append(s.records, place{pos, layout.RecordHeader + n})
		pos += (layout.RecordHeader + n + 63) / 64 * 64
	}
	if pos > s.super.LogOff+s.super.LogLen {
		t.Fatal("the log of the specimen wraps, which the generator does not know of")
	}
}

func (s *specimen) addNode(off uint64) {
	s.nodes = append(s.nodes, off)
	nd := s.image[off:][:specimenNode]
	for i := 0; nd[24] > 0 && i < int(binary.LittleEndian.Uint16(nd[26:])); i++ {
		at := binary.LittleEndian.Uint16(nd[64+24*i+16:])
		s.addNode(binary.LittleEndian.Uint64(nd[at:]))
	}
}

// The following make checksums right again after a change, so that only the value itself is wrong.

func resealSuper(b []byte, off uint64) {
	slot := b[off : off+layout.BlockSize]
	epoch := binary.LittleEndian.Uint64(slot[48:])
	binary.LittleEndian.PutUint64(slot, uint64(layout.CRC(testUUID, slot[8:layout.SuperEnd]))<<32|epoch&0xffffffff)
}

func resealNode(b []byte, off uint64) {
	nd := b[off:][:specimenNode]
	binary.LittleEndian.PutUint32(nd[4:], layout.CRC(testUUID, nd[8:]))
}

// fixLog seals all records again, each with the seal of the one before in it. A record whose length no longer fits into the
// log keeps its old extent.
func (s *specimen) resealLog(b []byte) {
	prev := s.super.LSNSeal
	for i, r := range s.records {
		head := b[r.off:][:layout.RecordHeader]
		if i > 0 {
			binary.LittleEndian.PutUint64(head[32:], prev)
		}
		n := uint64(binary.LittleEndian.Uint32(head[24:]))
		if end := s.super.LogOff + s.super.LogLen; n > end-r.off-layout.RecordHeader {
			n = r.len - layout.RecordHeader
		}
		prev = layout.RecordSeal(testUUID, binary.LittleEndian.Uint64(head[8:]), head, b[r.off+layout.RecordHeader:][:n], nil)
		binary.LittleEndian.PutUint64(head, prev)
	}
}
