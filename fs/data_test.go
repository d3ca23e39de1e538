package fs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// open opens a file of the mount, creating it, for reading and writing.
func (d *daemon) open(name string, flags int) int {
	d.t.Helper()
	fd, err := unix.Open(d.path(name), unix.O_RDWR|unix.O_CREAT|flags, 0644)
	if err != nil {
		d.t.Fatal(err)
	}
	d.fds[fd] = true
	return fd
}

// close closes what open returned.
func (d *daemon) close(fd int) error {
	delete(d.fds, fd)
	return unix.Close(fd)
}

func mustWrite(t *testing.T, fd int, data []byte, off int64) {
	t.Helper()
	if n, err := unix.Pwrite(fd, data, off); err != nil || n != len(data) {
		t.Fatalf("pwrite of %d bytes at %d: %d, %v", len(data), off, n, err)
	}
}

// seeded returns a random source whose seed the test prints when it fails.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

type costs map[Op]uint64

func TestRequestsAndDrains(t *testing.T) {
	page := bytes.Repeat([]byte{7}, 4096)
	aligned := alignedPage(page)
	for _, tc := range []struct {
		name, options string
		flags         int
		do            func(t *testing.T, fd int)
		want          costs
		drains        uint64
	}{
		{"write", "", 0, func(t *testing.T, fd int) { mustWrite(t, fd, page, 0) }, costs{OpWrite: 1}, 0},
		{"write+fsync", "", 0, func(t *testing.T, fd int) {
			mustWrite(t, fd, page, 0)
			must(t, unix.Fsync(fd))
		}, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"write+fdatasync", "", 0, func(t *testing.T, fd int) {
			mustWrite(t, fd, page, 0)
			must(t, unix.Fdatasync(fd))
		}, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"fsync of nothing", "", 0, func(t *testing.T, fd int) { must(t, unix.Fsync(fd)) }, costs{OpFsync: 1}, 0},
		{"O_DSYNC", "", unix.O_DSYNC, func(t *testing.T, fd int) { mustWrite(t, fd, page, 0) }, costs{OpWrite: 1}, 1},
		{"O_SYNC", "", unix.O_SYNC, func(t *testing.T, fd int) { mustWrite(t, fd, page, 0) }, costs{OpWrite: 1}, 1},
		{"O_DSYNC|O_APPEND", "", unix.O_DSYNC | unix.O_APPEND, func(t *testing.T, fd int) {
			mustWrite(t, fd, page, 0)
		}, costs{OpWrite: 1}, 1},
		{"O_DIRECT|O_DSYNC", "", unix.O_DSYNC | unix.O_DIRECT, func(t *testing.T, fd int) {
			mustWrite(t, fd, aligned, 0)
		}, costs{OpWrite: 1}, 1},
		{"O_DIRECT", "", unix.O_DIRECT, func(t *testing.T, fd int) { mustWrite(t, fd, aligned, 0) }, costs{OpWrite: 1}, 0},
		{"RWF_DSYNC", "", 0, func(t *testing.T, fd int) { writeDsync(t, fd, page) }, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"RWF_DSYNC, O_DIRECT", "", unix.O_DIRECT, func(t *testing.T, fd int) {
			writeDsync(t, fd, aligned)
		}, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"sync", "sync", 0, func(t *testing.T, fd int) { mustWrite(t, fd, page, 0) }, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"sync, O_DSYNC", "sync", unix.O_DSYNC, func(t *testing.T, fd int) {
			mustWrite(t, fd, page, 0)
		}, costs{OpWrite: 1}, 1},
		{"sync, fchmod", "sync", 0, func(t *testing.T, fd int) { must(t, unix.Fchmod(fd, 0600)) }, costs{OpSetAttr: 1}, 1},
		{"fchmod", "", 0, func(t *testing.T, fd int) { must(t, unix.Fchmod(fd, 0600)) }, costs{OpSetAttr: 1}, 0},
		{"dirsync, fchmod", "dirsync", 0, func(t *testing.T, fd int) { must(t, unix.Fchmod(fd, 0600)) }, costs{OpSetAttr: 1}, 0},
		{"msync", "", 0, func(t *testing.T, fd int) { storeAndSync(t, fd, 5) }, costs{OpWrite: 1, OpFsync: 1}, 1},
		{"msync on an O_DSYNC handle", "", unix.O_DSYNC, func(t *testing.T, fd int) {
			storeAndSync(t, fd, 5)
		}, costs{OpWrite: 1, OpFsync: 1, OpRead: 1}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := mount(t, tc.options)
			fd := d.open("file", tc.flags)
			// The first write after the kernel has read attributes asks once for security.capability.
			mustWrite(t, fd, aligned, 0)
			must(t, unix.Fsync(fd))
			got, drains := d.requests(func() { tc.do(t, fd) })
			if diff := cmp.Diff(tc.want, costs(got)); diff != "" || drains != tc.drains {
				t.Errorf("%d drains, want %d; requests: %s", drains, tc.drains, diff)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func alignedPage(page []byte) []byte {
	mem, err := unix.Mmap(-1, 0, len(page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	copy(mem, page)
	return mem
}

func writeDsync(t *testing.T, fd int, data []byte) {
	t.Helper()
	if n, err := unix.Pwritev2(fd, [][]byte{data}, 0, unix.RWF_DSYNC); err != nil || n != len(data) {
		t.Fatalf("pwritev2: %d, %v", n, err)
	}
}

// storeAndSync stores value through a shared mapping of the first page and syncs it.
func storeAndSync(t *testing.T, fd int, value byte) {
	t.Helper()
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(mem)
	mem[100] = value
	must(t, unix.Msync(mem, unix.MS_SYNC))
}

// A store through a mapping is seen by a read that goes to the server, and a direct write is seen by the mapping.
func TestMapping_AgreesWithReadAndWrite(t *testing.T) {
	for _, flags := range []int{0, unix.O_DSYNC} {
		d := mount(t, "")
		fd := d.open("file", flags)
		must(t, unix.Ftruncate(fd, 8192))
		mem, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		copy(mem[4000:], "across the page boundary "+strings.Repeat("x", 200))
		must(t, unix.Msync(mem, unix.MS_SYNC))
		direct := d.open("file", unix.O_DIRECT)
		got := alignedPage(make([]byte, 8192))
		if n, err := unix.Pread(direct, got, 0); err != nil || n != 8192 {
			t.Fatalf("direct read: %d, %v", n, err)
		}
		if !bytes.Equal(got, mem) {
			t.Error("a synced store is not in the file")
		}
		mustWrite(t, fd, []byte("written"), 4090)
		if string(mem[4090:4097]) != "written" {
			t.Errorf("flags %#x: the mapping shows %q after a write", flags, mem[4090:4097])
		}
		must(t, unix.Munmap(mem))
	}
}

// Random writes, stores through a mapping, truncations, holes, copies and reads agree with a plain slice, and SEEK_DATA never
// passes over a byte that is not zero.
func TestContentAgreesWithModel(t *testing.T) {
	d := mount(t, "")
	r := seeded(t)
	fd := d.open("file", 0)
	var model []byte
	const limit = 300 << 10
	grow := func(end int) {
		if end > len(model) {
			model = append(model, make([]byte, end-len(model))...)
		}
	}
	for range 400 {
		off, n := r.IntN(limit), 1+r.IntN(40<<10)
		switch r.IntN(9) {
		case 0, 1, 2:
			data := randomBytes(r, n)
			mustWrite(t, fd, data, int64(off))
			grow(off + n)
			copy(model[off:], data)
		case 3:
			must(t, unix.Ftruncate(fd, int64(off)))
			grow(off)
			model = model[:off:off]
		case 4:
			must(t, unix.Fsync(fd))
		case 5:
			must(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
			clear(model[min(off, len(model)):min(off+n, len(model))])
		case 6:
			mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE}[r.IntN(4)]
			must(t, unix.Fallocate(fd, mode, int64(off), int64(n)))
			if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
				grow(off + n)
			}
			if mode&unix.FALLOC_FL_ZERO_RANGE != 0 {
				clear(model[min(off, len(model)):min(off+n, len(model))])
			}
		case 7:
			storeMapped(t, fd, model, off, randomBytes(r, n))
		case 8:
			copyWithin(t, fd, &model, off, r.IntN(limit), n)
		}
		if r.IntN(10) == 0 {
			must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
		}
		compareSeek(t, fd, model)
		got, err := os.ReadFile(d.path("file"))
		must(t, err)
		if !bytes.Equal(got, model) {
			t.Fatalf("content differs: %d bytes, want %d", len(got), len(model))
		}
	}
}

// storeMapped stores data through a shared mapping, as far as the file goes, and does not sync.
func storeMapped(t *testing.T, fd int, model []byte, off int, data []byte) {
	t.Helper()
	if off >= len(model) {
		return
	}
	mem, err := unix.Mmap(fd, 0, len(model), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	copy(mem[off:], data)
	copy(model[off:], data)
	must(t, unix.Munmap(mem))
}

// copyWithin copies n bytes from one place of the file to another, if both do not overlap.
func copyWithin(t *testing.T, fd int, model *[]byte, from, to, n int) {
	t.Helper()
	n = min(n, len(*model)-from)
	if n <= 0 || from < to+n && to < from+n {
		return
	}
	in, out := int64(from), int64(to)
	for left := n; left > 0; {
		k, err := unix.CopyFileRange(fd, &in, fd, &out, left, 0)
		if err != nil || k == 0 {
			t.Fatalf("copy_file_range of %d bytes from %d to %d: %d, %v", left, in, out, k, err)
		}
		left -= k
	}
	if end := to + n; end > len(*model) {
		*model = append(*model, make([]byte, end-len(*model))...)
	}
	copy((*model)[to:to+n], (*model)[from:from+n])
}

// compareSeek walks over the data of a file and checks that all between is zeros.
func compareSeek(t *testing.T, fd int, model []byte) {
	t.Helper()
	end := int64(0)
	for {
		data, err := unix.Seek(fd, end, unix.SEEK_DATA)
		if err == unix.ENXIO {
			data = int64(len(model))
		} else {
			must(t, err)
		}
		for i, c := range model[end:data] {
			if c != 0 {
				t.Fatalf("byte %d is %#x in what SEEK_DATA calls a hole", end+int64(i), c)
			}
		}
		if data == int64(len(model)) {
			return
		}
		end, err = unix.Seek(fd, data, unix.SEEK_HOLE)
		must(t, err)
	}
}

func TestAppendByProcesses(t *testing.T) {
	const writers, count = 4, 400
	for _, flags := range []string{"", "dsync"} {
		d := mount(t, map[string]string{"": "", "dsync": "sync"}[flags])
		var running []*exec.Cmd
		for w := range writers {
			c := client("append", d.path("log"), fmt.Sprintf("w%d", w), count)
			must(t, c.Start())
			running = append(running, c)
		}
		for _, c := range running {
			must(t, c.Wait())
		}
		content, err := os.ReadFile(d.path("log"))
		must(t, err)
		if len(content) != writers*count*recordLen {
			t.Fatalf("%d bytes, want %d", len(content), writers*count*recordLen)
		}
		next := map[string]int{}
		for i := 0; i < len(content); i += recordLen {
			got := string(content[i : i+recordLen])
			id, _, _ := strings.Cut(got, ":")
			if got != record(id, next[id]) {
				t.Fatalf("record at %d is %q, want number %d of %s", i, got, next[id], id)
			}
			next[id]++
		}
	}
}

func TestSignalsDoNotInterrupt(t *testing.T) {
	d := mount(t, "")
	d.tell("slow") // so that signals come while a request is under way
	must(t, client("storm", d.path("file"), 300).Run())
}

func TestLargeRequests(t *testing.T) {
	d := mount(t, "")
	data := randomBytes(seeded(t), 5<<20+17)
	fd := d.open("file", 0)
	got, _ := d.requests(func() { mustWrite(t, fd, data, 3) })
	if got[OpWrite] > 7 {
		t.Errorf("%d WRITE for 5 MiB", got[OpWrite])
	}
	must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	back, err := os.ReadFile(d.path("file"))
	must(t, err)
	if !bytes.Equal(back[3:], data) || !bytes.Equal(back[:3], make([]byte, 3)) {
		t.Error("content differs")
	}
}

func TestSparseFiles(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	mustWrite(t, fd, []byte("end"), 10<<20)
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Size != 10<<20+3 || st.Blocks > 16 {
		t.Errorf("size %d, %d blocks of 512 bytes", st.Size, st.Blocks)
	}
	for _, tc := range []struct {
		off    int64
		whence int
		want   int64
		err    error
	}{
		{100, unix.SEEK_DATA, 10 << 20, nil},
		{100, unix.SEEK_HOLE, 100, nil},
		{10 << 20, unix.SEEK_DATA, 10 << 20, nil},
		{10 << 20, unix.SEEK_HOLE, st.Size, nil},
		{st.Size - 1, unix.SEEK_DATA, st.Size - 1, nil},
		{st.Size, unix.SEEK_DATA, 0, unix.ENXIO},
		{st.Size, unix.SEEK_HOLE, 0, unix.ENXIO},
		{-1, unix.SEEK_DATA, 0, unix.ENXIO},
	} {
		if off, err := unix.Seek(fd, tc.off, tc.whence); err != tc.err || err == nil && off != tc.want {
			t.Errorf("seek %d from %d: %d, %v, want %d, %v", tc.whence, tc.off, off, err, tc.want, tc.err)
		}
	}
	mustShell(t, 0, d.point, "cp file copy && cmp file copy && cp --sparse=always file thin && cmp file thin")
}

func TestCopyFileRange(t *testing.T) {
	d := mount(t, "")
	data := randomBytes(seeded(t), 300<<10)
	must(t, os.WriteFile(d.path("from"), data, 0444))
	from, err := os.Open(d.path("from"))
	must(t, err)
	defer from.Close()
	to := d.open("to", 0)
	var done int
	for done < len(data) {
		n, err := unix.CopyFileRange(int(from.Fd()), nil, to, nil, len(data)-done, 0)
		if err != nil || n == 0 {
			t.Fatalf("copy_file_range after %d bytes: %d, %v", done, n, err)
		}
		done += n
	}
	got, err := os.ReadFile(d.path("to"))
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Error("the copy differs")
	}
}

func TestFallocate(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	must(t, unix.Fallocate(fd, 0, 1000, 100<<10))
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Size != 1000+100<<10 || st.Blocks < 200 {
		t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
	}
	content, err := os.ReadFile(d.path("file"))
	must(t, err)
	if !bytes.Equal(content, make([]byte, st.Size)) {
		t.Error("allocated bytes are not zero")
	}
	for _, mode := range []uint32{unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE,
		unix.FALLOC_FL_UNSHARE_RANGE} {
		if err := unix.Fallocate(fd, mode, 0, 4096); err != unix.EOPNOTSUPP {
			t.Errorf("mode %#x: %v, want EOPNOTSUPP", mode, err)
		}
	}
}

func TestFallocateModes(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	model := randomBytes(seeded(t), 64<<10)
	mustWrite(t, fd, model, 0)
	for _, step := range []struct {
		what          string
		mode          uint32
		off, n        int64
		zeroes, grows bool
		blocks        int64 // of 512 bytes, afterwards
	}{
		{"punch inside", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 5000, 8192, true, false, 120},
		{"punch in a block", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 20500, 10, true, false, 120},
		{"punch blocks", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 32768, 8192, true, false, 104},
		{"zero", unix.FALLOC_FL_ZERO_RANGE, 30000, 20000, true, false, 120},
		{"keep size", unix.FALLOC_FL_KEEP_SIZE, 64 << 10, 8192, false, false, 136},
		{"zero behind the end", unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, 64 << 10, 4096, true, false, 136},
		{"zero and grow", unix.FALLOC_FL_ZERO_RANGE, 60000, 10000, true, true, 136},
		{"punch all", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 0, 1 << 20, true, false, 0},
	} {
		must(t, unix.Fallocate(fd, step.mode, step.off, step.n))
		if end := int(step.off + step.n); step.grows && end > len(model) {
			model = append(model, make([]byte, end-len(model))...)
		}
		if step.zeroes && step.off < int64(len(model)) {
			clear(model[step.off:min(step.off+step.n, int64(len(model)))])
		}
		got, err := os.ReadFile(d.path("file"))
		must(t, err)
		if !bytes.Equal(got, model) {
			t.Fatalf("%s: content differs", step.what)
		}
		if st := stat(t, d.path("file")); st.Blocks != step.blocks {
			t.Errorf("%s: %d blocks, want %d", step.what, st.Blocks, step.blocks)
		}
	}
}

// What was stored through a mapping is data, although the kernel has not written it back yet.
func TestSeek_SeesMappedStores(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	must(t, unix.Ftruncate(fd, 1<<20))
	mem, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(mem)
	mem[300000] = 1
	if off, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil || off != 299008 {
		t.Errorf("SEEK_DATA: %d, %v, want 299008", off, err)
	}
	mem[5000] = 1
	if off, err := unix.Seek(fd, 4096, unix.SEEK_HOLE); err != nil || off != 8192 {
		t.Errorf("SEEK_HOLE: %d, %v, want 8192", off, err)
	}
	if mem[300000] != 1 || mem[5000] != 1 {
		t.Error("a store is lost")
	}
}

func TestUnlinkedOpenFile(t *testing.T) {
	d := mount(t, "")
	before := inodesInUse(t, d.point)
	fd := d.open("file", 0)
	mustWrite(t, fd, []byte("content"), 0)
	must(t, os.Remove(d.path("file")))
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Nlink != 0 || st.Size != 7 {
		t.Errorf("nlink %d, size %d", st.Nlink, st.Size)
	}
	mustWrite(t, fd, []byte("more"), 7)
	must(t, unix.Fsync(fd))
	d.tell("checkpoint") // reclaims what nobody refers to
	must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	buf := make([]byte, 20)
	if n, err := unix.Pread(fd, buf, 0); err != nil || string(buf[:n]) != "contentmore" {
		t.Errorf("read %q, %v", buf[:max(n, 0)], err)
	}
	must(t, d.close(fd))
	d.waitInodes(before)
}

func TestTmpfile(t *testing.T) {
	d := mount(t, "")
	before := inodesInUse(t, d.point)
	tmp := func(flags int) int {
		fd, err := unix.Open(d.point, unix.O_TMPFILE|unix.O_RDWR|flags, 0640)
		must(t, err)
		d.fds[fd] = true
		return fd
	}
	link := func(fd int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, d.path(name), unix.AT_SYMLINK_FOLLOW)
	}
	fd := tmp(0)
	mustWrite(t, fd, []byte("content"), 0)
	must(t, unix.Fsync(fd))
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	if st.Nlink != 0 || st.Size != 7 || st.Mode != unix.S_IFREG|0640 {
		t.Errorf("nlink %d, size %d, mode %o", st.Nlink, st.Size, st.Mode)
	}
	d.tell("checkpoint") // reclaims what nobody refers to
	must(t, link(fd, "named"))
	if st := stat(t, d.path("named")); st.Nlink != 1 {
		t.Errorf("nlink %d once it is named", st.Nlink)
	}
	must(t, unix.Linkat(fd, "", unix.AT_FDCWD, d.path("second"), unix.AT_EMPTY_PATH))
	if got, err := os.ReadFile(d.path("named")); err != nil || string(got) != "content" {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, os.Remove(d.path("named")))
	must(t, os.Remove(d.path("second")))
	if err := link(fd, "again"); err != unix.ENOENT {
		t.Errorf("link of a file that lost its names: %v, want ENOENT", err)
	}
	must(t, d.close(fd))
	exclusive, lost := tmp(unix.O_EXCL), tmp(0)
	if err := link(exclusive, "exclusive"); err != unix.ENOENT {
		t.Errorf("link of a file opened with O_EXCL: %v, want ENOENT", err)
	}
	mustWrite(t, lost, make([]byte, 100000), 0)
	must(t, d.close(exclusive))
	must(t, d.close(lost))
	d.waitInodes(before)
	for flags, want := range map[int]error{unix.O_RDONLY: unix.EINVAL, unix.O_WRONLY | unix.O_CREAT: unix.EINVAL} {
		if _, err := unix.Open(d.point, unix.O_TMPFILE|flags, 0600); err != want {
			t.Errorf("O_TMPFILE with flags %#x: %v, want %v", flags, err, want)
		}
	}
}

func TestRenameOverOpenFile(t *testing.T) {
	d := mount(t, "")
	before := inodesInUse(t, d.point)
	must(t, os.WriteFile(d.path("old"), []byte("old content"), 0644))
	old, err := os.Open(d.path("old"))
	must(t, err)
	defer old.Close()
	must(t, os.WriteFile(d.path("new"), []byte("new content"), 0600))
	must(t, os.Rename(d.path("new"), d.path("old")))
	var st unix.Stat_t
	must(t, unix.Fstat(int(old.Fd()), &st))
	if st.Nlink != 0 || st.Mode&0777 != 0644 {
		t.Errorf("replaced file: nlink %d, mode %o", st.Nlink, st.Mode)
	}
	d.tell("checkpoint") // reclaims what nobody refers to
	must(t, unix.Fadvise(int(old.Fd()), 0, 0, unix.FADV_DONTNEED))
	content, err := io.ReadAll(old)
	if err != nil || string(content) != "old content" {
		t.Errorf("replaced file reads %q, %v", content, err)
	}
	if content, err := os.ReadFile(d.path("old")); err != nil || string(content) != "new content" {
		t.Errorf("new file reads %q, %v", content, err)
	}
	must(t, old.Close())
	d.waitInodes(before + 1)
}

func TestNoSpace(t *testing.T) {
	d := mountSized(t, "", 32<<20)
	fd := d.open("file", 0)
	block := make([]byte, 128<<10)
	var err error
	off := int64(0)
	for ; err == nil && off < 64<<20; off += int64(len(block)) {
		_, err = unix.Pwrite(fd, block, off)
	}
	if err != unix.ENOSPC {
		t.Fatalf("after %d bytes: %v, want ENOSPC", off, err)
	}
	// A little space is free, and a lot will be after a checkpoint: a write must take both without coming back short.
	st := stat(t, d.path("file"))
	must(t, unix.Ftruncate(fd, st.Size-100<<10))
	d.tell("checkpoint")
	d.tell("checkpoint")
	must(t, unix.Ftruncate(fd, 0))
	mustWrite(t, fd, make([]byte, 8<<20), 0)
}

func TestDescriptorErrors(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", 0)
	if _, err := unix.IoctlGetInt(fd, 0x1234); err != unix.ENOTTY {
		t.Errorf("ioctl: %v, want ENOTTY", err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 1<<62); err != unix.EFBIG {
		t.Errorf("write far behind the largest file: %v, want EFBIG", err)
	}
	if _, err := unix.Open(d.point, unix.O_WRONLY, 0); err != unix.EISDIR {
		t.Errorf("open of a directory for writing: %v, want EISDIR", err)
	}
}

func inodesInUse(t *testing.T, point string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(point, &st))
	return st.Files - st.Ffree
}
