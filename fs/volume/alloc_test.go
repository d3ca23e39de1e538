package volume

import (
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// fsyncOnce is the whole path of a write and an fsync with one copy.
func fsyncOnce(tb testing.TB, v *Volume, r pmem.Region, ino Ino, off uint64, data []byte) {
	if n, err := v.Write(ino, off, data, false); n != len(data) || err != nil {
		tb.Fatal(n, err)
	}
	if lsn, err := v.FlushFile(ino); lsn == 0 || err != nil {
		tb.Fatal(lsn, err)
	}
	if ok, err := v.CloseGroup(); !ok || err != nil {
		tb.Fatal(ok, err)
	}
	for j := v.NextJob(); j != nil; j = v.NextJob() {
		if err := pmem.Drain(r, j.Ranges, j.Seal); err != nil {
			tb.Fatal(err)
		}
		v.Sealed(j)
	}
	if v.WantCheckpoint() {
		if ok, err := v.CloseEpoch(); !ok || err != nil {
			tb.Fatal(ok, err)
		}
	}
}

func TestFsyncPathAllocatesNothing(t *testing.T) {
	r := newRig(t, 64<<20, Params{})
	f := r.file("f")
	r.v.Hold(f)
	data := pattern(4096, 1)
	r.write(f, 0, pattern(1<<20, 1))
	r.commit()
	i := 0
	overwrite := func() {
		fsyncOnce(t, r.v, r.region, f, uint64(i%256)*4096, data)
		i++
	}
	overwrite()
	if n := testing.AllocsPerRun(2000, overwrite); n != 0 {
		t.Errorf("overwrite and fsync: %v allocations", n)
	}
	end := uint64(1 << 20)
	appendOnce := func() {
		fsyncOnce(t, r.v, r.region, f, end, data[:64])
		end += 64
	}
	if n := testing.AllocsPerRun(2000, appendOnce); n != 0 {
		t.Errorf("append and fsync: %v allocations", n)
	}
	buf := make([]byte, 8192)
	if n := testing.AllocsPerRun(2000, func() { _, _ = r.v.Read(f, 4000, buf) }); n != 0 {
		t.Errorf("read: %v allocations", n)
	}
	if n := testing.AllocsPerRun(2000, func() { _, _ = r.v.GetAttr(f) }); n != 0 {
		t.Errorf("getattr: %v allocations", n)
	}
	if n := testing.AllocsPerRun(2000, func() { _, _ = r.v.Lookup(Root, "f") }); n != 0 {
		t.Errorf("lookup: %v allocations", n)
	}
}

func BenchmarkOverwriteFsync(b *testing.B) {
	r := newRig(b, 64<<20, Params{})
	f := r.file("f")
	r.v.Hold(f)
	data := pattern(4096, 1)
	r.write(f, 0, pattern(1<<20, 1))
	r.commit()
	b.SetBytes(4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		fsyncOnce(b, r.v, r.region, f, uint64(i%256)*4096, data)
	}
}

func BenchmarkCreateWriteUnlink(b *testing.B) {
	r := newRig(b, 64<<20, Params{})
	data := pattern(4096, 1)
	b.ReportAllocs()
	for b.Loop() {
		f := r.file("f")
		fsyncOnce(b, r.v, r.region, f, 0, data)
		if err := r.v.Unlink(Root, "f"); err != nil {
			b.Fatal(err)
		}
		if _, err := r.v.Reclaim(); err != nil {
			b.Fatal(err)
		}
	}
}
