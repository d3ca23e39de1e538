package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/snapshot"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// unmount does what a committer does at the end.
func (r *rig) unmount() {
	r.t.Helper()
	r.reclaim()
	r.commit()
	if ok, err := r.v.SettleEpoch(); err != nil || !ok {
		r.t.Fatal(ok, err)
	}
	r.drain()
}

// remount opens what is durable and tells whether a snapshot was used.
func (r *rig) remount() bool {
	r.t.Helper()
	copy(r.region.Bytes(), r.media)
	r.term++
	r.open()
	r.check()
	return r.rec.Snapshot
}

// A mount that ends before its first group leaves a pool that was unmounted cleanly as it is.
func TestOpen_StoresNothingIntoACleanPool(t *testing.T) {
	r := newRig(t, 16<<20, Params{})
	busy(r, random(t))
	r.unmount()
	before := bytes.Clone(r.region.Bytes())
	r.term++
	r.open()
	r.walked()
	if r.rec.Replayed != 0 || !bytes.Equal(r.region.Bytes(), before) {
		t.Errorf("%d records were replayed, or bytes have changed", r.rec.Replayed)
	}
}

// walked is the volume after an Open that walks the tree.
func (r *rig) walked() *Volume {
	r.t.Helper()
	v, rec, err := Open(r.region, Options{PoolUUID: testUUID, Term: r.term, Now: r.now, WalkUpTo: 1 << 30})
	if err != nil || rec.Snapshot {
		r.t.Fatal(rec, err)
	}
	return v
}

// busy leaves a volume with all that an allocator may hold: files that grow, unlinked files that are open, large attributes,
// nodes dropped by the last epochs.
func busy(r *rig, rnd *rand.Rand) {
	var inos []Ino
	for i := range 300 {
		name := string(rune('a'+i%20)) + string(rune('a'+i/20))
		ino := r.file(name)
		inos = append(inos, ino)
		r.write(ino, 0, pattern(rnd.IntN(20_000), byte(i)))
		switch rnd.IntN(6) {
		case 0:
			r.v.Hold(ino)
			if err := r.v.Unlink(Root, name); err != nil {
				r.t.Fatal(err)
			}
		case 1:
			if err := r.v.SetXattr(ino, "user.x", pattern(5000, 1), 0); err != nil {
				r.t.Fatal(err)
			}
		case 2:
			if err := r.v.PunchHole(pick(rnd, inos), 0, 8192); err != nil {
				r.t.Fatal(err)
			}
		case 3:
			r.commit()
		case 4:
			if rnd.IntN(4) == 0 {
				r.flip()
			}
		}
	}
}

// A clean unmount leaves a snapshot, and what it says is what a walk finds.
func TestSnapshot_EqualsWalk(t *testing.T) {
	rnd := random(t)
	for _, nodeSize := range []uint32{1024, 2048, 4096} {
		r := newRig(t, 16<<20, Params{NodeSize: nodeSize})
		for range 3 {
			busy(r, rnd)
			r.unmount()
			if !r.remount() {
				t.Fatal("no snapshot after a clean unmount")
			}
			if w := r.walked(); !bytes.Equal(r.v.space.inUse(), w.space.inUse()) || r.v.StatFS() != w.StatFS() {
				t.Error("the allocator is not that of a walk")
			}
			r.deleteAll()
		}
	}
}

// No damaged byte is believed.
func TestSnapshot_DamageIsSeen(t *testing.T) {
	r := newRig(t, MinPool, Params{NodeSize: 1024})
	r.write(r.file("f"), 0, pattern(100_000, 1))
	r.unmount()
	s := r.v.super
	if s.SnapLen == 0 {
		t.Fatal("no snapshot")
	}
	for off := s.SnapOff; off < s.SnapOff+s.SnapLen; off++ {
		r.media[off] ^= 0x40
		if r.remount() {
			t.Fatalf("byte %d is damaged and was believed", off-s.SnapOff)
		}
		r.media[off] ^= 0x40
	}
	if !r.remount() {
		t.Error("the snapshot is whole again and was not used")
	}
}

// A snapshot holds with records behind its super, and no longer when something is stored over it.
func TestSnapshot_UntilOverwritten(t *testing.T) {
	r := newRig(t, 4<<20, Params{})
	r.write(r.file("f"), 0, pattern(100_000, 1))
	r.unmount()
	if _, err := r.v.Make(Root, "name", Make{Mode: syscall.S_IFREG}); err != nil {
		t.Fatal(err)
	}
	r.write(r.file("more"), 0, pattern(100_000, 2))
	r.commit()
	if !r.remount() || r.rec.Replayed == 0 {
		t.Errorf("not used with a record behind the super: %+v", r.rec)
	}
	copy(r.media[r.v.super.SnapOff:], "nodes of a later epoch")
	if r.remount() {
		t.Error("believed, though content was stored over it")
	}
	r.flip()
	if !r.remount() {
		t.Error("the next super has none")
	}
}

// A pool without room for it is unmounted and mounted all the same.
func TestSnapshot_NoRoom(t *testing.T) {
	r := newRig(t, MinPool, Params{NodeSize: 1024})
	for blk := r.v.super.FirstBlock; blk < r.v.super.PoolSize/layout.BlockSize; blk++ {
		r.v.space.MarkData(blk, 1)
	}
	if _, err := r.v.CloseEpoch(); err != nil {
		t.Fatal(err)
	}
	r.drain()
	if r.v.super.SnapLen != 0 {
		t.Error("there is a snapshot in space that is not free")
	}
	if r.remount() {
		t.Error("a snapshot was used")
	}
}

// Whatever memory holds at a checkpoint, what recovery takes from the snapshot is what it would find by a walk.
func TestSnapshot_OfABusyVolume(t *testing.T) {
	rnd := random(t)
	for range 4 {
		r := newRig(t, 16<<20, Params{NodeSize: 1024})
		for range 4 {
			busy(r, rnd)
			r.collect()
			if _, err := r.v.CloseEpoch(); err != nil {
				t.Fatal(err)
			}
			r.drain()
			if rnd.IntN(2) == 0 {
				r.commit()
			}
			r.remountedAsWalked()
			// The first epoch of a mount, whose recovery holds nodes of the tree before.
			r.write(r.file("after"), 0, pattern(10_000, 1))
			r.flip()
			r.remountedAsWalked()
			r.deleteAll()
		}
	}
}

// remountedAsWalked opens by the snapshot, and compares with what a walk finds.
func (r *rig) remountedAsWalked() {
	r.t.Helper()
	if !r.remount() {
		r.t.Fatal("no snapshot")
	}
	w := r.walked()
	if !bytes.Equal(r.v.space.inUse(), w.space.inUse()) {
		r.t.Fatal("the allocator is not that of a walk")
	}
	if got, want := slices.Sorted(slices.Values(r.v.waiting.nodes)), slices.Sorted(slices.Values(w.waiting.nodes)); !slices.Equal(got, want) {
		r.t.Fatalf("nodes of the other slot's tree: %d, a walk finds %d", len(got), len(want))
	}
}

// A mount that found the snapshot overwritten, and perhaps the other slot damaged, has used space that the snapshot lists; the
// snapshot is whole on another copy, which is mounted next.
func TestSnapshot_AfterOneThatWasNotUsed(t *testing.T) {
	for _, slotToo := range []bool{false, true} {
		r := newRig(t, 2<<20, Params{NodeSize: 1024, Chunk: 16 << 10})
		var inos []Ino
		for i := range 200 {
			inos = append(inos, r.file(fmt.Sprint(i)))
		}
		for range 3 { // each epoch writes all nodes anew, so that whole chunks belong to the other tree alone
			for _, ino := range inos {
				if _, err := r.v.SetAttr(ino, SetAttr{Valid: SetMtimeNow}); err != nil {
					t.Fatal(err)
				}
			}
			r.flip()
		}
		replica := bytes.Clone(r.media)
		other := layout.SuperOff(r.v.super.Epoch + 1)
		clear(r.media[r.v.super.SnapOff:][:r.v.super.SnapLen])
		if slotToo {
			r.media[other] ^= 1
		}
		if r.remount() {
			t.Fatal("a lost snapshot was used")
		}
		before := bytes.Clone(r.media)
		for err := error(nil); err == nil; { // until there is no space left
			err = r.v.Preallocate(inos[0], uint64(r.v.StatFS().Free)<<20, 4096) // maps a block and stores nothing in it
			if err != nil && !errors.Is(err, ErrShort) {
				t.Fatal(err)
			}
			r.commit()
		}
		for i, b := range r.media { // what was committed reaches the replica
			if b != before[i] {
				replica[i] = b
			}
		}
		r.media = replica
		if !r.remount() || r.rec.Replayed < 10 {
			t.Errorf("other slot lost too: %v: %+v", slotToo, r.rec)
		}
	}
}

// A mount by a snapshot has walked no tree: a damaged extent is met before it is used, so no write follows it into the blocks of another file.
func TestSnapshot_DamageIsMetWhenNeeded(t *testing.T) {
	r := newRig(t, 2<<20, Params{NodeSize: 1024})
	first, second := r.file("first"), r.file("second")
	r.write(first, 0, pattern(4096, 1))
	r.write(second, 0, pattern(4096, 2))
	r.commit()
	r.flip()
	_, e, found := r.v.extentAt(second, 0)
	node, at := uint64(0), uint64(0)
	err := r.v.tree.Walk(false, func(off uint64, _ int, _ uint64) error {
		node = off
		return nil
	}, func(k layout.Key, val []byte) error {
		if k == extentKey(first, 0) {
			at = node + uint64(bytes.Index(r.media[node:], val))
		}
		return nil
	})
	if err != nil || !found || at == 0 {
		t.Fatal("no extents: ", err)
	}
	damaged, region := bytes.Clone(r.media), pmem.NewHeap(uint64(len(r.media)))
	binary.LittleEndian.PutUint64(damaged[at:], e.Pblk) // first seems to have the block of second
	copy(region.Bytes(), damaged)
	v, rec, err := Open(region, Options{PoolUUID: testUUID, Term: r.term + 1, Now: r.now})
	if err == nil && !rec.Snapshot {
		t.Fatal("the tree was walked")
	}
	if err == nil {
		_, err = v.Write(first, 0, pattern(100, 3), false)
	}
	if !errors.Is(err, ErrCorrupt) || !bytes.Equal(region.Bytes(), damaged) {
		t.Errorf("a write by a damaged extent: %v", err)
	}
	if v != nil && v.Stopped() == nil {
		t.Error("the volume goes on")
	}
}

// A snapshot with a right sum may name dropped nodes where none are: it is not believed.
func TestSnapshot_DropsWhatIsNoNode(t *testing.T) {
	r := newRig(t, 2<<20, Params{NodeSize: 1024})
	r.write(r.file("f"), 0, pattern(40_000, 1))
	r.commit()
	r.flip()
	r.flip()
	super, media := r.v.super, bytes.Clone(r.media)
	var places []uint64
	r.v.space.EachData(func(blk, n uint64) { places = append(places, blk*layout.BlockSize) })
	last := super.PoolSize - uint64(super.NodeSize)
	for _, off := range append(places, last, r.v.super.FirstBlock*layout.BlockSize) {
		copy(r.media, media)
		lie := snapshot.Append(nil, super.Epoch, snapshot.Space{Nodes: r.v.space.EachNode, Data: r.v.space.EachData, Dropped: func(fn func(first, n uint64)) {
			fn(off/uint64(super.NodeSize), 1)
		}})
		s := super
		s.SnapLen, s.SnapSum = uint64(len(lie)), layout.Sum64(s.HashKey, lie)
		copy(r.media[s.SnapOff:], lie)
		slot := layout.SuperOff(s.Epoch)
		s.Encode(r.media[slot : slot+layout.BlockSize])
		resealSuper(r.media, slot)
		region := pmem.NewHeap(uint64(len(r.media)))
		copy(region.Bytes(), r.media)
		v, rec, err := Open(region, Options{PoolUUID: testUUID, Term: r.term + 1, Now: r.now})
		if err != nil {
			t.Fatal(err)
		}
		if rec.Snapshot {
			t.Errorf("a snapshot that drops offset %d was believed", off)
		}
		for range 3 {
			if _, err := v.CloseEpoch(); err != nil {
				t.Fatal(err)
			}
			v.Sealed(v.NextJob())
		}
	}
}

// A snapshot with a right sum that does not fit the log is reported, and the tree is walked.
func TestSnapshot_ThatLies(t *testing.T) {
	r := newRig(t, 2<<20, Params{NodeSize: 1024})
	ino := r.file("f")
	r.flip()
	super := r.v.super
	r.write(ino, 0, pattern(4096, 1))
	r.commit()
	lie := snapshot.Append(nil, super.Epoch, snapshot.Space{Nodes: r.v.space.EachNode, Data: r.v.space.EachData, Dropped: r.v.eachDropped})
	super.SnapLen, super.SnapSum = uint64(len(lie)), layout.Sum64(super.HashKey, lie)
	copy(r.media[super.SnapOff:], lie)
	off := layout.SuperOff(super.Epoch)
	super.Encode(r.media[off : off+layout.BlockSize])
	resealSuper(r.media, off)
	region, told := pmem.NewHeap(uint64(len(r.media))), ""
	copy(region.Bytes(), r.media)
	if err := Examine(region, testUUID, func(f Finding) { told += f.String() }); err != nil || !strings.Contains(told, "does not fit the log") {
		t.Errorf("a check says %q, %v", told, err)
	}
	if r.remount() || r.rec.Misled == nil || r.rec.Replayed != 1 {
		t.Errorf("found %+v", r.rec)
	}
	if got := r.content(ino); !bytes.Equal(got, pattern(4096, 1)) {
		t.Error("the content is lost")
	}
}
