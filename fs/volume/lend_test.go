package volume

import (
	"bytes"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Random files, with holes, unwritten blocks, and content that no group has yet: a loan holds what Read finds, or is refused.
func TestLend_AgreesWithRead(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 16<<20, Params{})
	f := r.file("f")
	var l Loan
	lent := 0
	for round := range 400 {
		off, n := rnd.Uint64N(1<<20), 1+rnd.IntN(100_000)
		switch rnd.IntN(5) {
		case 0, 1:
			r.write(f, off, pattern(n, byte(round)))
		case 2:
			want(t, "allocate", r.v.Preallocate(f, off, uint64(n)), nil)
		case 3:
			want(t, "punch", r.v.PunchHole(f, off, uint64(n)), nil)
		case 4:
			r.commit()
		}
		off, n = rnd.Uint64N(1<<20), 1+rnd.IntN(1<<20)
		buf := make([]byte, n)
		got, err := r.v.Read(f, off, buf)
		want(t, "read", err, nil)
		if !r.v.Lend(&l, f, off, n) {
			if got > 0 && r.extents(f) < maxSlices/2 && n < 512<<10 {
				t.Fatalf("round %d: %d bytes at %d are not lent", round, n, off)
			}
			continue
		}
		lent++
		if all := bytes.Join(l.Slices, nil); !bytes.Equal(all, buf[:got]) || l.Size != got {
			t.Fatalf("round %d: %d bytes at %d: %d lent, %d read, or they differ", round, n, off, l.Size, got)
		}
		l.Return()
	}
	if lent < 50 {
		t.Errorf("only %d of 400 reads could be lent", lent)
	}
}

// Nothing changes as long as a loan is out, and everything goes on afterwards.
func TestLend_HoldsChangesBack(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	f, g := r.file("f"), r.file("g")
	r.write(f, 0, pattern(100_000, 1))
	var l Loan
	if !r.v.Lend(&l, f, 0, 100_000) {
		t.Fatal("not lent")
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.v.Write(g, 0, []byte("other"), false)
		done <- err
	}()
	select {
	case <-done:
		t.Error("a write went on under a loan")
	case <-time.After(20 * time.Millisecond):
	}
	l.Return()
	select {
	case err := <-done:
		want(t, "write after the loan", err, nil)
	case <-time.After(10 * time.Second):
		t.Fatal("the write does not go on")
	}
	if got := r.attr(f); !after(layout.Time(got.Atime), layout.Time(got.Mtime)) {
		t.Error("a loan does not count as access")
	}
}

func TestLend_Refuses(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	f, dir := r.file("f"), r.make(Root, "d", 0o40755)
	r.write(f, 0, pattern(10_000, 1))
	many := r.file("many")
	for i := range uint64(2 * maxSlices) {
		r.write(many, i*8192, []byte{1})
	}
	var l Loan
	for _, tc := range []struct {
		what string
		ino  Ino
		off  uint64
		n    int
	}{
		{"the end", f, 10_000, 1}, {"behind the end", f, 1 << 60, 1}, {"no bytes", f, 0, 0}, {"a directory", dir, 0, 1},
		{"no inode", 999, 0, 1}, {"many pieces", many, 0, 1 << 20},
	} {
		if r.v.Lend(&l, tc.ino, tc.off, tc.n) {
			t.Errorf("%s is lent", tc.what)
			l.Return()
		}
	}
	want(t, "write after all that", second(r.v.Write(f, 0, []byte("x"), false)), nil)
}

func TestLend_AllocatesNothing(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	f := r.file("f")
	r.write(f, 0, pattern(1<<20, 1))
	r.commit()
	var l Loan
	if n := testing.AllocsPerRun(100, func() {
		if r.v.Lend(&l, f, 0, 1<<20) {
			l.Return()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
