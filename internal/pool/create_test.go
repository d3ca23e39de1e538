package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"golang.org/x/sys/unix"
)

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Sys().(*syscall.Stat_t).Blocks * 512
}

func TestCreatePreallocates(t *testing.T) {
	for _, parent := range []string{memoryDir, t.TempDir()} {
		full, sparse := newSet(t, parent, testSize), newSet(t, parent, testSize)
		mustClose(t, mustCreate(t, full, CreateOptions{Durability: Memory}))
		mustClose(t, mustCreate(t, sparse, CreateOptions{Durability: Memory, Sparse: true}))
		if n := allocated(t, full.Parts[0].Path); n < testSize {
			t.Errorf("%s: %d of %d bytes allocated", parent, n, testSize)
		}
		if n := allocated(t, sparse.Parts[0].Path); n >= testSize/2 {
			t.Errorf("%s: %d bytes allocated though sparse", parent, n)
		}
	}
}

// A failed Create leaves the directory as it was.
func TestCreateFailuresLeaveNothing(t *testing.T) {
	for name, c := range map[string]struct {
		sizes  []uint64
		opt    CreateOptions
		before func(set *poolset.Set)
		check  func(err error) bool
	}{
		"part exists": {
			sizes:  []uint64{testSize, testSize},
			before: func(set *poolset.Set) { os.WriteFile(set.Parts[1].Path, []byte("precious"), 0o600) },
			check:  func(err error) bool { return errors.Is(err, fs.ErrExist) && strings.Contains(err.Error(), "8 bytes") },
		},
		"empty part stays, empty": {
			sizes: []uint64{testSize, 1 << 50},
			before: func(set *poolset.Set) {
				os.WriteFile(set.Parts[0].Path, nil, 0o600)
			},
			check: func(err error) bool { return errors.Is(err, unix.ENOSPC) },
		},
		"disk full": {
			sizes: []uint64{testSize, 1 << 50},
			check: func(err error) bool {
				var full *DiskFullError
				return errors.As(err, &full) && full.Required == 1<<50 && full.Available > 0 && full.Available < 1<<50
			},
		},
		"memory cannot be media": {
			sizes: []uint64{testSize},
			opt:   CreateOptions{Durability: Media},
			check: func(err error) bool {
				return errors.Is(err, ErrDurability) && strings.Contains(err.Error(), `durability = "memory"`)
			},
		},
		"no such class": {
			sizes: []uint64{testSize},
			opt:   CreateOptions{Durability: 7},
			check: func(err error) bool { return strings.Contains(err.Error(), "durability 7") },
		},
		"refused when all is ready": {
			sizes: []uint64{testSize, testSize},
			opt: CreateOptions{Erase: true, Ready: func(h poolset.Header) error {
				return fmt.Errorf("no, not %d bytes of %v", h.PoolSize, h.PoolUUID.IsZero())
			}},
			check: func(err error) bool { return err.Error() == fmt.Sprintf("no, not %d bytes of false", 2*testSize) },
		},
		"pool too small": {
			sizes: []uint64{testSize - 4096},
			check: func(err error) bool { return strings.Contains(err.Error(), "1048576") },
		},
		"directory as a part": {
			sizes:  []uint64{testSize, testSize},
			before: func(set *poolset.Set) { os.Mkdir(set.Parts[1].Path, 0o700) },
			check:  func(err error) bool { return strings.Contains(err.Error(), "not a regular file") },
		},
		"dangling link as a part": {
			sizes:  []uint64{testSize, testSize},
			before: func(set *poolset.Set) { os.Symlink("nowhere", set.Parts[1].Path) },
			check:  func(err error) bool { return errors.Is(err, fs.ErrNotExist) },
		},
	} {
		set := newSet(t, memoryDir, c.sizes...)
		if c.before != nil {
			c.before(set)
		}
		before, sizes := names(t, set), sizesOf(t, set)
		c.opt.SmallForTests = true
		if c.opt.Durability == 0 {
			c.opt.Durability = Memory
		}
		p, err := Create(set, poolset.Attr{}, c.opt)
		if err == nil || p != nil || !c.check(err) {
			t.Errorf("%s: %v", name, err)
		}
		if after := names(t, set); !slices.Equal(before, after) || !slices.Equal(sizes, sizesOf(t, set)) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
}

func sizesOf(t *testing.T, set *poolset.Set) (s []int64) {
	for _, n := range names(t, set) {
		fi, err := os.Lstat(filepath.Join(filepath.Dir(set.Parts[0].Path), n))
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, fi.Size())
	}
	return s
}

func TestCreateOverAnExistingPoolIsRefused(t *testing.T) {
	set := newPool(t)
	before, err := Inspect(set)
	if err != nil {
		t.Fatal(err)
	}
	opt := CreateOptions{Durability: Memory, SmallForTests: true}
	if _, err := Create(set, poolset.Attr{}, opt); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	p := mustOpen(t, set, OpenOptions{})
	var busy *InUseError
	if _, err := Create(set, poolset.Attr{}, opt); !errors.As(err, &busy) {
		t.Errorf("over an open pool: %v", err)
	}
	if p.Header() != before.Header {
		t.Errorf("the header changed: %+v", p.Header())
	}
	mustClose(t, p)
}

func TestCreateMinimumOfAPart(t *testing.T) {
	set := newSet(t, memoryDir, MinPart, MinPart-4096)
	if _, err := Create(set, poolset.Attr{}, CreateOptions{Durability: Memory}); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("%v", err)
	}
	set = newSet(t, memoryDir, MinPart, MinPart)
	p, err := Create(set, poolset.Attr{}, CreateOptions{Durability: Memory})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, p)
	set.Parts[0].Auto = true
	if _, err := Create(set, poolset.Attr{}, CreateOptions{Durability: Memory}); err == nil || !strings.Contains(err.Error(), "AUTO") {
		t.Errorf("AUTO: %v", err)
	}
}

// A device that is not there is not made as a file in its place.
func TestCreate_NoSuchDevice(t *testing.T) {
	for _, part := range []poolset.Part{{Path: "/dev/dax99.99", Auto: true}, {Path: "/dev/dax99.99", Size: 2 * MinPart}} {
		set := &poolset.Set{File: "p.set", Parts: []poolset.Part{part}}
		_, err := Create(set, poolset.Attr{}, CreateOptions{Durability: Memory})
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "ndctl") {
			t.Errorf("%+v: %v", part, err)
		}
		if _, err := os.Lstat(part.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: left behind: %v", part, err)
		}
	}
}

// snapshots is a region that keeps block 0 as it is persistent after each fence.
type snapshots struct {
	pmem.Region
	flushed []pmem.Range
	durable []byte
	images  [][]byte
}

func (s *snapshots) Flush(rs []pmem.Range) error {
	s.flushed = append(s.flushed, rs...)
	return s.Region.Flush(rs)
}

func (s *snapshots) Fence() error {
	for _, r := range s.flushed {
		copy(s.durable[r.Off:r.Off+r.Len], s.Bytes()[r.Off:])
	}
	s.flushed = nil
	s.images = append(s.images, slices.Clone(s.durable))
	return nil
}

func formatted(t *testing.T, set *poolset.Set, r pmem.Region) *Pool {
	t.Helper()
	p, err := plan(set, r, poolset.Attr{}, CreateOptions{Durability: Memory})
	if err == nil {
		err = p.format()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// At whatever fence a crash comes, the pool either has no header yet or is complete.
func TestFormatOrder(t *testing.T) {
	set := newSet(t, memoryDir, testSize)
	r := &snapshots{Region: pmem.NewHeap(testSize), durable: make([]byte, poolset.BlockSize)}
	p := formatted(t, set, r)
	complete := 0
	for i, image := range r.images {
		_, _, err := poolset.CurrentHeader(image)
		if err != nil {
			continue
		}
		complete++
		info, err := decode(set, image, testSize)
		if err != nil || info.Header != p.header || info.stored != p.state {
			t.Errorf("after fence %d: %+v, %v", i, info, err)
		}
	}
	if len(r.images) != 3 || complete != 2 {
		t.Errorf("%d fences, %d with a header", len(r.images), complete)
	}
}

// At whatever fence a crash comes, and whatever it tears, SetAttr leaves the old header or the new one.
func TestSetAttrOrder(t *testing.T) {
	set := newSet(t, memoryDir, testSize)
	r := &snapshots{Region: pmem.NewHeap(testSize), durable: make([]byte, poolset.BlockSize)}
	p := formatted(t, set, r)
	old := p.header
	p.set, r.images = set, [][]byte{slices.Clone(r.durable)}
	a := old.Attr
	a.UserFlags[0], a.Next = 1, poolset.NewUUID()
	if err := p.SetAttr(a); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(r.images); i++ {
		for lines := range 1 << (poolset.StateOff / 64) {
			image := slices.Clone(r.images[i-1])
			for l := 0; lines>>l > 0; l++ {
				if lines>>l&1 == 1 {
					copy(image[64*l:64*l+64], r.images[i][64*l:])
				}
			}
			h, _, err := poolset.CurrentHeader(image)
			if err != nil || h != old && h != p.header {
				t.Fatalf("crash before fence %d with lines %b: %+v, %v", i, lines, h, err)
			}
		}
	}
	if len(r.images) != 3 {
		t.Errorf("%d fences", len(r.images)-1)
	}
}
