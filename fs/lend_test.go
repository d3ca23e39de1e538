package fs

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Large reads are right whatever lies in the file, by O_DIRECT and through the page cache.
func TestLargeReads(t *testing.T) {
	d := mount(t, "")
	fd := d.open("file", unix.O_DIRECT)
	data := alignedPage(randomBytes(seeded(t), 4<<20))
	mustWrite(t, fd, data, 0)
	must(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 300_000, 500_000))
	clear(data[300_000:800_000])
	must(t, unix.Ftruncate(fd, 4<<20-100))
	want := data[:4<<20-100]
	got := alignedPage(make([]byte, 4<<20))
	if n, err := unix.Pread(fd, got, 0); err != nil || !bytes.Equal(got[:n], want) {
		t.Errorf("O_DIRECT: %d bytes, %v, or they differ", n, err)
	}
	if got, err := os.ReadFile(d.path("file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("through the page cache: %d bytes, %v, or they differ", len(got), err)
	}
}

// While a file is overwritten, cut and filled again beside another one that takes its blocks, large reads see this file's bytes
// alone, and each write as a whole.
func TestLargeReads_WhileBlocksAreReused(t *testing.T) {
	d := mount(t, "")
	const size = 1 << 20
	fill := func(c byte) []byte { return alignedPage(bytes.Repeat([]byte{c}, size)) }
	mine, theirs := d.open("mine", unix.O_DIRECT), d.open("theirs", unix.O_DIRECT)
	mustWrite(t, mine, fill('a'), 0)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		steps := []func() error{
			func() error { return second(unix.Pwrite(mine, fill('b'), 0)) },
			func() error { return unix.Ftruncate(mine, 0) },
			func() error { return second(unix.Pwrite(theirs, fill('x'), 0)) },
			func() error { return second(unix.Pwrite(mine, fill('a'), 0)) },
			func() error { return unix.Fsync(mine) },
			func() error { return unix.Ftruncate(theirs, 0) },
		}
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := steps[i%len(steps)](); err != nil {
				stopped <- err
				return
			}
		}
	}()
	reader := d.open("mine", unix.O_DSYNC) // never through the page cache, as the kernel goes on with O_DIRECT when a read came short
	buf := fill(0)
	whole := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		n, err := unix.Pread(reader, buf, 0)
		must(t, err)
		if n == 0 {
			continue
		}
		if c := buf[0]; n != size || c != 'a' && c != 'b' || !bytes.Equal(buf[:n], bytes.Repeat([]byte{c}, n)) {
			t.Fatalf("%d bytes that begin with %q: not those of one write", n, buf[:8])
		}
		whole++
	}
	close(stop)
	must(t, <-stopped)
	if whole == 0 {
		t.Error("no read met content")
	}
}

// faulty answers each READ with memory that cannot be read, as a medium does that fails after it was looked at.
type faulty struct {
	*Server
	mem []byte
}

func (f *faulty) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	return fuse.ReadResultVector([][]byte{f.mem[:len(buf)]}), fuse.OK
}

// A fault that the kernel meets in a loan is EIO for the program, and the mount goes on.
func TestLargeReads_FaultUnderWay(t *testing.T) {
	s, _, ino := newFile(t)
	if _, err := s.vol.Write(ino, 0, make([]byte, 1<<20), false); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	point := newPoint(t)
	kernel, err := fuse.NewServer(&faulty{s, mem}, point, s.mountOptions(&Config{}))
	must(t, err)
	go kernel.Serve()
	must(t, kernel.WaitMount())
	defer syscall.Unmount(point, syscall.MNT_DETACH)
	out, err := shell(t, 0, point, "dd if=file of=/dev/null bs=1M iflag=direct; dd if=file of=/dev/null bs=1M; stat -c %s file")
	if err != nil || bytes.Count([]byte(out), []byte("Input/output error")) != 2 || !bytes.HasSuffix([]byte(out), []byte("1048576")) {
		t.Errorf("%v: %s, want two errors of dd and the size", err, out)
	}
}
