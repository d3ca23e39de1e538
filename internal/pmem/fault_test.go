package pmem

import (
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTruncatedFileGivesFaultError(t *testing.T) {
	const size, cut = 1 << 20, 512 << 10
	for name, dir := range map[string]string{"tmpfs": memoryDir, "disk": t.TempDir()} {
		path := newFile(t, dir, "pool", size)
		for _, assume := range []Promise{Volatile, Persistent} {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			m := openFile(t, path, size, assume)
			if err := os.Truncate(path, cut); err != nil {
				t.Fatal(err)
			}
			b, buf := m.Bytes(), make([]byte, 8192)
			wantFault := func(op string, off uint64, err error) {
				t.Helper()
				var fe *FaultError
				if !errors.As(err, &fe) {
					t.Errorf("%s: %s: %v", name, op, err)
					return
				}
				// The kernel may report the page instead of the byte, and a copy may start at any byte of its run.
				if fe.Off < off-off%pageLen || fe.Off >= off+8192 || fe.At != fe.Off || fe.Path != path {
					t.Errorf("%s: %s at %d: %v", name, op, off, fe)
				}
			}
			wantFault("long Copy", cut, Copy(b[cut:], buf))
			wantFault("short Copy", cut+777, Copy(b[cut+777:], buf[:10]))
			wantFault("Copy across the end", cut, Copy(b[cut-5000:], buf))
			wantFault("CopyOut", cut+4096, CopyOut(buf, b[cut+4096:cut+8192]))
			wantFault("long Zero", cut+64, Zero(b[cut+64:cut+8000]))
			wantFault("short Zero", cut, Zero(b[cut:cut+1]))
			wantFault("Store64", cut+8, m.Store64(cut+8, 1))
			wantFault("Guard", cut+5, Guard(func() { buf[0] = b[cut+5] }))
			wantFault("Prefault", cut, m.Prefault(Range{cut, 4096}))
			if assume == Persistent {
				wantFault("Flush", cut, m.Flush([]Range{{0, 100}, {cut, 4096}}))
			}
			if err := Copy(b[cut-8192:], buf); err != nil {
				t.Errorf("%s: Copy before the end: %v", name, err)
			}
		}
	}
}

func TestFaultNamesThePart(t *testing.T) {
	dir := t.TempDir()
	a, b := newFile(t, dir, "a", 8192), newFile(t, dir, "b", 8192)
	r, err := OpenFiles([]Part{{a, 8192}, {b, 8192}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(b, 0); err != nil {
		t.Fatal(err)
	}
	err = Zero(r.Bytes()[12288:12290])
	var fe *FaultError
	if !errors.As(err, &fe) || fe.Path != b || fe.At != 4096 || fe.Off != 12288 || !strings.Contains(err.Error(), b) {
		t.Errorf("fault in the second part: %v", err)
	}
}

func TestGuardLetsOtherPanicsPass(t *testing.T) {
	var none *[10]byte
	m := openFile(t, newFile(t, memoryDir, "p", 4096), 4096, 0)
	for name, fn := range map[string]func(){
		"value":           func() { panic("mine") },
		"nil pointer":     func() { none[3] = 1 },
		"index":           func() { _ = m.Bytes()[len(m.Bytes()):][1] },
		"foreign address": func() { pastEnd(t)[0] = 1 },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			err := Guard(fn)
			t.Errorf("%s: Guard returned %v", name, err)
		}()
	}
	if debug.SetPanicOnFault(false) {
		t.Error("Guard left the goroutine's fault setting changed")
	}
}

// pastEnd returns bytes of a reserved space that belongs to no region.
func pastEnd(t *testing.T) []byte {
	s, err := reserve(4096, hugeLen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.release() })
	return s.mem
}

func TestGuardNests(t *testing.T) {
	path := newFile(t, memoryDir, "p", 8192)
	m := openFile(t, path, 8192, 0)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	err := Guard(func() {
		if err := Copy(m.Bytes()[4096:], []byte("x")); err == nil {
			t.Error("inner: no error")
		}
		m.Bytes()[4097] = 1
	})
	var fe *FaultError
	if !errors.As(err, &fe) {
		t.Errorf("outer: %v", err)
	}
}
