package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

// random prints the seed that repeats a failing run.
func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

var testUUID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// rig drives a volume as a committer with one copy does. media has what is durable: what the jobs that were run named,
// and nothing else.
type rig struct {
	t      testing.TB
	region pmem.Region
	media  []byte
	v      *Volume
	rec    Recovered
	clock  int64
	term   uint64
	jobs   []*Job // handed out and not run
}

func newRig(t testing.TB, size uint64, p Params) *rig {
	t.Helper()
	return newRoomyRig(t, size, size, p)
}

// newRoomyRig has a copy of room bytes for a pool of size bytes.
func newRoomyRig(t testing.TB, size, room uint64, p Params) *rig {
	t.Helper()
	p.PoolUUID, p.HashKey = testUUID, [16]byte{42}
	r := &rig{t: t, region: pmem.NewHeap(room), clock: 1_000_000, term: 1}
	if err := Format(narrow{r.region, size}, p); err != nil {
		t.Fatal(err)
	}
	r.media = bytes.Clone(r.region.Bytes())
	r.open()
	t.Cleanup(func() {
		if !t.Failed() && r.v.Stopped() == nil {
			r.check()
		}
	})
	return r
}

// narrow is the first n bytes of a region.
type narrow struct {
	pmem.Region
	n uint64
}

func (r narrow) Bytes() []byte { return r.Region.Bytes()[:r.n] }

func (r *rig) open() {
	r.t.Helper()
	v, rec, err := Open(r.region, Options{PoolUUID: testUUID, Term: r.term, Now: r.now})
	if err != nil {
		r.t.Fatal(err)
	}
	r.v, r.rec, r.jobs = v, rec, nil
}

// now is a clock that ticks at each look.
func (r *rig) now() Time {
	r.clock++
	return Time{Sec: r.clock / 1000, Nsec: uint32(r.clock%1000) * 1000}
}

func (r *rig) collect() {
	for j := r.v.NextJob(); j != nil; j = r.v.NextJob() {
		r.jobs = append(r.jobs, j)
	}
}

// step makes the oldest job durable.
func (r *rig) step() bool {
	r.t.Helper()
	r.collect()
	if len(r.jobs) == 0 {
		return false
	}
	j := r.jobs[0]
	r.jobs = r.jobs[1:]
	r.ranges(j, len(j.Ranges))
	if err := pmem.Drain(r.region, j.Ranges, j.Seal); err != nil {
		r.t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(r.media[j.Seal.Off:], j.Seal.Val)
	r.v.Sealed(j)
	return true
}

// ranges makes the first n ranges of a job durable.
func (r *rig) ranges(j *Job, n int) {
	r.t.Helper()
	var last uint64
	for _, g := range j.Ranges[:n] {
		if g.Off < last || g.Len == 0 {
			r.t.Fatalf("ranges of job %d are not sorted, disjoint and filled: %v", j.Seq, j.Ranges)
		}
		if last = g.Off + g.Len; j.Seal.Off+8 > g.Off && j.Seal.Off < last {
			r.t.Fatalf("job %d: seal at %d lies in range %v", j.Seq, j.Seal.Off, g)
		}
		copy(r.media[g.Off:last], r.region.Bytes()[g.Off:last])
	}
}

func (r *rig) drain() {
	for r.step() {
	}
}

func (r *rig) commit() {
	r.t.Helper()
	if _, err := r.v.FlushAll(); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.v.CloseGroup(); err != nil {
		r.t.Fatal(err)
	}
	r.drain()
}

func (r *rig) flip() {
	r.t.Helper()
	r.drain()
	if ok, err := r.v.CloseEpoch(); err != nil || !ok {
		r.t.Fatal(ok, err)
	}
	r.drain()
}

// settle reclaims, commits and flips until nothing waits for anything.
func (r *rig) settle() {
	r.t.Helper()
	r.reclaim()
	r.commit()
	for range 4 {
		r.flip()
	}
}

func (r *rig) reclaim() {
	r.t.Helper()
	for {
		more, err := r.v.Reclaim()
		if errors.Is(err, ErrShort) {
			r.flip()
			r.flip()
			if more, err = r.v.Reclaim(); err != nil {
				r.t.Fatal("reclaim after two checkpoints: ", err)
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

// retry does what the caller of a volume does on ErrShort.
func (r *rig) retry(fn func() error) error {
	err := fn()
	for i := 0; i < 2 && errors.Is(err, ErrShort); i++ {
		r.reclaim()
		r.flip()
		err = fn()
	}
	return err
}

func (r *rig) check() {
	r.t.Helper()
	var found []Finding
	if err := r.v.Check(func(f Finding) { found = append(found, f) }); err != nil {
		r.t.Fatal("check: ", err)
	}
	if len(found) > 0 {
		r.t.Fatalf("check found %v", found)
	}
	r.checkSlots()
	r.checkAside()
}

// checkAside tests what makes a flush succeed whatever happens: nodes and log for all that is pending are there.
func (r *rig) checkAside() {
	r.t.Helper()
	v, sum := r.v, cost{}
	for ino, f := range v.files {
		if sum = sum.plus(f.aside); f.aside != f.cost() {
			r.t.Fatalf("inode %d: %+v is set aside, expected %+v", ino, f.aside, f.cost())
		}
	}
	if sum != v.aside {
		r.t.Fatalf("%+v is set aside, expected %+v", v.aside, sum)
	}
	// A tree that grew has a greater bound than the one that was admitted by, until the epoch ends.
	_, _, height := v.tree.Root()
	if need := v.tree.Worst(sum.edits); height <= int(v.super.Height) && v.space.NodesAvailable() < uint64(need) {
		r.t.Fatalf("%d nodes are left, a flush may need %d", v.space.NodesAvailable(), need)
	}
	if !v.logFor(0, sum.bytes, true) {
		r.t.Fatalf("%d bytes of log are left, a flush may need %d", v.log.Free(), sum.bytes)
	}
}

// checkSlots tests that the tree of each super slot that is durable is whole, on the medium and among the live bytes:
// either may be what a crash makes the volume start from.
func (r *rig) checkSlots() {
	r.t.Helper()
	for _, off := range SealWords() {
		s, err := layout.DecodeSuper(r.media[off:off+layout.BlockSize], testUUID)
		if err != nil {
			continue // a checkpoint is under way
		}
		for where, b := range map[string][]byte{"durable": r.media, "live": r.region.Bytes()} {
			c := tree.Config{Bytes: b, NodeSize: int(s.NodeSize), UUID: testUUID}
			err := tree.New(c, s.Root, s.RootBirth, int(s.Height), s.Epoch+1).Walk(true, nil, nil)
			if err != nil {
				r.t.Fatalf("%s tree of epoch %d: %v", where, s.Epoch, err)
			}
		}
	}
}

// image is what a crash may leave: the durable bytes, and each other 8-byte word that was stored since with probability
// keep.
func (r *rig) image(rnd *rand.Rand, keep float64) []byte {
	live, image := r.region.Bytes(), bytes.Clone(r.media)
	for at := 0; at < len(live); at += 4096 {
		if bytes.Equal(image[at:at+4096], live[at:at+4096]) {
			continue
		}
		for off := at; off < at+4096; off += 8 {
			if rnd.Float64() < keep {
				copy(image[off:off+8], live[off:off+8])
			}
		}
	}
	return image
}

// crash opens what a crash may leave.
func (r *rig) crash(rnd *rand.Rand, keep float64) {
	r.t.Helper()
	r.reopen(r.image(rnd, keep))
}

func (r *rig) reopen(image []byte) {
	r.t.Helper()
	r.region = pmem.NewHeap(uint64(len(image)))
	copy(r.region.Bytes(), image)
	r.media = bytes.Clone(image)
	r.term++
	r.open()
	r.check()
}

func (r *rig) make(dir Ino, name string, mode uint32) Ino {
	r.t.Helper()
	a, err := r.v.Make(dir, name, Make{Mode: mode})
	if err != nil {
		r.t.Fatalf("make %q: %v", name, err)
	}
	return a.Ino
}

func (r *rig) file(name string) Ino { r.t.Helper(); return r.make(Root, name, syscall.S_IFREG|0644) }

func (r *rig) write(ino Ino, off uint64, data []byte) {
	r.t.Helper()
	if n, err := r.v.Write(ino, off, data, false); n != len(data) || err != nil {
		r.t.Fatalf("write of %d bytes: %d, %v", len(data), n, err)
	}
}

func (r *rig) content(ino Ino) []byte {
	r.t.Helper()
	a, err := r.v.GetAttr(ino)
	if err != nil {
		r.t.Fatal(err)
	}
	b := make([]byte, a.Size)
	if n, err := r.v.Read(ino, 0, b); n != len(b) || err != nil {
		r.t.Fatal(n, err)
	}
	return b
}

func (r *rig) attr(ino Ino) Attr {
	r.t.Helper()
	a, err := r.v.GetAttr(ino)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) truncate(ino Ino, size uint64) {
	r.t.Helper()
	if _, err := r.v.SetAttr(ino, SetAttr{Valid: SetSize, Size: size}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) names(dir Ino) (names []string) {
	r.t.Helper()
	err := r.v.ReadDir(dir, cookieDotDot, func(e DirEnt) bool {
		names = append(names, e.Name)
		return true
	})
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// want fails unless err is the errno.
func want(t testing.TB, what string, err, errno error) {
	t.Helper()
	if !errors.Is(err, errno) || errno == nil && err != nil {
		t.Errorf("%s: %v, expected %v", what, err, errno)
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed | 1
	}
	return b
}

// extents counts the extents of an inode in the tree.
func (r *rig) extents(ino Ino) (n int) {
	r.v.tree.Ascend(extentKey(ino, 0), layout.MakeKey(ino, layout.TypeXattr, 0), func(layout.Key, []byte) bool {
		n++
		return true
	})
	return n
}
