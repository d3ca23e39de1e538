package volume

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Until its group is sealed, a punched or zeroed range must not have hurt what is durable, its edges included, even when the
// hole is written to again.
func TestPunchAndZero_LeaveDurableBytesAlone(t *testing.T) {
	for what, do := range map[string]func(v *Volume, ino Ino) error{
		"punch":     func(v *Volume, ino Ino) error { return v.PunchHole(ino, 1000, 30000) },
		"zero":      func(v *Volume, ino Ino) error { return v.ZeroRange(ino, 1000, 30000, true) },
		"one block": func(v *Volume, ino Ino) error { return v.PunchHole(ino, 5000, 100) },
	} {
		rnd := random(t)
		r := newRig(t, 8<<20, Params{})
		ino := r.file("f")
		data := pattern(40000, 7)
		r.write(ino, 0, data)
		r.commit()
		want(t, what, do(r.v, ino), nil)
		r.write(ino, 8192, pattern(4096, 8))
		if _, err := r.v.FlushFile(ino); err != nil {
			t.Fatal(err)
		}
		if _, err := r.v.CloseGroup(); err != nil {
			t.Fatal(err)
		}
		r.crash(rnd, 1) // all that was stored is there but the seal
		got := r.content(ino)
		if what == "one block" {
			copy(got[8192:], data[8192:12288]) // an overwrite in place
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: durable content was hurt", what)
		}
	}
}

// Space comes back when the group that freed it is sealed, and the counts of blocks are exact on the way.
func TestFallocateCountsBlocks(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	ino := r.file("f")
	r.settle()
	free := r.v.StatFS().Free
	blocks := func(want uint64) {
		t.Helper()
		if got := r.attr(ino).Blocks / 8; got != want {
			t.Errorf("%d blocks, expected %d", got, want)
		}
		r.settle()
		if got := free - r.v.StatFS().Free; got != want {
			t.Errorf("%d blocks in use, expected %d", got, want)
		}
	}
	want(t, "behind the end", r.v.Preallocate(ino, 0, 100<<12), nil)
	blocks(100)
	if a := r.attr(ino); a.Size != 0 {
		t.Error("size", a.Size)
	}
	r.write(ino, 0, pattern(10<<12, 1))
	blocks(100)
	for i := range uint64(5) {
		want(t, "punch", r.v.PunchHole(ino, i<<13, 1<<12), nil)
	}
	blocks(95)
	want(t, "zero", r.v.ZeroRange(ino, 0, 100<<12, true), nil)
	blocks(100)
	if data, end, err := r.v.Span(ino, 0); data || end != 10<<12 || err != nil {
		t.Error("a zeroed range is data:", data, end, err)
	}
	_, err := r.v.SetAttr(ino, SetAttr{Valid: SetSize, Size: 10 << 12})
	want(t, "truncate to the same size", err, nil)
	blocks(10)
	r.reopen(bytes.Clone(r.media))
	blocks(10)
}

// A hole in a file of very many extents takes several records, and each of them leaves a sound volume.
func TestPunchManyExtents(t *testing.T) {
	r := newRig(t, 16<<20, Params{NodeSize: 1024})
	ino := r.file("f")
	for i := range uint64(600) {
		r.write(ino, i<<13, []byte{1})
	}
	r.commit()
	want(t, "punch", r.v.PunchHole(ino, 4096, 599<<13), nil)
	if got := r.attr(ino).Blocks; got != 8 {
		t.Errorf("%d blocks of 512 bytes, expected 8", got)
	}
	r.check()
	r.crash(rand.New(rand.NewPCG(1, 1)), 0)
	r.check()
}
