package volume

import (
	"maps"
	"math"
	"slices"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// file is what memory knows of an inode beside the tree: content that is pending, and the last group with content of it.
// A file that has neither, and is not held, has none.
type file struct {
	ino     Ino
	ind     layout.Inode // as everyone sees it
	pending bool         // ind, or a mapping, is newer than what the tree has
	listed  bool         // in Volume.unflushed
	content bool         // more than the access time is pending
	exts    []pending    // by logical block; the tree does not have them yet
	dirty   []pmem.Range // stored and in no group yet; sorted, disjoint
	ahead   ahead
	lsn     uint64 // last group with content of this file
	aside   cost   // part of Volume.aside
}

// pending is an extent that was written and not yet logged.
type pending struct {
	lblk, pblk, n uint64
	fresh         bool   // allocated for this; else the blocks of an unwritten extent of the tree
	src           uint64 // of that: where it starts
}

// ahead is a run of blocks allocated beyond the end of a file that grows, so that appends stay in few extents.
type ahead struct{ lblk, blk, n uint64 }

// sweepMin is how many files are kept in memory before those without anything pending are dropped.
const sweepMin = 4096

// file returns the memory of an inode and makes it if there is none.
func (v *Volume) file(ino Ino) (*file, error) {
	if f := v.files[ino]; f != nil {
		return f, nil
	}
	ind, err := v.stored(ino)
	if err != nil {
		return nil, err
	}
	f := &file{ino: ino, ind: ind}
	v.files[ino] = f
	return f, nil
}

// cost is what flushing f takes.
func (f *file) cost() cost {
	if !f.pending {
		return cost{}
	}
	return cost{1 + extentEdits*len(f.exts), inodeBytes + extentBytes*len(f.exts)}
}

// changed notes that something of f is pending, and sets aside what flushing it takes.
func (v *Volume) changed(f *file) {
	f.pending = true
	if !f.listed {
		f.listed = true
		v.unflushed = append(v.unflushed, f)
	}
	v.setAside(f)
}

// setAside brings what is set aside for f in line with what is pending of it.
func (v *Volume) setAside(f *file) {
	c := f.cost()
	v.aside = v.aside.minus(f.aside).plus(c)
	f.aside = c
}

// addDirty notes that the bytes of r were stored. It must be called after the store: whoever pushes a range reads it
// then.
func (f *file) addDirty(r pmem.Range) {
	end := r.Off + r.Len
	lo, _ := slices.BinarySearchFunc(f.dirty, r.Off, func(d pmem.Range, off uint64) int {
		if d.Off+d.Len < off {
			return -1
		}
		return 1
	})
	hi := lo
	for hi < len(f.dirty) && f.dirty[hi].Off <= end {
		hi++
	}
	if lo < hi {
		r.Off = min(r.Off, f.dirty[lo].Off)
		r.Len = max(end, f.dirty[hi-1].Off+f.dirty[hi-1].Len) - r.Off
	}
	f.dirty = slices.Replace(f.dirty, lo, hi, r)
}

// addPending adds an extent where none is pending, and joins it with its neighbours.
func (f *file) addPending(p pending) {
	i := f.search(p.lblk)
	if i > 0 && f.exts[i-1].joins(p) {
		i--
		f.exts[i].n += p.n
	} else {
		f.exts = slices.Insert(f.exts, i, p)
	}
	if i+1 < len(f.exts) && f.exts[i].joins(f.exts[i+1]) {
		f.exts[i].n += f.exts[i+1].n
		f.exts = slices.Delete(f.exts, i+1, i+2)
	}
}

// joins tells whether q continues p, and both replace the same kind of thing: an extent pending touches at most one
// extent of the tree beside its neighbours.
func (p pending) joins(q pending) bool {
	return p.lblk+p.n == q.lblk && p.pblk+p.n == q.pblk && p.fresh == q.fresh && p.src == q.src && p.n+q.n <= math.MaxInt32
}

// search is the first pending extent behind block b: the one before it may hold b.
func (f *file) search(b uint64) int {
	lo, hi := 0, len(f.exts)
	for lo < hi {
		if mid := (lo + hi) / 2; f.exts[mid].lblk <= b {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Hold says that the kernel refers to the inode once more. It waits for no other call.
func (v *Volume) Hold(ino Ino) { v.holds.add(ino) }

// Forget takes back n of the holds. An inode without a name and without holds is left to Reclaim.
//
// The reference goes before the look at unnamed, and dropLink looks at the references after it has set unnamed: whichever comes last
// queues the orphan. Both may, which Reclaim bears.
func (v *Volume) Forget(ino Ino, n uint64) {
	if !v.holds.drop(ino, n) || !v.remembered(ino) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holds.count(ino) > 0 {
		return
	}
	if f := v.files[ino]; f != nil {
		v.releaseAhead(f)
		v.forgetClean(f)
	}
	if _, yes := v.unnamed[ino]; yes {
		v.orphans = append(v.orphans, ino)
	}
}

// remembered tells whether memory knows anything of ino but its holds. It is false for all that was only looked at.
func (v *Volume) remembered(ino Ino) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, orphan := v.unnamed[ino]
	return orphan || v.files[ino] != nil
}

// forgetClean drops a file that says nothing which the tree does not.
func (v *Volume) forgetClean(f *file) {
	if !f.pending && len(f.dirty) == 0 && f.lsn <= v.sealed {
		v.releaseAhead(f)
		delete(v.files, f.ino)
	}
}

// sweep drops clean files when there are many. The bound doubles with what stays, so a sweep costs little per file. A map
// never shrinks, so what stays moves to a new one.
func (v *Volume) sweep() {
	if len(v.files) < v.sweepAt {
		return
	}
	for _, f := range v.files {
		v.forgetClean(f)
	}
	kept := make(map[Ino]*file, len(v.files))
	maps.Copy(kept, v.files)
	v.files = kept
	v.sweepAt = max(sweepMin, 2*len(v.files))
}

// Dirty tells whether content of the inode is pending, or in a group that is not sealed.
func (v *Volume) Dirty(ino Ino) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	f := v.files[ino]
	return f != nil && (f.content || len(f.dirty) > 0 || f.lsn > v.sealed)
}

// discard drops what is pending of an inode that is going to be removed. Blocks that no group ever named are free at
// once.
func (v *Volume) discard(ino Ino) {
	f := v.files[ino]
	if f == nil {
		return
	}
	for _, p := range f.exts {
		if p.fresh {
			v.freeUnlogged(p.pblk, p.n)
		}
	}
	for _, r := range f.dirty {
		v.space.stale.add(r.Off, r.Len)
	}
	v.releaseAhead(f)
	f.pending = false
	v.setAside(f)
	delete(v.files, ino)
}

// setAhead keeps a run for the next append to f. When all files together have very much of that, the others lose theirs.
func (v *Volume) setAhead(f *file, a ahead) {
	if v.ahead+a.n > v.space.Total()/64 {
		v.releaseAll()
	}
	f.ahead = a
	v.ahead += a.n
}

func (v *Volume) releaseAhead(f *file) {
	if f.ahead.n > 0 {
		v.space.FreeData(f.ahead.blk, f.ahead.n)
		v.ahead -= f.ahead.n
	}
	f.ahead = ahead{}
}

func (v *Volume) releaseAll() {
	if v.ahead == 0 {
		return
	}
	for _, f := range v.files {
		v.releaseAhead(f)
	}
}
