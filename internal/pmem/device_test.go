package pmem

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/pmemfs/pmemfs/internal/nvdimm"
)

// daxEnv names a Device DAX that tests may overwrite, and fsdaxEnv a directory on a DAX file system, which is then also that of the
// temporary files of all tests.
const (
	daxEnv   = "PMEMFS_DEVDAX"
	fsdaxEnv = "PMEMFS_FSDAX"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(fsdaxEnv); dir != "" {
		os.Setenv("TMPDIR", dir)
	}
	os.Exit(m.Run())
}

// device is the Device DAX that the environment names.
func device(t *testing.T) (Part, nvdimm.Device) {
	t.Helper()
	path := os.Getenv(daxEnv)
	if path == "" {
		t.Skipf("%s names no Device DAX", daxEnv)
	}
	d, ok, err := DeviceAt(path)
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", path, ok, err)
	}
	return Part{path, d.Size}, d
}

func openParts(t *testing.T, opt Options, parts ...Part) Region {
	t.Helper()
	r, err := OpenFiles(parts, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestDevice_IsPersistentMemory(t *testing.T) {
	p, d := device(t)
	if !d.Persistent || d.Size == 0 || d.Align < pageLen {
		t.Errorf("%+v", d)
	}
	r := openParts(t, Options{}, p)
	if r.Kind() != DeviceDAX || r.Promise() != Persistent || uint64(len(r.Bytes())) != d.Size || uint64(address(r.Bytes()))%d.Align != 0 {
		t.Errorf("kind %v, promise %d, %d bytes at %#x", r.Kind(), r.Promise(), len(r.Bytes()), address(r.Bytes()))
	}
	data := make([]byte, 300<<10)
	fill(newRand(t), data)
	if err := Copy(r.Bytes()[12345:], data); err != nil {
		t.Fatal(err)
	}
	if err := Drain(r, []Range{{12345, uint64(len(data))}}, Seal{Off: 4096, Val: 7}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{r.Prefault(Range{0, 4 << 20}), r.Sync(), r.Flush([]Range{{0, d.Size}}), r.Fence()} {
		if err != nil {
			t.Error(err)
		}
	}
	other := openParts(t, Options{ReadOnly: true}, p)
	if !bytes.Equal(other.Bytes()[12345:][:len(data)], data) || other.Bytes()[4096] != 7 {
		t.Error("another mapping shows other bytes")
	}
	var fault *FaultError
	if err := Copy(other.Bytes()[:8], data[:8]); !errors.As(err, &fault) || fault.Path != p.Path {
		t.Errorf("store to a mapping for reading: %v", err)
	}
	if err := other.Sync(); err != nil {
		t.Errorf("Sync of a mapping for reading: %v", err)
	}
}

func TestDevice_HotPathsAllocateNothing(t *testing.T) {
	p, _ := device(t)
	r := openParts(t, Options{}, p)
	rs := []Range{{0, 100}, {8192, 70000}}
	if n := testing.AllocsPerRun(20, func() {
		if err := Drain(r, rs, Seal{4096, 7}); err != nil {
			t.Error(err)
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("Drain: %v allocations", n)
	}
}

// What is stored to a private region after Own is seen in it and nowhere else; what is stored elsewhere faults.
func TestDevice_Private(t *testing.T) {
	p, d := device(t)
	shared := openParts(t, Options{}, p)
	if err := errors.Join(Copy(shared.Bytes(), bytes.Repeat([]byte("shared"), int(d.Align/6))), shared.Sync()); err != nil {
		t.Fatal(err)
	}
	r := openParts(t, Options{Private: true}, p)
	if r.Promise() != Volatile || r.Bytes()[6] != 's' {
		t.Errorf("promise %d", r.Promise())
	}
	var fault *FaultError
	if err := Copy(r.Bytes()[d.Align-4:], []byte("own")); !errors.As(err, &fault) {
		t.Errorf("store before Own: %v", err)
	}
	owner := r.(Owner)
	across := Range{d.Align - 4, 8} // the end of one run and the start of the next
	if err := errors.Join(owner.Own(across), owner.Own(across)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.Bytes()[:d.Align-8], shared.Bytes()[:d.Align-8]) {
		t.Error("Own changed bytes")
	}
	if err := Copy(r.Bytes()[d.Align-4:], []byte("owned it")); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.Bytes()[d.Align-4:][:8], []byte("owned it")) || bytes.Contains(shared.Bytes()[d.Align-4:][:8], []byte("own")) {
		t.Error("a store is not private")
	}
	if err := Copy(r.Bytes()[2*d.Align:], []byte("x")); !errors.As(err, &fault) {
		t.Errorf("store to another run: %v", err)
	}
	var re *RangeError
	if err := owner.Own(Range{d.Size, 1}); !errors.As(err, &re) {
		t.Errorf("Own outside of the region: %v", err)
	}
}

func TestDevice_Refusals(t *testing.T) {
	p, d := device(t)
	file := newFile(t, memoryDir, "f", 4096)
	var size *SizeError
	for name, c := range map[string]struct {
		parts []Part
		want  any
	}{
		"larger than the device":   {[]Part{{p.Path, d.Size + d.Align}}, &size},
		"not aligned":              {[]Part{{p.Path, d.Size - 4096}}, nil},
		"behind an unaligned part": {[]Part{{file, 4096}, p}, nil},
	} {
		_, err := OpenFiles(c.parts, Options{})
		if err == nil || c.want != nil && !errors.As(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	aligned := newFile(t, memoryDir, "a", int64(d.Align))
	if _, err := OpenFiles([]Part{p, {aligned, d.Align}}, Options{}); !errors.Is(err, ErrMixed) {
		t.Errorf("joined with tmpfs: %v", err)
	}
	m := openFile(t, aligned, d.Align, 0)
	if err := m.Extend([]Part{{aligned, d.Align}, p}); !errors.Is(err, ErrMixed) {
		t.Errorf("tmpfs extended by it: %v", err)
	}
}

// A file on a DAX file system and a device are one region of persistent memory.
func TestDevice_JoinedWithFSDAX(t *testing.T) {
	p, d := device(t)
	dir := os.Getenv(fsdaxEnv)
	if dir == "" {
		t.Skipf("%s names no directory", fsdaxEnv)
	}
	file := newFile(t, dir, "f", int64(d.Align))
	m := openFile(t, file, d.Align, 0)
	if m.Kind() != FSDAX || m.Promise() != Persistent {
		t.Fatalf("file: kind %v, promise %d", m.Kind(), m.Promise())
	}
	if err := m.Extend([]Part{{file, d.Align}, p}); err != nil {
		t.Fatal(err)
	}
	if m.Kind() != FSDAX || m.Promise() != Persistent || m.size() != d.Align+d.Size {
		t.Errorf("kind %v, promise %d, %d bytes", m.Kind(), m.Promise(), m.size())
	}
	if err := Zero(m.Bytes()[d.Align-4096:][:8192]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Drain(m, []Range{{d.Align - 4096, 8192}}, Seal{Off: d.Align, Val: 9}), m.Sync()); err != nil {
		t.Error(err)
	}
	other := openParts(t, Options{ReadOnly: true}, p)
	if other.Bytes()[0] != 9 {
		t.Error("the seal is not on the device")
	}
}
