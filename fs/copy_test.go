package fs

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// copyRange copies n bytes with copy_file_range(2) and returns how many calls that took.
func copyRange(t *testing.T, from, to int, in, out int64, n int) (calls int) {
	t.Helper()
	for n > 0 {
		k, err := unix.CopyFileRange(from, &in, to, &out, n, 0)
		if err != nil || k <= 0 {
			t.Fatalf("copy_file_range with %d bytes left: %d, %v", n, k, err)
		}
		n -= k
		calls++
	}
	return calls
}

// A copy does not travel through the kernel, and mapping, page cache and server agree afterwards.
func TestCopyFileRange_InTheServer(t *testing.T) {
	d := mount(t, "")
	r := seeded(t)
	from, to := d.open("from", 0), d.open("to", 0)
	const size = 3<<20 + 1000
	source, want := randomBytes(r, size), randomBytes(r, size+10_000)
	mustWrite(t, from, source, 0)
	mustWrite(t, to, want, 0)
	in, err := unix.Mmap(from, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(in)
	out, err := unix.Mmap(to, 0, len(want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(out)
	in[5000], source[5000] = 1, 1              // dirty, and to be copied
	out[5001], out[9000], want[9000] = 1, 2, 2 // dirty: one is to be replaced, the other is not
	const at, n = 4096, 2<<20 + 4096
	copy(want[3*at:], source[at:at+n])
	want[5001] = 1
	got, _ := d.requests(func() { copyRange(t, from, to, at, 3*at, n) })
	if got[OpCopyRange] != 1 || got[OpRead] != 0 {
		t.Errorf("requests: %v, want one COPY_FILE_RANGE and no READ", got)
	}
	compare := func(what string) {
		t.Helper()
		if !bytes.Equal(out, want) {
			t.Errorf("%s: the mapping differs", what)
		}
		if got, err := os.ReadFile(d.path("to")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the file differs, %v", what, err)
		}
	}
	compare("whole pages")
	copyRange(t, from, to, 10, 100, 50_000) // left to the kernel
	copy(want[100:], source[10:50_010])
	compare("no whole pages")
	copyRange(t, from, to, 0, 8192, 10_000) // in part
	copy(want[8192:], source[:10_000])
	compare("a part of a page at the end")
	must(t, unix.Ftruncate(to, 0))
	must(t, unix.Ftruncate(to, int64(len(want))))
	clear(want)
	copyRange(t, from, to, 0, 1<<20, size)
	copy(want[1<<20:], source)
	if st := stat(t, d.path("to")); st.Size != 1<<20+size {
		t.Errorf("size %d, want %d", st.Size, 1<<20+size)
	}
	if got, err := os.ReadFile(d.path("to")); err != nil || !bytes.Equal(got[1<<20:], source) {
		t.Errorf("beyond the end: the file differs, %v", err)
	}
}

// The kernel drops whole pages of the destination, so parts of pages that hold other bytes are refused.
func TestCopyFileRange_OnlyWholePages(t *testing.T) {
	s, _, to := newFile(t)
	var created fuse.CreateOut
	in := fuse.CreateIn{InHeader: fuse.InHeader{NodeId: volume.Root, Opcode: uint32(OpCreate)}, Mode: 0644}
	if st := s.Create(nil, &in, "from", &created); !st.Ok() {
		t.Fatal(st)
	}
	const size = 40_000
	for _, ino := range []volume.Ino{created.NodeId, to} {
		if _, err := s.vol.Write(ino, 0, make([]byte, size), false); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		in, out, n uint64
		want       uint32
		status     fuse.Status
	}{
		{0, 0, 4096, 4096, fuse.OK},
		{17, 4096, 8192, 8192, fuse.OK},
		{0, 0, 8000, 4096, fuse.OK},
		{0, 0, 4095, 0, eopnotsupp},
		{0, 512, 8192, 0, eopnotsupp},
		{0, 36864, size - 36864 - 1, 0, eopnotsupp},
		{0, 36864, size - 36864, size - 36864, fuse.OK},
		{100, 36864, size - 100, size - 100, fuse.OK},
		{size - 10, 1 << 30, 4096, 10, fuse.OK},
		{size, 1 << 30, 4096, 0, fuse.OK},
		{0, volume.MaxSize, 4096, 0, fuse.Status(syscall.EFBIG)},
		{0, 1<<64 - 4096, 8192, 0, fuse.Status(syscall.EFBIG)},
		{1<<64 - 4096, 0, 8192, 0, fuse.OK},
	} {
		if _, err := s.vol.SetAttr(to, volume.SetAttr{Valid: volume.SetSize, Size: size}); err != nil {
			t.Fatal(err)
		}
		in := fuse.CopyFileRangeIn{InHeader: fuse.InHeader{NodeId: created.NodeId, Opcode: uint32(OpCopyRange)}, OffIn: tc.in,
			NodeIdOut: to, OffOut: tc.out, Len: tc.n}
		if n, st := s.CopyFileRange(nil, &in); n != tc.want || st != tc.status {
			t.Errorf("%d bytes from %d to %d: %d, %v, want %d, %v", tc.n, tc.in, tc.out, n, st, tc.want, tc.status)
		}
	}
}

// The copy of an unprivileged user clears what could lend rights.
func TestCopyFileRange_ClearsPrivileges(t *testing.T) {
	d := mount(t, "")
	mustShell(t, 0, d.point, "head -c 100000 /dev/urandom > from; chmod 644 from; for f in root nobody; do cp from $f; chmod 6777 $f; done")
	caps := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_bind_service+ep, version 2
	must(t, unix.Setxattr(d.path("nobody"), "security.capability", caps, 0))
	got, _ := d.requests(func() {
		must(t, client("copy", d.path("from"), d.path("root"), 0).Run())
		must(t, client("copy", d.path("from"), d.path("nobody"), nobody).Run())
	})
	if got[OpCopyRange] == 0 {
		t.Errorf("requests: %v, want COPY_FILE_RANGE", got)
	}
	if mode := stat(t, d.path("root")).Mode & 07777; mode != 06777 {
		t.Errorf("after a copy by root the mode is %o", mode)
	}
	if mode := stat(t, d.path("nobody")).Mode & 07777; mode != 0777 {
		t.Errorf("after a copy by another user the mode is %o", mode)
	}
	if n, err := unix.Getxattr(d.path("nobody"), "security.capability", nil); err != unix.ENODATA {
		t.Errorf("the capability stays: %d bytes, %v", n, err)
	}
	mustShell(t, 0, d.point, "cmp from root && cmp from nobody")
}

// A copy through a descriptor for synchronous writes, or on a mount with sync, is durable when it returns.
func TestCopyFileRange_Durable(t *testing.T) {
	for _, tc := range []struct {
		options string
		flags   int
		drains  uint64
	}{{"", 0, 0}, {"", unix.O_DSYNC, 1}, {"", unix.O_SYNC, 1}, {"sync", 0, 1}} {
		d := mount(t, tc.options)
		from, to := d.open("from", 0), d.open("to", tc.flags)
		mustWrite(t, from, make([]byte, 8192), 0)
		must(t, unix.Fsync(from))
		_, drains := d.requests(func() { copyRange(t, from, to, 0, 0, 8192) })
		if drains != tc.drains {
			t.Errorf("options %q, flags %#x: %d drains, want %d", tc.options, tc.flags, drains, tc.drains)
		}
	}
}

// A full pool ends a copy with what fits, then with ENOSPC.
func TestCopyFileRange_NoSpace(t *testing.T) {
	d := mountSized(t, "", 32<<20)
	from, to := d.open("from", 0), d.open("to", 0)
	data := randomBytes(seeded(t), 8<<20)
	mustWrite(t, from, data, 0)
	var done int64
	for {
		in := done % int64(len(data))
		n, err := unix.CopyFileRange(from, &in, to, &done, len(data)-int(in), 0)
		if err == unix.ENOSPC {
			break
		}
		must(t, err)
		if n == 0 || done > 32<<20 {
			t.Fatalf("%d bytes fit into the pool", done)
		}
	}
	got, err := os.ReadFile(d.path("to"))
	must(t, err)
	if done < 8<<20 || int64(len(got)) != done {
		t.Errorf("%d bytes copied, %d in the file", done, len(got))
	}
	for i := range got {
		if got[i] != data[i%len(data)] {
			t.Fatalf("byte %d differs", i)
		}
	}
}
