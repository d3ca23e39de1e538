package fsx

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	files = 3
	// limit is the largest size of a file in bytes.
	limit = 384 << 10
	page  = 4096
	// sector is the alignment of O_DIRECT in bytes.
	sector = 512
)

// file is one file of the game: what it must hold, and the ways to it.
type file struct {
	path  string
	model []byte // the whole content; never longer than limit

	plain  int // O_RDWR, through the page cache
	direct int // O_RDWR|O_DIRECT
	app    int // O_WRONLY|O_APPEND
	dsync  int // O_RDWR|O_DSYNC, which the server turns into direct I/O
	mem    []byte
}

// open opens all descriptors, and maps limit bytes of one of them. The file is made if it does not exist.
func (f *file) open(mapDsync bool) (err error) {
	for _, h := range []struct {
		fd    *int
		flags int
	}{
		{&f.plain, unix.O_RDWR | unix.O_CREAT},
		{&f.direct, unix.O_RDWR | unix.O_DIRECT},
		{&f.app, unix.O_WRONLY | unix.O_APPEND},
		{&f.dsync, unix.O_RDWR | unix.O_DSYNC},
	} {
		if *h.fd, err = unix.Open(f.path, h.flags, 0o644); err != nil {
			return fmt.Errorf("open %s with flags %#x: %w", f.path, h.flags, err)
		}
	}
	fd := f.plain
	if mapDsync {
		fd = f.dsync
	}
	f.mem, err = unix.Mmap(fd, 0, limit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

func (f *file) close() error {
	return errors.Join(unix.Munmap(f.mem), unix.Close(f.plain), unix.Close(f.direct), unix.Close(f.app), unix.Close(f.dsync))
}

// grow makes the model at least end bytes long.
func (f *file) grow(end int) {
	if end > len(f.model) {
		f.resize(end)
	}
}

func (f *file) resize(n int) {
	old := len(f.model)
	f.model = f.model[:n]
	if n > old {
		clear(f.model[old:])
	}
}

// put is a write in the model.
func (f *file) put(off int, data []byte) {
	f.grow(off + len(data))
	copy(f.model[off:], data)
}

// zero is a hole in the model; it never changes the size.
func (f *file) zero(off, n int) {
	clear(f.model[min(off, len(f.model)):min(off+n, len(f.model))])
}

// whole compares everything: size, content, and that all outside of SEEK_DATA's regions is zeros.
func (f *file) whole() error {
	got, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	if err := compare(f.path, 0, got, f.model); err != nil {
		return err
	}
	return f.holes()
}

func (f *file) holes() error {
	for at := int64(0); ; {
		data, err := unix.Seek(f.plain, at, unix.SEEK_DATA)
		switch {
		case err == unix.ENXIO:
			data = int64(len(f.model))
		case err != nil:
			return fmt.Errorf("SEEK_DATA of %s from %d: %w", f.path, at, err)
		}
		for i, c := range f.model[at:data] {
			if c != 0 {
				return fmt.Errorf("%s: byte %d is %#x, and SEEK_DATA passes over it", f.path, at+int64(i), c)
			}
		}
		if data == int64(len(f.model)) {
			return nil
		}
		if at, err = unix.Seek(f.plain, data, unix.SEEK_HOLE); err != nil {
			return fmt.Errorf("SEEK_HOLE of %s from %d: %w", f.path, data, err)
		}
	}
}

// compare names the first byte that differs. got was read at offset off, where want should be.
func compare(path string, off int, got, want []byte) error {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			last := i
			for k := i; k < min(len(got), len(want)); k++ {
				if got[k] != want[k] {
					last = k
				}
			}
			return fmt.Errorf("%s: byte %d is %#x, want %#x; the last one that differs is %d", path, off+i, got[i], want[i], off+last)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes at offset %d, want %d", path, len(got), off, len(want))
	}
	return nil
}
