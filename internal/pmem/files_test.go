package pmem

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPartsAreContiguous(t *testing.T) {
	dir := t.TempDir()
	a, b := newFile(t, dir, "a", 4096), newFile(t, dir, "b", 1<<20)
	parts := []Part{{a, 4096}, {b, 8192}}
	r, err := OpenFiles(parts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Bytes()) != 12288 || address(r.Bytes())%hugeLen != 0 {
		t.Errorf("%d bytes at %#x", len(r.Bytes()), address(r.Bytes()))
	}
	data := bytes.Repeat([]byte("pool"), 100)
	if err := Copy(r.Bytes()[4000:], data); err != nil {
		t.Fatal(err)
	}
	if err := Drain(r, []Range{{4000, 400}}, Seal{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err == nil {
		t.Error("second Close: no error")
	}
	got := append(readFile(t, a)[4000:], readFile(t, b)[:304]...)
	if !bytes.Equal(got, data) {
		t.Error("the files do not hold what was stored")
	}
	ro, err := OpenFiles(parts, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if !bytes.Equal(ro.Bytes()[4000:4400], data) {
		t.Error("mapped anew: other bytes")
	}
}

func readFile(t *testing.T, path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPromiseAndKindFollowTheFileSystem(t *testing.T) {
	disk := newFile(t, t.TempDir(), "disk", 4096)
	shm := newFile(t, memoryDir, "shm", 4096)
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	onDisk, diskKind := PageCache, PageCacheFile
	switch {
	case os.Getenv(fsdaxEnv) != "":
		onDisk, diskKind = Persistent, FSDAX
	case uint32(st.Type) == unix.TMPFS_MAGIC:
		onDisk, diskKind = Volatile, Tmpfs // the machine keeps its temporary files in memory
	}
	for _, c := range []struct {
		parts []Part
		want  Promise
		kind  Kind
	}{
		{[]Part{{disk, 4096}}, onDisk, diskKind},
		{[]Part{{shm, 4096}}, Volatile, Tmpfs},
		{[]Part{{disk, 4096}, {shm, 4096}}, Volatile, max(diskKind, Tmpfs)},
	} {
		r, err := OpenFiles(c.parts, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Promise() != c.want {
			t.Errorf("%v: promise %d, want %d", c.parts, r.Promise(), c.want)
		}
		if r.Kind() != c.kind {
			t.Errorf("%v: kind %v, want %v", c.parts, r.Kind(), c.kind)
		}
		r.Close()
	}
}

func TestOpenFilesRefusals(t *testing.T) {
	dir := t.TempDir()
	short := newFile(t, dir, "short", 4096)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(parts ...Part) error {
		_, err := OpenFiles(parts, Options{})
		return err
	}
	var se *SizeError
	if err := open(Part{short, 4096}, Part{short, 8192}); !errors.As(err, &se) || se.Expected != 8192 || se.Found != 4096 || se.Path != short {
		t.Errorf("short part: %v", err)
	}
	missing := filepath.Join(dir, "missing")
	if err := open(Part{missing, 4096}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing part: %v", err)
	}
	for name, err := range map[string]error{
		"none":      open(),
		"odd size":  open(Part{short, 100}),
		"zero size": open(Part{short, 0}),
		"huge":      open(Part{short, 1 << 62}, Part{short, 1 << 62}),
		"directory": open(Part{dir, 4096}),
		"fifo":      open(Part{fifo, 4096}),
		"device":    open(Part{"/dev/zero", 4096}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadOnlyRegion(t *testing.T) {
	path := newFile(t, memoryDir, "ro", 8192)
	r, err := OpenFiles([]Part{{path, 8192}}, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Flush([]Range{{0, 8}}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Flush: %v", err)
	}
	if err := r.Store64(0, 1); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Store64: %v", err)
	}
	var fe *FaultError
	if err := Copy(r.Bytes(), []byte("x")); !errors.As(err, &fe) {
		t.Errorf("Copy: %v", err)
	}
	if err := r.Prefault(Range{0, 8192}); err != nil {
		t.Errorf("Prefault: %v", err)
	}
	if err := r.Sync(); err != nil {
		t.Errorf("Sync: %v", err)
	}
}

func TestWriteBackErrorIsSticky(t *testing.T) {
	const size = 64 << 10
	m := openFile(t, newFile(t, t.TempDir(), "p", size), size, PageCache)
	// msync fails with ENOMEM where nothing is mapped: it stands for a device error here.
	if err := Drain(m, []Range{{0, 4096}}, Seal{}); err != nil {
		t.Fatalf("before the error: %v", err)
	}
	remap := unmapTail(t, m, 32<<10)
	err := m.Flush([]Range{{100, 10}, {60000, 10}})
	remap()
	var se *SyncError
	if !errors.As(err, &se) || se.Off != 0 || se.Len != 60010 {
		t.Fatalf("msync of unmapped pages: %v", err)
	}
	for op, got := range map[string]error{
		"Flush":       m.Flush([]Range{{0, 8}}),
		"empty Flush": m.Flush(nil),
		"Fence":       m.Fence(),
		"Sync":        m.Sync(),
		"Drain":       Drain(m, []Range{{0, 8}}, Seal{4096, 1}),
	} {
		if !errors.Is(got, err) {
			t.Errorf("%s after the error: %v", op, got)
		}
	}
	if m.Bytes()[4096] != 0 {
		t.Error("Drain stored a seal after a failed write-back")
	}
}

// What is stored into a private region is seen through it, and never reaches the parts, which need not be writable.
func TestPrivateRegion(t *testing.T) {
	dir := t.TempDir()
	a, b := newFile(t, dir, "a", 4096), newFile(t, dir, "b", 8192)
	if err := os.Chmod(b, 0o400); err != nil {
		t.Fatal(err)
	}
	r, err := OpenFiles([]Part{{a, 4096}, {b, 8192}}, Options{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Promise() != Volatile || r.Kind() != PageCacheFile {
		t.Errorf("promise %v, kind %v", r.Promise(), r.Kind())
	}
	if err := r.Prefault(Range{0, 12288}); err != nil {
		t.Fatal(err)
	}
	if err := Copy(r.Bytes()[4000:], []byte("stored over the border of two parts and a page or so")); err != nil {
		t.Fatal(err)
	}
	if err := Drain(r, []Range{{4000, 100}}, Seal{8192, 7}); err != nil {
		t.Fatal(err)
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(r.Bytes()[4000:], []byte("stored over")) || r.Bytes()[8192] != 7 {
		t.Error("what was stored is not seen")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{a, b} {
		if got := readFile(t, path); !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("%s was changed", path)
		}
	}
}
