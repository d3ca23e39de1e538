package fs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Which reads move the access time.
func TestAccessTime(t *testing.T) {
	type moves struct{ first, second, cached, mapped bool }
	for _, tc := range []struct {
		options string
		want    moves
	}{
		{"", moves{first: true}},
		{"relatime", moves{first: true}},
		{"noatime", moves{}},
		{"strictatime", moves{true, true, true, true}},
		{"strictatime,sync", moves{true, true, true, true}},
	} {
		d := mount(t, tc.options)
		fd := d.open("file", 0)
		mustWrite(t, fd, make([]byte, 8192), 0)
		forget := func() { must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)) }
		read := func() { must(t, second(unix.Pread(fd, make([]byte, 100), 0))) }
		moved := func(f func()) bool {
			before := stat(t, d.path("file")).Atim
			time.Sleep(2 * time.Millisecond)
			f()
			return stat(t, d.path("file")).Atim != before
		}
		forget()
		got := moves{
			first:  moved(read),
			second: moved(func() { forget(); read() }),
			cached: moved(read),
			mapped: moved(func() { forget(); touchMapped(t, fd) }),
		}
		if got != tc.want {
			t.Errorf("%q: %+v, want %+v", tc.options, got, tc.want)
		}
	}
}

func touchMapped(t *testing.T, fd int) {
	t.Helper()
	mem, err := unix.Mmap(fd, 4096, 4096, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	if mem[0] != 0 {
		t.Error("a byte that is not zero")
	}
	must(t, unix.Munmap(mem))
}

// On a mount where all handles are direct I/O, no FSYNC follows a write that must be durable: the WRITE itself drains.
func TestStrictAtime_WritesAreDurable(t *testing.T) {
	for _, tc := range []struct {
		options string
		do      func(t *testing.T, fd int)
		drains  uint64
	}{
		{"strictatime", func(t *testing.T, fd int) { mustWrite(t, fd, make([]byte, 4096), 0) }, 0},
		{"strictatime", func(t *testing.T, fd int) { writeDsync(t, fd, make([]byte, 4096)) }, 1},
		{"strictatime,sync", func(t *testing.T, fd int) { mustWrite(t, fd, make([]byte, 4096), 0) }, 1},
	} {
		d := mount(t, tc.options)
		fd := d.open("file", 0)
		mustWrite(t, fd, make([]byte, 4096), 0)
		must(t, unix.Fsync(fd))
		if _, drains := d.requests(func() { tc.do(t, fd) }); drains != tc.drains {
			t.Errorf("%q: %d drains, want %d", tc.options, drains, tc.drains)
		}
	}
}
