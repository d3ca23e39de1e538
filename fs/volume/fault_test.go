package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// TestFaults takes the medium away below a mounted pool. Data that are gone are an error of that operation alone; when
// the tree is gone, changes stop and reads fail.
func TestFaults(t *testing.T) {
	const size = 4 << 20
	path := filepath.Join(t.TempDir(), "pool")
	if err := os.WriteFile(path, nil, 0600); err != nil {
		t.Fatal(err)
	}
	cut := func(n int64) {
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
	}
	cut(size)
	region, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: size}}, pmem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	if err := Format(region, Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, region: region, term: 1, media: bytes.Clone(region.Bytes())}
	r.open()
	f := r.file("f")
	r.write(f, 0, pattern(2_500_000, 1))
	r.commit()

	cut(2 << 20)
	var fault *pmem.FaultError
	buf := make([]byte, 2_500_000)
	if _, err := r.v.Read(f, 0, buf); !errors.As(err, &fault) {
		t.Error("read of lost data: ", err)
	}
	var l Loan
	if r.v.Lend(&l, f, 0, len(buf)) {
		t.Error("lost data are lent")
		l.Return()
	}
	if !errors.As(r.v.Fault(), &fault) {
		t.Error("the fault of a read is not remembered: ", r.v.Fault())
	}
	if _, err := r.v.Write(f, 2_490_000, buf[:100], false); !errors.As(err, &fault) {
		t.Error("write to lost data: ", err)
	}
	if err := r.v.Stopped(); err != nil {
		t.Error("a fault of data stopped the volume: ", err)
	}
	want(t, "read of what is left", second(r.v.Read(f, 0, buf[:4096])), nil)
	want(t, "make", second(r.v.Make(Root, "g", Make{Mode: syscall.S_IFREG})), nil)

	cut(8192)
	if _, err := r.v.Make(Root, "h", Make{Mode: syscall.S_IFREG}); !errors.Is(err, ErrStopped) || !errors.As(err, &fault) {
		t.Error("make without a tree: ", err)
	}
	if _, err := r.v.Lookup(Root, "f"); !errors.As(err, &fault) {
		t.Error("lookup without a tree: ", err)
	}
	if _, _, err := Open(region, Options{PoolUUID: testUUID, Term: 2, Now: r.now}); !errors.As(err, &fault) {
		t.Error("open without a tree: ", err)
	}
}

func TestXattrs(t *testing.T) {
	r := newRig(t, 8<<20, Params{})
	v, f := r.v, r.file("f")
	big := pattern(65536, 1)
	want(t, "set", v.SetXattr(f, "user.a", []byte("1"), 0), nil)
	want(t, "set big", v.SetXattr(f, "trusted.b", big, XattrCreate), nil)
	if got := r.attr(f).Blocks; got != 16*8 {
		t.Errorf("%d blocks", got)
	}
	long := "user." + string(bytes.Repeat([]byte("x"), 250))
	for _, c := range []struct {
		what  string
		err   error
		errno error
	}{
		{"create existing", v.SetXattr(f, "user.a", nil, XattrCreate), syscall.EEXIST},
		{"replace missing", v.SetXattr(f, "user.z", nil, XattrReplace), syscall.ENODATA},
		{"flags", v.SetXattr(f, "user.z", nil, 4), syscall.EINVAL},
		{"too big", v.SetXattr(f, "user.z", append(big, 1), 0), syscall.E2BIG},
		{"longest name", v.SetXattr(f, long, nil, 0), nil},
		{"too long a name", v.SetXattr(f, long+"x", nil, 0), syscall.ERANGE},
		{"no name", v.SetXattr(f, "", nil, 0), syscall.ERANGE},
		{"no name space", v.SetXattr(f, "nothing.a", nil, 0), syscall.EOPNOTSUPP},
		{"empty in a name space", v.SetXattr(f, "user.", nil, 0), syscall.EINVAL},
		{"no inode", v.SetXattr(99, "user.a", nil, 0), syscall.ESTALE},
		{"get missing", second(v.GetXattr(f, "user.z", nil)), syscall.ENODATA},
		{"get of no inode", second(v.GetXattr(99, "user.a", nil)), syscall.ESTALE},
		{"get into too little", second(v.GetXattr(f, "trusted.b", big[:100])), syscall.ERANGE},
		{"remove missing", v.RemoveXattr(f, "user.z"), syscall.ENODATA},
		{"list into too little", second(v.ListXattr(f, make([]byte, 3))), syscall.ERANGE},
	} {
		want(t, c.what, c.err, c.errno)
	}
	if n, err := v.GetXattr(f, "trusted.b", nil); n != 65536 || err != nil {
		t.Error("size of a value: ", n, err)
	}
	got := make([]byte, 65536)
	if _, err := v.GetXattr(f, "trusted.b", got); err != nil || !bytes.Equal(got, pattern(65536, 1)) {
		t.Error("large value differs: ", err)
	}
	want(t, "remove", v.RemoveXattr(f, "trusted.b"), nil)
	if got := r.attr(f).Blocks; got != 0 {
		t.Errorf("%d blocks after the removal", got)
	}
	n := 0
	var err error
	for ; err == nil; n++ {
		err = v.SetXattr(f, "user."+string(bytes.Repeat([]byte("y"), 240))+string(rune('0'+n%10))+string(rune('0'+n/10%10))+string(rune('0'+n/100)), nil, 0)
	}
	want(t, "more names than a list may have", err, syscall.ENOSPC)
	if size, err := v.ListXattr(f, nil); size > maxXattr || size < maxXattr-300 || err != nil {
		t.Error("list of ", size, err)
	}
}

// FuzzReplay gives Open a valid record with any body.
func FuzzReplay(f *testing.F) {
	f.Add(layout.AppendPut(nil, extentKey(5, 0), extentValue(100, 3)))
	f.Add(layout.AppendDelete(nil, inodeKey(Root)))
	f.Add(layout.AppendPatch(nil, inodeKey(Root), 126, []byte{1, 2, 3, 4}))
	f.Add(layout.AppendNextIno(layout.AppendInodes(nil, -5), 0))
	f.Add(layout.AppendPut(nil, orphanKey(7), make([]byte, 8)))
	base := pmem.NewHeap(MinPool)
	if err := Format(base, Params{PoolUUID: testUUID}); err != nil {
		f.Fatal(err)
	}
	image := bytes.Clone(base.Bytes())
	f.Fuzz(func(t *testing.T, body []byte) {
		copy(base.Bytes(), image)
		now := func() Time { return Time{Sec: 1} }
		v, _, err := Open(base, Options{PoolUUID: testUUID, Term: 1, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > v.limits.body {
			return
		}
		_, seal, _, err := v.log.Append(body, 1, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := base.Store64(seal.Off, seal.Val); err != nil {
			t.Fatal(err)
		}
		if v, _, err = Open(base, Options{PoolUUID: testUUID, Term: 2, Now: now}); err == nil {
			_ = v.Check(func(Finding) {})
			_ = v.ReadDir(Root, 0, func(DirEnt) bool { return true })
		}
	})
}
