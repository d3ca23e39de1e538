package pmem

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"unsafe"
)

// Slices taken before a growth stay good, what is new is there behind them, and it reaches the files.
func TestExtend_RegionStaysWhereItStands(t *testing.T) {
	first, second := newFile(t, memoryDir, "a", 64<<10), newFile(t, memoryDir, "b", 8192)
	m := openFile(t, first, 4096, 0)
	before := m.Bytes()
	copy(before, "old")
	for _, parts := range [][]Part{{{first, 4096}}, {{first, 64 << 10}}, {{first, 64 << 10}, {second, 8192}}, {{first, 64 << 10}, {second, 8192}}} {
		if err := m.Extend(parts); err != nil {
			t.Fatal(err)
		}
	}
	b := m.Bytes()
	if len(b) != 72<<10 || unsafe.SliceData(b) != unsafe.SliceData(before) || cap(before) != 4096 {
		t.Fatalf("%d bytes at %p, before at %p with a capacity of %d", len(b), unsafe.SliceData(b), unsafe.SliceData(before), cap(before))
	}
	copy(before, "new")
	copy(b[8192:], "longer")
	copy(b[64<<10:], "second part")
	for path, want := range map[string][2]string{first: {"new", "longer"}, second: {"second part", ""}} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(got, []byte(want[0])) || want[1] != "" && !bytes.HasPrefix(got[8192:], []byte(want[1])) {
			t.Errorf("%s: %.20q, %v", path, got, err)
		}
	}
	if err := m.Flush([]Range{{64 << 10, 8192}}); err != nil {
		t.Error(err)
	}
	if path, at := m.PartAt(64<<10 + 5); path != second || at != 5 {
		t.Errorf("offset behind the first part: %s at %d", path, at)
	}
}

// A refused growth leaves the region alone, and the next one succeeds.
func TestExtend_Refusals(t *testing.T) {
	first, second := newFile(t, memoryDir, "a", 16<<10), newFile(t, memoryDir, "b", 8192)
	m, err := openFiles([]Part{{first, 4096}, {second, 4096}}, Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var size *SizeError
	for name, parts := range map[string][]Part{
		"fewer":        {{first, 16 << 10}},
		"not the last": {{first, 8192}, {second, 4096}},
		"shorter":      {{first, 4096}, {second, 0}},
		"other order":  {{second, 4096}, {first, 4096}},
		"no pages":     {{first, 4096}, {second, 5000}},
		"too much":     {{first, 4096}, {second, 1 << 60}},
		"missing":      {{first, 4096}, {second, 8192}, {first + "none", 4096}},
	} {
		if err := m.Extend(parts); err == nil || len(m.Bytes()) != 8192 {
			t.Errorf("%s: %v, %d bytes", name, err, len(m.Bytes()))
		}
	}
	if err := m.Extend([]Part{{first, 4096}, {second, 16 << 10}}); !errors.As(err, &size) || size.Expected != 16<<10 {
		t.Errorf("a file that is too short: %v", err)
	}
	if err := m.Extend([]Part{{first, 4096}, {second, 8192}}); err != nil || len(m.Bytes()) != 12<<10 {
		t.Errorf("afterwards: %v", err)
	}
	if m.promise = Persistent; !errors.Is(m.Extend([]Part{{first, 4096}, {second, 8192}, {newFile(t, memoryDir, "c", 4096), 4096}}), ErrWeaker) {
		t.Error("a part that promises less was taken")
	}
	ro, err := openFiles([]Part{{first, 4096}}, Options{ReadOnly: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if err := ro.Extend([]Part{{first, 8192}}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// A growth that the next OpenFiles would refuse is refused: a Device DAX of any promise with a part of another one, whichever comes first.
func TestExtend_Mixed(t *testing.T) {
	first, second := newFile(t, memoryDir, "a", 4096), newFile(t, memoryDir, "b", 4096)
	m := openFile(t, first, 4096, 0)
	m.parts.Store(&[]placed{{Part{first, 4096}, DeviceDAX, PageCache, pageLen}}) // any but that of the new part, which is not weaker than the region
	if err := m.Extend([]Part{{first, 4096}, {second, 4096}}); !errors.Is(err, ErrMixed) || len(m.Bytes()) != 4096 {
		t.Errorf("a file behind a Device DAX that promises something else: %v, %d bytes", err, len(m.Bytes()))
	}
	m.parts.Store(&[]placed{{Part{first, 4096}, DeviceDAX, Volatile, pageLen}})
	if err := m.Extend([]Part{{first, 4096}, {second, 4096}}); err != nil {
		t.Errorf("one that promises the same: %v", err)
	}
}

// A region takes the kind of the part that is hardest to register.
func TestExtend_Kind(t *testing.T) {
	first, second := newFile(t, memoryDir, "a", 4096), newFile(t, t.TempDir(), "b", 4096)
	m, alone := openFile(t, first, 4096, 0), openFile(t, second, 4096, 0)
	if err := m.Extend([]Part{{first, 4096}, {second, 4096}}); err != nil {
		t.Fatal(err)
	}
	if m.Kind() != max(Tmpfs, alone.Kind()) || m.Promise() != Volatile {
		t.Errorf("kind %v, promise %v", m.Kind(), m.Promise())
	}
}

// Others go on while the region grows.
func TestExtend_WhileInUse(t *testing.T) {
	path := newFile(t, memoryDir, "a", 1<<20)
	m := openFile(t, path, 4096, 0)
	stop := make(chan struct{})
	var users sync.WaitGroup
	for range 2 {
		users.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				b := m.Bytes()
				last := uint64(len(b) - 8)
				if err := errors.Join(m.Store64(last, 1), Drain(m, []Range{{last, 8}}, Seal{Off: 8, Val: 1})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for size := uint64(8192); size <= 1<<20; size += 4096 {
		if err := m.Extend([]Part{{path, size}}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	users.Wait()
}
