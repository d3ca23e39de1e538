package volume

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// forRepair opens what is durable, as a repair does.
func forRepair(t testing.TB, media []byte) *rig {
	t.Helper()
	r := &rig{t: t, region: pmem.NewHeap(uint64(len(media))), media: bytes.Clone(media), clock: 2_000_000, term: 9}
	copy(r.region.Bytes(), media)
	v, rec, err := Open(r.region, Options{PoolUUID: testUUID, Term: r.term, Now: r.now, ForCheck: true})
	if err != nil {
		t.Fatal(err)
	}
	r.v, r.rec = v, rec
	return r
}

// repair repairs in memory and returns what it said and what it refused.
func (r *rig) repair() (said, refused []string) {
	r.t.Helper()
	err := r.v.Repair(func(f Finding, action string) { said = append(said, f.String()+": "+action) },
		func(f Finding) { refused = append(refused, f.String()) })
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.v.CloseEpoch(); err != nil {
		r.t.Fatal(err)
	}
	return said, refused
}

// Every repairable error at once. A crash after any job leaves a pool that opens, and that a second repair finishes.
func TestRepair(t *testing.T) {
	r, dirs, files := newDamageRig(t)
	r.spoil(func(v *Volume) {
		v.update(files[3], func(ind *layout.Inode) { ind.Nlink = 5 })
		v.update(files[4], func(ind *layout.Inode) { ind.Nlink = 0 }) // would be reclaimed if it were an orphan
		v.orphan(files[4], 0)
		v.update(files[5], func(ind *layout.Inode) { ind.Blocks = 77 })
		v.update(dirs[1], func(ind *layout.Inode) { ind.Nlink = 9 })
		v.update(dirs[2], func(ind *layout.Inode) { ind.Parent = dirs[0] })
		v.countInodes(-3)
		v.orphan(4000, 0)
		v.removeName(dirs[0], "file2")
		v.removeName(Root, "dir3") // a directory with all below it
		v.update(Root, func(ind *layout.Inode) { ind.Nlink-- })
	})
	r.closeDamaged()
	before := findings(t, r.media)
	repaired := forRepair(t, r.media)
	said, refused := repaired.repair()
	if len(refused) > 0 || len(said) < len(before) {
		t.Errorf("found %q\nsaid %q\nrefused %q", before, said, refused)
	}
	for jobs := 0; ; jobs++ {
		again := forRepair(t, repaired.media)
		again.repair()
		again.drain()
		if left := findings(t, again.media); len(left) > 0 {
			t.Fatalf("after %d jobs and a second repair: %q", jobs, left)
		}
		again.repairedTree(files)
		if !repaired.step() {
			break
		}
	}
	if left := findings(t, repaired.media); len(left) > 0 {
		t.Fatalf("left: %q", left)
	}
}

// repairedTree tests that all content is there, and what was without a name in lost+found.
func (r *rig) repairedTree(files []Ino) {
	r.t.Helper()
	for i, ino := range files {
		if !bytes.Equal(r.content(ino), pattern(5000, byte(i%damageFiles))) {
			r.t.Fatalf("inode %d has another content", ino)
		}
	}
	a, err := r.v.Lookup(Root, LostFound)
	if err != nil {
		r.t.Fatal(err)
	}
	if names := r.names(a.Ino); len(names) != 2 {
		r.t.Fatalf("lost+found has %q", names)
	}
}

// What cannot be proven stays as it is.
func TestRepair_Refuses(t *testing.T) {
	r, dirs, files := newDamageRig(t)
	r.spoil(func(v *Volume) {
		v.setName(dirs[0], "nowhere", 4711, 8)
		v.update(files[0], func(ind *layout.Inode) { ind.Mode = syscall.S_IFREG | 0o4755 })
		v.setName(dirs[1], "file0", files[damageFiles], 4)
	})
	r.closeDamaged()
	before := findings(t, r.media)
	repaired := forRepair(t, r.media)
	said, refused := repaired.repair()
	repaired.drain()
	if len(said) > 0 || len(refused) != len(before) || !strings.Contains(strings.Join(refused, "\n"), "names inode 4711") {
		t.Errorf("found %q\nsaid %q\nrefused %q", before, said, refused)
	}
	if after := findings(t, repaired.media); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("before %q\nafter %q", before, after)
	}
}

// Every node of the tree, one leaf with its parent, and all at once come back from another copy, byte by byte.
func TestRefetchNodes(t *testing.T) {
	r, _, _ := newDamageRig(t)
	levels := r.nodesOf()
	var sets [][]uint64
	var all []uint64
	for _, nodes := range levels {
		for _, off := range nodes {
			sets = append(sets, []uint64{off})
			all = append(all, off)
		}
	}
	sets = append(sets, []uint64{levels[0][0], levels[1][0], levels[2][0]}, all)
	rnd := random(t)
	for _, nodes := range sets {
		region := pmem.NewHeap(uint64(len(r.media)))
		copy(region.Bytes(), r.media)
		for _, off := range nodes {
			region.Bytes()[off+rnd.Uint64N(1024)] ^= 1 << rnd.IntN(8)
		}
		lacks := 0
		sources := func() ([]Source, error) {
			broken := Source{Name: "broken", ReadAt: func(uint64, []byte) error { return errors.New("unreachable") }, Lacks: func(error) { lacks++ }}
			other := Source{Name: "of another pool", ReadAt: reader(make([]byte, len(r.media)))}
			return []Source{broken, other, {Name: "copy", ReadAt: reader(r.media), Lacks: func(err error) { t.Errorf("the copy lacks a node: %v", err) }}}, nil
		}
		said := 0
		err := RefetchNodes(region, testUUID, sources, func(Finding, string) { said++ }, func(f Finding) { t.Errorf("refused: %v", f) })
		if err != nil || said != len(nodes) || lacks != len(nodes) {
			t.Errorf("%d nodes: %v, %d stored, %d lacking in the broken source", len(nodes), err, said, lacks)
		}
		if !bytes.Equal(region.Bytes(), r.media) {
			t.Errorf("%d nodes: the bytes are not those of the copy", len(nodes))
		}
	}
}

// A copy that has the same damage, or none at all, leaves the node as it is.
func TestRefetchNodes_NoSource(t *testing.T) {
	r, _, _ := newDamageRig(t)
	leaf := r.nodesOf()[0][0]
	r.media[leaf+200] ^= 1
	for _, sources := range [][]Source{nil, {{Name: "same damage", ReadAt: reader(r.media)}}} {
		region := pmem.NewHeap(uint64(len(r.media)))
		copy(region.Bytes(), r.media)
		var refused []Finding
		err := RefetchNodes(region, testUUID, func() ([]Source, error) { return sources, nil },
			func(f Finding, _ string) { t.Errorf("stored: %v", f) }, func(f Finding) { refused = append(refused, f) })
		if err != nil || len(refused) != 1 || refused[0].Off != leaf || !bytes.Equal(region.Bytes(), r.media) {
			t.Errorf("%v, refused %v", err, refused)
		}
	}
	r.media[leaf+200] ^= 1
}
