package volume

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/posixacl"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// small is the smallest pool there can be.
func small(t testing.TB, nodeSize uint32) *rig {
	r := newRig(t, MinPool, Params{NodeSize: nodeSize})
	r.settle()
	return r
}

// fill writes until nothing more fits and returns how much did.
func (r *rig) fill(ino Ino, piece int) (total uint64) {
	r.t.Helper()
	for {
		n := 0
		err := r.retry(func() (err error) {
			n, err = r.v.Write(ino, total, pattern(piece, byte(total)), false)
			return err
		})
		total += uint64(n)
		if errors.Is(err, ErrShort) {
			return total
		}
		if err != nil || n == 0 {
			r.t.Fatal(n, err)
		}
	}
}

func TestFullByContent(t *testing.T) {
	for _, nodeSize := range []uint32{1024, 2048, 4096} {
		for _, piece := range []int{1, 777, 4096, 100_000} {
			t.Run(fmt.Sprintf("node %d piece %d", nodeSize, piece), func(t *testing.T) {
				r := small(t, nodeSize)
				empty := r.v.StatFS()
				f := r.file("f")
				want := piece
				if piece == 1 {
					r.write(f, 0, pattern(300, 1)) // not all of the pool byte by byte
				} else if got := r.fill(f, want); got < uint64(empty.Avail*4096*3/4) {
					t.Errorf("only %d bytes fit into %+v", got, empty)
				}
				r.check()
				if _, err := r.v.FlushFile(f); err != nil {
					t.Fatal("flush of a full pool: ", err)
				}
				r.commit()
				r.crash(rand.New(rand.NewPCG(1, 2)), 0.5)
				want2 := r.content(f)
				r.write(f, 0, want2[:10]) // in place it still fits
				r.deleteAll()
				r.settle()
				if now := r.v.StatFS(); now != empty {
					t.Errorf("after everything was removed %+v, expected %+v", now, empty)
				}
			})
		}
	}
}

// deleteAll removes every file and directory below the root.
func (r *rig) deleteAll() {
	r.t.Helper()
	r.deleteBelow(Root)
	r.reclaim()
}

func (r *rig) deleteBelow(dir Ino) {
	r.t.Helper()
	for _, name := range r.names(dir) {
		a, err := r.v.Lookup(dir, name)
		if err != nil {
			r.t.Fatal(err)
		}
		remove := r.v.Unlink
		if isDir(a.Mode) {
			r.deleteBelow(a.Ino)
			remove = r.v.Rmdir
		}
		if err := r.retry(func() error { return remove(dir, name) }); err != nil {
			r.t.Fatalf("removal of %q: %v; %+v, %d nodes, log %d", name, err, r.v.StatFS(), r.v.space.NodesAvailable(), r.v.log.Free())
		}
	}
}

func TestFullByNames(t *testing.T) {
	for _, nodeSize := range []uint32{1024, 2048, 4096} {
		t.Run(fmt.Sprint(nodeSize), func(t *testing.T) {
			r := small(t, nodeSize)
			empty := r.v.StatFS()
			n := 0
			for ; ; n++ {
				err := r.retry(func() error {
					_, err := r.v.Make(Root, fmt.Sprintf("%0200d", n), Make{Mode: syscall.S_IFREG})
					return err
				})
				if errors.Is(err, ErrShort) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n < 200 {
				t.Errorf("only %d names fit", n)
			}
			r.commit()
			r.crash(rand.New(rand.NewPCG(1, 2)), 0.5)
			if got := len(r.names(Root)); got != n {
				t.Errorf("%d names, expected %d", got, n)
			}
			r.deleteAll()
			r.settle()
			if now := r.v.StatFS(); now != empty {
				t.Errorf("after everything was removed %+v, expected %+v", now, empty)
			}
		})
	}
}

// TestFullAtRandom mixes all that needs space on a pool that is always nearly full. Nothing but ErrShort and the errors
// that belong to the operation may come, and in the end everything can be removed.
func TestFullAtRandom(t *testing.T) {
	rnd := random(t)
	for range 6 {
		r := small(t, pick(rnd, []uint32{1024, 2048, 4096}))
		empty := r.v.StatFS()
		allowed := []error{nil, ErrShort, syscall.EEXIST, syscall.ENOENT, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ENOTDIR, syscall.EINVAL, syscall.ESTALE, syscall.ENODATA}
		var inos []Ino
		for i := range 1500 {
			name, other := fmt.Sprintf("%c", 'a'+rnd.IntN(20)), fmt.Sprintf("%c", 'a'+rnd.IntN(20))
			ino := Root
			if len(inos) > 0 {
				ino = pick(rnd, inos)
			}
			var err error
			what := rnd.IntN(18)
			op := func() error {
				switch what {
				case 0, 1, 2:
					var a Attr
					a, err = r.v.Make(Root, name, Make{Mode: pick(rnd, []uint32{syscall.S_IFREG, syscall.S_IFDIR})})
					if err == nil {
						inos = append(inos, a.Ino)
					}
					return err
				case 3, 4, 5:
					_, err := r.v.Write(ino, uint64(rnd.IntN(200_000)), pattern(rnd.IntN(60_000), 1), false)
					return err
				case 6:
					return second(r.v.SetAttr(ino, SetAttr{Valid: SetSize, Size: uint64(rnd.IntN(200_000))}))
				case 7:
					return r.v.Fallocate(ino, uint64(rnd.IntN(100_000)), uint64(1+rnd.IntN(100_000)))
				case 8:
					return r.v.SetXattr(ino, "user.x", pattern(rnd.IntN(65537), 1), 0)
				case 9:
					return r.v.Rename(Root, name, Root, other, 0)
				case 10:
					return r.v.Unlink(Root, name)
				case 12:
					return r.v.PunchHole(ino, uint64(rnd.IntN(100_000)), uint64(1+rnd.IntN(100_000)))
				case 13:
					return r.v.ZeroRange(ino, uint64(rnd.IntN(100_000)), uint64(1+rnd.IntN(100_000)), rnd.IntN(2) == 0)
				case 14:
					return r.v.Preallocate(ino, uint64(rnd.IntN(100_000)), uint64(1+rnd.IntN(100_000)))
				case 15:
					return r.v.Rename(Root, name, Root, other, RenameExchange)
				case 16:
					var a Attr
					if a, err = r.v.Tmpfile(Root, Make{Mode: syscall.S_IFREG}); err == nil {
						_, _ = r.v.Write(a.Ino, 0, pattern(rnd.IntN(60_000), 1), false)
						r.v.Forget(a.Ino, 1)
					}
					return err
				case 17:
					if err := r.v.SetXattr(Root, posixacl.Default, manyEntries(rnd.IntN(400)), 0); err != nil {
						return err
					}
					return second(r.v.SetAttr(ino, SetAttr{Valid: SetMode, Mode: uint32(rnd.IntN(07777))}))
				default:
					return second(r.v.FlushFile(ino))
				}
			}
			err = r.retry(op)
			ok := false
			for _, a := range allowed {
				ok = ok || errors.Is(err, a)
			}
			if !ok {
				t.Fatalf("operation %d of kind %d: %v", i, what, err)
			}
			if what == 11 && err != nil {
				t.Fatal("flush: ", err)
			}
			r.checkAside()
			if i%100 == 99 {
				r.check()
				if rnd.IntN(3) == 0 {
					r.drain()
					r.crash(rnd, 0.5)
				}
			}
		}
		for _, name := range []string{"user.x", posixacl.Default, posixacl.Access} {
			if err := r.retry(func() error { return r.v.RemoveXattr(Root, name) }); err != nil {
				want(t, "remove the root's attribute", err, syscall.ENODATA)
			}
		}
		r.deleteAll()
		r.settle()
		r.check()
		if now := r.v.StatFS(); now != empty {
			t.Fatalf("after everything was removed %+v, expected %+v", now, empty)
		}
	}
}

// manyEntries is an ACL with so many named users: from 32 on it has a block of its own.
func manyEntries(users int) []byte {
	const noID = 1<<32 - 1
	acl := posixacl.ACL{{Tag: posixacl.UserObj, Perm: 7, ID: noID}}
	for i := range users {
		acl = append(acl, posixacl.Entry{Tag: posixacl.User, Perm: 5, ID: uint32(i)})
	}
	acl = append(acl, posixacl.Entry{Tag: posixacl.GroupObj, Perm: 5, ID: noID}, posixacl.Entry{Tag: posixacl.Mask, Perm: 7, ID: noID},
		posixacl.Entry{Tag: posixacl.Other, Perm: 5, ID: noID})
	return acl.Append(nil)
}

// TestTruncateInSteps crashes at each step of a truncate of a file with very many extents.
func TestTruncateInSteps(t *testing.T) {
	const blocks = 3000
	build := func() (*rig, Ino) {
		r := newRig(t, 16<<20, Params{LogLen: 64 << 10})
		f := r.file("f")
		for b := 0; b < blocks; b += 2 { // holes between keep the extents apart
			err := r.retry(func() error {
				return second(r.v.Write(f, uint64(b)*layout.BlockSize, pattern(4096, byte(b)), false))
			})
			want(t, "write", err, nil)
		}
		r.settle()
		if n := r.extents(f); n != blocks/2 {
			t.Fatalf("%d extents", n)
		}
		return r, f
	}
	for steps := 0; ; steps++ {
		r, f := build()
		r.truncate(f, 4000)
		if _, err := r.v.CloseGroup(); err != nil {
			t.Fatal(err)
		}
		r.collect()
		if steps > len(r.jobs) {
			if steps < 3 {
				t.Errorf("all went into %d records", steps-1)
			}
			break
		}
		for range steps {
			r.step()
		}
		r.crash(rand.New(rand.NewPCG(1, uint64(steps))), 0.5)
		size := len(r.content(f))
		if steps == 0 && size != (blocks-2)*4096+4096 || steps > 0 && size != 4000 {
			t.Fatalf("after %d steps the size is %d", steps, size)
		}
		if steps > 0 { // grown again before the rest is reclaimed: nothing old may show
			last := uint64(blocks*4096 - 1)
			if steps%2 == 0 {
				r.truncate(f, last+1)
			} else {
				r.write(f, last, []byte{0})
			}
			for i, c := range r.content(f)[4000:] {
				if c != 0 {
					t.Fatalf("after %d steps byte %d is %#x", steps, i+4000, c)
				}
			}
			r.reclaim()
			if got := r.attr(f).Blocks; got > 16 {
				t.Errorf("after %d steps %d blocks", steps, got)
			}
		}
		r.settle()
	}
}

func TestHugeFileIsReclaimedInSteps(t *testing.T) {
	r := newRig(t, 16<<20, Params{})
	r.settle()
	empty := r.v.StatFS()
	f := r.file("f")
	for b := range 500 {
		r.write(f, uint64(2*b)*layout.BlockSize, pattern(10, 1))
	}
	r.commit()
	want(t, "unlink", r.v.Unlink(Root, "f"), nil)
	r.commit()
	if more, err := r.v.Reclaim(); !more || err != nil {
		t.Fatal("500 extents went in one step: ", more, err)
	}
	r.commit()
	r.crash(rand.New(rand.NewPCG(1, 1)), 0)
	if r.rec.Orphans != 1 {
		t.Errorf("%d orphans", r.rec.Orphans)
	}
	r.settle()
	if now := r.v.StatFS(); now != empty {
		t.Errorf("%+v, expected %+v", now, empty)
	}
}

// TestNoStaleBytes: what was cut off, or written and lost, is zeros when the file grows over it.
func TestNoStaleBytes(t *testing.T) {
	zeros := make([]byte, 4096)
	grow := map[string]func(r *rig, f Ino){
		"truncate":  func(r *rig, f Ino) { r.truncate(f, 9000) },
		"write":     func(r *rig, f Ino) { r.write(f, 8999, []byte{7}) },
		"near":      func(r *rig, f Ino) { r.write(f, 1000, []byte{7}) },
		"fallocate": func(r *rig, f Ino) { want(r.t, "fallocate", r.v.Fallocate(f, 0, 9000), nil) },
	}
	for name, fn := range grow {
		for _, sealed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, sealed), func(t *testing.T) {
				r := newRig(t, 8<<20, Params{})
				f := r.file("f")
				data := pattern(4096, 1)
				r.write(f, 0, data)
				r.commit()
				r.truncate(f, 100)
				if sealed {
					r.commit()
				}
				fn(r, f)
				got := r.content(f)
				if !bytes.Equal(got[:100], data[:100]) || !bytes.Equal(got[100:1000], zeros[:900]) {
					t.Error("stale bytes before the crash")
				}
				if !sealed { // the truncate was never durable: all old bytes are
					r.crash(rand.New(rand.NewPCG(1, 1)), 1)
					if !bytes.Equal(r.content(f), data) {
						t.Error("an unsealed truncate damaged sealed bytes")
					}
				}
			})
		}
	}
	t.Run("lost append", func(t *testing.T) {
		r := newRig(t, 8<<20, Params{})
		f := r.file("f")
		r.write(f, 0, pattern(100, 1))
		r.commit()
		r.write(f, 100, pattern(500, 2))
		r.crash(rand.New(rand.NewPCG(1, 1)), 1)
		if got := r.content(f); len(got) != 100 {
			t.Fatal(len(got))
		}
		r.truncate(f, 4096)
		if got := r.content(f); !bytes.Equal(got[100:], zeros[100:]) {
			t.Error("a lost append shows")
		}
	})
}

func TestFallocate(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	f := r.file("f")
	want(t, "fallocate", r.v.Fallocate(f, 1000, 300_000), nil)
	a := r.attr(f)
	if a.Size != 301_000 || a.Blocks != 8*74 || r.extents(f) > 3 {
		t.Fatalf("%+v, %d extents", a, r.extents(f))
	}
	for _, c := range r.content(f) {
		if c != 0 {
			t.Fatal("unwritten blocks do not read as zeros")
		}
	}
	before := r.extents(f)
	r.write(f, 50_000, pattern(10, 1))
	r.commit()
	r.crash(rand.New(rand.NewPCG(1, 1)), 0.5)
	got := r.content(f)
	if !bytes.Equal(got[50_000:50_010], pattern(10, 1)) || got[49_999] != 0 || got[50_010] != 0 || r.extents(f) != before+2 {
		t.Errorf("after a write into the middle: %d extents", r.extents(f))
	}
	if now := r.attr(f); now.Blocks != a.Blocks {
		t.Errorf("%d blocks, expected %d", now.Blocks, a.Blocks)
	}
	for off := 0; off < 301_000; off += 4096 { // rewritten in order: one extent again
		r.write(f, uint64(off), pattern(min(4096, 301_000-off), 2))
		if off%5 == 0 {
			r.commit()
		}
	}
	r.commit()
	if n := r.extents(f); n != before {
		t.Errorf("%d extents after all was written", n)
	}
	want(t, "too much", r.v.Fallocate(f, 0, 1<<30), ErrShort)
	r.settle()
}

func TestSequentialWritesMakeFewExtents(t *testing.T) {
	r := newRig(t, 64<<20, Params{})
	a, b := r.file("a"), r.file("b")
	for i := range 2000 { // two logs, appended to in turn
		r.write(a, uint64(i)*4096, pattern(4096, 1))
		r.write(b, uint64(i)*4096, pattern(4096, 2))
		if i%10 == 0 {
			r.commit()
		}
	}
	r.commit()
	if x, y := r.extents(a), r.extents(b); x > 40 || y > 40 {
		t.Errorf("%d and %d extents", x, y)
	}
}

// What is free does not depend on how the tree came to be as it is: after any cycle of filling and removing beside files that
// stay, it is what it was before.
func TestStatFS_CyclesLeaveNoTrace(t *testing.T) {
	rnd := random(t)
	for _, stay := range []int{0, 50, 2000} {
		r := newRig(t, 64<<20, Params{})
		for i := range stay {
			r.fileOf(fmt.Sprint("stays", i), rnd.IntN(9000))
		}
		r.settle()
		before := r.v.StatFS()
		for range 2 {
			cycle := rnd.Uint64()
			for i := range 1000 {
				r.fileOf(fmt.Sprint(cycle, i), rnd.IntN(9000)*(i%2))
				if st := r.v.StatFS(); st.Free > before.Free || st.Avail > st.Free || st.Free > st.Blocks {
					t.Fatalf("while files were made %+v, before %+v", st, before)
				}
			}
			for _, i := range rnd.Perm(1000) {
				if err := r.v.Unlink(Root, fmt.Sprint(cycle, i)); err != nil {
					t.Fatal(err)
				}
				if r.v.WantCheckpoint() {
					r.flip()
				}
			}
			r.settle()
			if now := r.v.StatFS(); now != before {
				t.Fatalf("beside %d files %+v, expected %+v", stay, now, before)
			}
		}
		r.crash(rnd, 1)
		if now := r.v.StatFS(); now != before {
			t.Errorf("after a mount %+v, expected %+v", now, before)
		}
	}
}

// fileOf makes a file of so many bytes, and commits when much is pending.
func (r *rig) fileOf(name string, size int) {
	r.t.Helper()
	if len(r.v.unflushed) > 200 {
		r.commit()
	}
	r.write(r.file(name), 0, pattern(size, 1))
	if r.v.WantCheckpoint() {
		r.flip()
	}
}
