package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// damageFiles is how many files each directory of a newDamageRig has.
const damageFiles = 40

// newDamageRig has a tree of several levels: directories with files of two blocks.
func newDamageRig(t *testing.T) (r *rig, dirs, files []Ino) {
	t.Helper()
	r = newRig(t, 4<<20, Params{NodeSize: 1024})
	for d := range 4 {
		dir := r.make(Root, fmt.Sprintf("dir%d", d), syscall.S_IFDIR|0o755)
		dirs = append(dirs, dir)
		for f := range damageFiles {
			file := r.make(dir, fmt.Sprintf("file%d", f), syscall.S_IFREG|0o644)
			r.write(file, 0, pattern(5000, byte(f)))
			files = append(files, file)
		}
	}
	r.settle()
	return r, dirs, files
}

// spoil makes a change that no operation would make, and commits it.
func (r *rig) spoil(fn func(v *Volume)) {
	r.t.Helper()
	if err := r.v.change(func() error { fn(r.v); return nil }); err != nil {
		r.t.Fatal(err)
	}
	r.commit()
}

// examined are the findings in what is durable. Notes are left out.
func (r *rig) examined() []string {
	r.t.Helper()
	return findings(r.t, r.media)
}

func findings(t testing.TB, media []byte) (found []string) {
	t.Helper()
	region := pmem.NewHeap(uint64(len(media)))
	copy(region.Bytes(), media)
	err := Examine(region, testUUID, func(f Finding) {
		if !f.Note {
			found = append(found, f.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// closeDamaged ends a rig whose volume is wrong on purpose.
func (r *rig) closeDamaged() { r.v.Stop(errors.New("damaged on purpose")) }

func TestExamine_Values(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(v *Volume, dirs, files []Ino)
		want  []string // a part of each finding, in order
	}{
		{"nothing", func(*Volume, []Ino, []Ino) {}, nil},
		{"link count", func(v *Volume, _, files []Ino) {
			v.update(files[3], func(ind *layout.Inode) { ind.Nlink = 5 })
		}, []string{"has 5 links, expected 1"}},
		{"link count of a directory", func(v *Volume, dirs, _ []Ino) {
			v.update(dirs[1], func(ind *layout.Inode) { ind.Nlink = 9 })
		}, []string{"has 9 links, expected 2"}},
		{"parent", func(v *Volume, dirs, _ []Ino) {
			v.update(dirs[1], func(ind *layout.Inode) { ind.Parent = dirs[2] })
		}, []string{"with its name in inode 1, and has the parent"}},
		{"block count", func(v *Volume, _, files []Ino) {
			v.update(files[0], func(ind *layout.Inode) { ind.Blocks = 77 })
		}, []string{"counts 77 blocks, 2 are mapped"}},
		{"size of a symlink", func(v *Volume, _, files []Ino) {
			v.update(files[0], func(ind *layout.Inode) { ind.Mode = syscall.S_IFLNK | 0o777 })
		}, []string{"has a size of 5000, expected 0", "has type 010"}},
		{"unreachable", func(v *Volume, dirs, files []Ino) { v.removeName(dirs[0], "file2") },
			[]string{"has no name, 1 links, and is not to be removed"}},
		{"dangling name", func(v *Volume, dirs, _ []Ino) { v.setName(dirs[0], "nowhere", 4711, 8) }, []string{"names inode 4711, which does not exist"}},
		{"name of another type", func(v *Volume, dirs, files []Ino) { v.setName(dirs[0], "file0", files[0], 4) }, []string{"has type 04"}},
		{"name that is none", func(v *Volume, dirs, files []Ino) {
			v.setName(dirs[0], "../x", files[0], 8)
			v.update(files[0], func(ind *layout.Inode) { ind.Nlink = 2 })
		}, []string{"is no name"}},
		{"name in a file", func(v *Volume, _, files []Ino) { v.setName(files[1], "x", files[0], 8) }, []string{"stands in what is no directory"}},
		{"ring of directories", func(v *Volume, dirs, _ []Ino) {
			v.removeName(Root, "dir0")
			v.setName(dirs[0], "self", dirs[0], 4)
			v.update(dirs[0], func(ind *layout.Inode) { ind.Nlink, ind.Parent = 3, dirs[0] })
			v.update(Root, func(ind *layout.Inode) { ind.Nlink-- })
		}, []string{"its parents do not lead to the root"}},
		{"directory with two names", func(v *Volume, dirs, _ []Ino) {
			v.setName(dirs[1], "again", dirs[2], 4)
			v.update(dirs[1], func(ind *layout.Inode) { ind.Nlink++ })
		}, []string{"is a directory with 2 names"}},
		{"number of inodes", func(v *Volume, _, _ []Ino) { v.countInodes(3) }, []string{"inodes: found 168, expected 165"}},
		{"orphan without an inode", func(v *Volume, _, _ []Ino) { v.orphan(4000, 0) }, []string{"is among the orphans and does not exist"}},
		{"blocks used twice", func(v *Volume, _, files []Ino) {
			_, e, _ := v.extentAt(files[0], 0)
			v.putExtent(files[1], 0, e)
		}, []string{"in use by something else too"}},
		{"extents over one another", func(v *Volume, _, files []Ino) {
			blk, _ := v.allocData(0, 1)
			v.putExtent(files[0], 1, layout.Extent{Pblk: blk, N: 1})
			v.update(files[0], func(ind *layout.Inode) { ind.Blocks++ })
		}, []string{"begins before block 2"}},
		{"written behind the end", func(v *Volume, _, files []Ino) {
			v.update(files[0], func(ind *layout.Inode) { ind.Size = 10 })
		}, []string{"has 10 bytes, but written blocks up to 2"}},
		{"extent outside of the pool", func(v *Volume, _, files []Ino) {
			v.putExtent(files[0], 9, layout.Extent{Pblk: 1 << 40, N: 1})
		}, []string{"expected blocks"}},
		{"inode of the future", func(v *Volume, _, _ []Ino) { v.nextIno = 3; v.group.ino = true }, []string{"not below the next one, 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, dirs, files := newDamageRig(t)
			r.spoil(func(v *Volume) { c.spoil(v, dirs, files) })
			got := r.examined()
			if c.want == nil && len(got) > 0 {
				t.Errorf("found %q, expected nothing", got)
			}
			for _, want := range c.want {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("no finding has %q: %q", want, got)
				}
			}
			if r.v.Stopped() == nil && c.want != nil {
				r.closeDamaged()
			}
		})
	}
}

// nodesOf are the offsets of the nodes of the last checkpoint, by level.
func (r *rig) nodesOf() (levels [][]uint64) {
	r.t.Helper()
	s, err := readSlots(reader(r.media), testUUID, uint64(len(r.media)))
	if err != nil {
		r.t.Fatal(err)
	}
	c := tree.Config{Bytes: r.media, NodeSize: int(s.best.NodeSize), UUID: testUUID}
	err = tree.New(c, s.best.Root, s.best.RootBirth, int(s.best.Height), s.best.Epoch+1).Walk(true, func(off uint64, level int, _ uint64) error {
		for len(levels) <= level {
			levels = append(levels, nil)
		}
		levels[level] = append(levels[level], off)
		return nil
	}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return levels
}

// Each node in turn loses a byte. The finding names it, and everything that does not stand below it can still be read.
func TestExamine_Nodes(t *testing.T) {
	r, _, files := newDamageRig(t)
	levels := r.nodesOf()
	if len(levels) < 3 {
		t.Fatalf("the tree has %d levels, too few to tell anything", len(levels))
	}
	rnd := random(t)
	for level, nodes := range levels {
		for _, off := range nodes {
			at := off + rnd.Uint64N(1024)
			media := bytes.Clone(r.media)
			media[at] ^= 1 << rnd.IntN(8)
			found := findings(t, media)
			if text := strings.Join(found, "\n"); len(found) == 0 || !strings.Contains(text, fmt.Sprintf("tree node at offset %d: ", off)) {
				t.Errorf("node at %d of level %d, byte %d: found %q", off, level, at-off, found)
			}
			read := r.salvaged(media, files)
			if least := len(files) - 12; level == 0 && read < least {
				t.Errorf("leaf at %d, byte %d: %d of %d files can be read, expected %d at least", off, at-off, read, len(files), least)
			}
		}
	}
}

// salvaged counts the files that are whole in a damaged pool.
func (r *rig) salvaged(media []byte, files []Ino) (whole int) {
	r.t.Helper()
	region := pmem.NewHeap(uint64(len(media)))
	copy(region.Bytes(), media)
	if _, _, err := OpenReadOnly(region, testUUID, nil); !errors.Is(err, ErrCorrupt) {
		r.t.Fatalf("a damaged pool opens without salvage: %v", err)
	}
	heard := 0
	v, _, err := OpenReadOnly(region, testUUID, func(Finding) { heard++ })
	if err != nil || heard < 2 {
		r.t.Fatalf("salvage: %v, %d findings", err, heard)
	}
	buf := make([]byte, 8192)
	for i, ino := range files {
		n, err := v.Read(ino, 0, buf)
		if err == nil && !bytes.Equal(buf[:n], pattern(5000, byte(i%damageFiles))) {
			r.t.Fatalf("inode %d reads as something else, without an error", ino)
		}
		if err == nil {
			whole++
		}
	}
	return whole
}

func TestOpenReadOnly_ChangesNothing(t *testing.T) {
	r, dirs, files := newDamageRig(t)
	r.write(files[0], 0, pattern(100, 99))
	r.commit() // a record to be replayed
	region := pmem.NewHeap(uint64(len(r.media)))
	copy(region.Bytes(), r.media)
	v, rec, err := OpenReadOnly(region, testUUID, nil)
	if err != nil || rec.Replayed == 0 {
		t.Fatal(rec, err)
	}
	if _, err := v.Make(dirs[0], "new", Make{Mode: syscall.S_IFREG}); !errors.Is(err, ErrStopped) || !errors.Is(err, ErrReadOnly) {
		t.Errorf("make: %v", err)
	}
	if err := v.Check(func(f Finding) { t.Errorf("check: %v", f) }); err != nil {
		t.Error(err)
	}
	got := make([]byte, 100)
	if _, err := v.Read(files[0], 0, got); err != nil || !bytes.Equal(got, pattern(100, 99)) {
		t.Errorf("what the log holds is not there: %v", err)
	}
}

// owned is a region of which nothing may be stored to before it was asked for.
type owned struct {
	pmem.Region
	own []pmem.Range
}

func (o *owned) Own(r pmem.Range) error {
	o.own = append(o.own, r)
	return nil
}

// A replay in memory stores to nothing but what it had made its own before, whether the super has a snapshot of the space or not.
func TestOpenReadOnly_OwnsWhatItStoresTo(t *testing.T) {
	r, _, files := newDamageRig(t)
	r.write(files[0], 0, pattern(100, 99))
	r.commit()
	region := &owned{Region: pmem.NewHeap(uint64(len(r.media)))}
	b := region.Bytes()
	copy(b, r.media)
	for _, look := range []func() error{
		func() error { _, _, err := OpenReadOnly(region, testUUID, nil); return err },
		func() error { return Examine(region, testUUID, func(f Finding) { t.Errorf("%v", f) }) },
	} {
		region.own = nil
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if len(region.own) == 0 || bytes.Equal(b, r.media) {
			t.Fatalf("%d ranges owned, so nothing was replayed", len(region.own))
		}
		for _, g := range region.own {
			copy(b[g.Off:g.Off+g.Len], r.media[g.Off:])
		}
		if !bytes.Equal(b, r.media) {
			t.Error("bytes changed that were not owned")
		}
	}
}

// One slot less is no error: a crash leaves that. No slot is one, with nothing to check.
func TestExamine_Slots(t *testing.T) {
	r, _, _ := newDamageRig(t)
	for _, off := range SealWords() {
		media := bytes.Clone(r.media)
		media[off+100] ^= 1
		region := pmem.NewHeap(uint64(len(media)))
		copy(region.Bytes(), media)
		var notes []Finding
		if err := Examine(region, testUUID, func(f Finding) { notes = append(notes, f) }); err != nil {
			t.Fatal(err)
		}
		if len(notes) != 1 || !notes[0].Note || notes[0].Off != off || !strings.Contains(notes[0].What, "seal") {
			t.Errorf("slot at %d: %+v", off, notes)
		}
	}
	for _, off := range SealWords() {
		binary.LittleEndian.PutUint64(r.media[off:], 0)
	}
	region := pmem.NewHeap(uint64(len(r.media)))
	copy(region.Bytes(), r.media)
	if err := Examine(region, testUUID, func(Finding) {}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without a slot: %v", err)
	}
}

// An inode under a wrong key is one that no operation finds.
func TestCheck_InodeUnderAWrongKey(t *testing.T) {
	r := newRig(t, 1<<20, Params{})
	val, _ := r.v.tree.Get(inodeKey(r.file("f")))
	r.v.put(layout.MakeKey(r.v.takeIno(), layout.TypeInode, 5), bytes.Clone(val))
	r.v.countInodes(1)
	if found := firstFinding(r.v); !strings.Contains(found, "nobody looks up") {
		t.Errorf("found %q", found)
	}
	r.v.Stop(errors.New("its tree is wrong on purpose"))
}
