package pool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/nvdimm"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// daxEnv names a Device DAX that tests may overwrite, fsdaxEnv a directory on a DAX file system.
const (
	daxEnv   = "PMEMFS_DEVDAX"
	fsdaxEnv = "PMEMFS_FSDAX"
)

// onFSDAX is a part of size bytes on the DAX file system that the environment names, with a pool in it.
func onFSDAX(t *testing.T, size uint64) poolset.Part {
	t.Helper()
	dir := os.Getenv(fsdaxEnv)
	if dir == "" {
		t.Skipf("%s names no directory", fsdaxEnv)
	}
	dir, err := os.MkdirTemp(dir, "pool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	part := poolset.Part{Path: filepath.Join(dir, "first"), Size: size, Line: 2}
	madeOf(t, setOf(part), CreateOptions{})
	return part
}

// device is the Device DAX that the environment names, all zero, as a part of AUTO size.
func device(t *testing.T) (poolset.Part, nvdimm.Device) {
	t.Helper()
	path := os.Getenv(daxEnv)
	if path == "" {
		t.Skipf("%s names no Device DAX", daxEnv)
	}
	d, ok, err := pmem.DeviceAt(path)
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", path, ok, err)
	}
	if err := clearDevice(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clearDevice(path) })
	return poolset.Part{Path: path, Auto: true, Line: 2}, d
}

func setOf(parts ...poolset.Part) *poolset.Set {
	return &poolset.Set{File: "test.set", Parts: parts}
}

// madeOf makes a pool and closes it.
func madeOf(t *testing.T, set *poolset.Set, opt CreateOptions) poolset.Header {
	t.Helper()
	opt.Role, opt.Durability, opt.SmallForTests = "test", Media, true
	p, err := Create(set, poolset.Attr{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	h := p.Header()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDevice_CreateInspectOpenRemove(t *testing.T) {
	part, d := device(t)
	set := setOf(part)
	if n, err := SizeOf(set); err != nil || n != d.Size {
		t.Errorf("SizeOf: %d, %v", n, err)
	}
	if _, err := Open(set, OpenOptions{Role: "test"}); !errors.Is(err, ErrNotPool) {
		t.Errorf("an empty device: %v", err)
	}
	h := madeOf(t, set, CreateOptions{})
	if h.PoolSize != d.Size {
		t.Errorf("pool of %d bytes on a device of %d", h.PoolSize, d.Size)
	}
	info, err := Inspect(set)
	if err != nil || info.Header != h || info.Holder != nil {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	p, err := Open(set, OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if k := p.Region().Kind(); k != pmem.DeviceDAX || p.Region().Promise() != pmem.Persistent || p.Sparse() {
		t.Errorf("kind %v, promise %d, sparse %v", k, p.Region().Promise(), p.Sparse())
	}
	if err := p.SetState(func(s *poolset.State) { s.Term = 5 }); err != nil {
		t.Error(err)
	}
	if info, err = Inspect(set); err != nil || info.State.Term != 5 || info.Holder == nil || info.Holder.PID != os.Getpid() {
		t.Errorf("Inspect of an open pool: %+v, %v", info, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Remove(set); err != nil {
		t.Fatal(err)
	}
	if zeros, err := deviceZeros(part.Path, d.Size, 0); !zeros || err != nil {
		t.Errorf("after Remove: zeros %v, %v", zeros, err)
	}
	if _, err := os.Stat(lockPath(part)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock file: %v", err)
	}
}

// A device with a single byte in it is refused, and erased only on demand.
func TestDevice_DataIsNeverErasedSilently(t *testing.T) {
	part, d := device(t)
	r, err := pmem.OpenFiles([]pmem.Part{{Path: part.Path, Size: d.Size}}, pmem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := d.Size - 77
	r.Bytes()[at] = 1
	if err := errors.Join(pmem.Drain(r, []pmem.Range{{Off: at, Len: 1}}, pmem.Seal{}), r.Close()); err != nil {
		t.Fatal(err)
	}
	opt := CreateOptions{Role: "test", Durability: Media, SmallForTests: true}
	if _, err := Create(setOf(part), poolset.Attr{}, opt); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a device with data: %v", err)
	}
	if zeros, err := deviceZeros(part.Path, d.Size, at); zeros || err != nil {
		t.Errorf("the refusal erased it: %v, %v", zeros, err)
	}
	madeOf(t, setOf(part), CreateOptions{Erase: true})
}

// What can refuse a pool refuses it before its devices are erased.
func TestDevice_RefusedBeforeErased(t *testing.T) {
	part, d := device(t)
	held := madeOf(t, setOf(part), CreateOptions{})
	dir := t.TempDir()
	file := poolset.Part{Path: filepath.Join(dir, "file"), Size: MinPart, Line: 3}
	precious := poolset.Part{Path: filepath.Join(dir, "precious"), Size: MinPart, Line: 3}
	if err := os.WriteFile(precious.Path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	for name, c := range map[string]struct {
		set *poolset.Set
		opt CreateOptions
		why error // nil: any
	}{
		"no class of durability":   {setOf(part), CreateOptions{Durability: 7}, nil},
		"a file that holds data":   {setOf(part, precious), CreateOptions{}, fs.ErrExist},
		"a file that is no memory": {setOf(part, file), CreateOptions{}, nil},
		"not aligned":              {setOf(poolset.Part{Path: file.Path, Size: MinPart + poolset.BlockSize}, part), CreateOptions{}, nil},
		"refused when all is ready": {setOf(part), CreateOptions{Ready: func(h poolset.Header) error {
			if h.PoolSize != d.Size {
				t.Errorf("asked for a pool of %d bytes", h.PoolSize)
			}
			return no
		}}, no},
	} {
		c.opt.Role, c.opt.Erase, c.opt.SmallForTests = "test", true, true
		if c.opt.Durability == 0 {
			c.opt.Durability = Media
		}
		if _, err := Create(c.set, poolset.Attr{}, c.opt); err == nil || c.why != nil && !errors.Is(err, c.why) {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := Inspect(setOf(part)); err != nil || info.Header != held {
			t.Errorf("%s: the pool that was there: %v", name, err)
		}
		if _, err := os.Lstat(file.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s is left behind: %v", name, file.Path, err)
		}
	}
}

func TestDevice_SizeMismatch(t *testing.T) {
	part, d := device(t)
	opt := CreateOptions{Role: "test", Durability: Media, SmallForTests: true}
	for _, size := range []uint64{d.Size - d.Align, d.Size + d.Align, 4096} {
		p := poolset.Part{Path: part.Path, Size: size, Line: 2}
		if _, err := Create(setOf(p), poolset.Attr{}, opt); err == nil {
			t.Errorf("a size of %d was taken for a device of %d", size, d.Size)
		}
	}
	madeOf(t, setOf(poolset.Part{Path: part.Path, Size: d.Size, Line: 2}), CreateOptions{})
	p := poolset.Part{Path: part.Path, Size: d.Size - d.Align, Line: 2}
	if _, err := Open(setOf(p), OpenOptions{Role: "test"}); err == nil {
		t.Error("a pool set with another size was taken")
	}
}

// The lock is that of the device, whatever its name is, and of a device that is not the first part, too.
func TestDevice_LockedUnderEachName(t *testing.T) {
	part, _ := device(t)
	dir := t.TempDir()
	link, node := filepath.Join(dir, "link"), filepath.Join(dir, "node")
	var st unix.Stat_t
	if err := errors.Join(os.Symlink(part.Path, link), unix.Stat(part.Path, &st), unix.Mknod(node, unix.S_IFCHR|0o600, int(st.Rdev))); err != nil {
		t.Fatal(err)
	}
	madeOf(t, setOf(part), CreateOptions{})
	p, err := Open(setOf(part), OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var use *InUseError
	for _, name := range []string{link, node} {
		if _, err := Open(setOf(poolset.Part{Path: name, Auto: true, Line: 2}), OpenOptions{Role: "test"}); !errors.As(err, &use) {
			t.Errorf("%s of an open pool: %v", name, err)
		}
	}
	file := filepath.Join(dir, "first")
	second := setOf(poolset.Part{Path: file, Size: 2 << 20, Line: 2}, poolset.Part{Path: link, Auto: true, Line: 3})
	if _, err := Create(second, poolset.Attr{}, CreateOptions{Role: "test", Durability: Media, SmallForTests: true, Erase: true}); !errors.As(err, &use) {
		t.Errorf("as the second part of another pool: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first part of the refused pool: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	q, err := Open(setOf(poolset.Part{Path: node, Auto: true, Line: 2}), OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// A pool on a file of a DAX file system grows by a device, and the region shows both.
func TestDevice_Growth(t *testing.T) {
	part, d := device(t)
	first := onFSDAX(t, d.Align*2)
	p, err := Open(setOf(first), OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	part.Line = 3
	both := setOf(first, part)
	if n, err := p.SizeWith(both); err != nil || n != first.Size+d.Size {
		t.Errorf("SizeWith: %d, %v", n, err)
	}
	if err := p.Grow(both); err != nil {
		t.Fatal(err)
	}
	if n := uint64(len(p.Region().Bytes())); n != first.Size+d.Size || p.Header().PoolSize != n {
		t.Errorf("%d bytes, header %d", n, p.Header().PoolSize)
	}
	var use *InUseError
	if _, err := Open(setOf(part), OpenOptions{Role: "test"}); !errors.As(err, &use) {
		t.Errorf("the new part by itself: %v", err)
	}
	if err := pmem.Copy(p.Region().Bytes()[first.Size-4:], []byte("across")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pmem.Drain(p.Region(), []pmem.Range{{Off: first.Size - 4, Len: 6}}, pmem.Seal{}), p.Close()); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []OpenOptions{{Role: "test"}, {Role: "test", Private: true}} {
		if p, err = Open(both, opt); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(p.Region().Bytes()[first.Size-4:], []byte("across")) {
			t.Errorf("%+v: other bytes", opt)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := Remove(both); err != nil {
		t.Error(err)
	}
}

// A device that holds data cannot be what a pool grows by.
func TestDevice_GrowthRefusesData(t *testing.T) {
	part, d := device(t)
	first := onFSDAX(t, d.Align*2)
	madeOf(t, setOf(part), CreateOptions{})
	p, err := Open(setOf(first), OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Grow(setOf(first, part)); !errors.Is(err, fs.ErrExist) || len(p.Region().Bytes()) != int(first.Size) {
		t.Errorf("%v, %d bytes", err, len(p.Region().Bytes()))
	}
	if _, err := Inspect(setOf(part)); err != nil {
		t.Errorf("the other pool: %v", err)
	}
	q, err := Open(setOf(part), OpenOptions{Role: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
