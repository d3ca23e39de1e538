package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

const testSize = 1 << 20

// memoryDir is a tmpfs on every Linux machine.
const memoryDir = "/dev/shm"

// newSet describes a pool of parts of the given sizes in a fresh directory below parent.
func newSet(t testing.TB, parent string, sizes ...uint64) *poolset.Set {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text := "PMEMPOOLSET\n"
	for i, n := range sizes {
		text += fmt.Sprintf("%d %s/part%d\n", n, dir, i)
	}
	set, err := poolset.Parse(strings.NewReader(text), "test.set")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newPool makes a small pool of class memory, and closes it.
func newPool(t testing.TB) *poolset.Set {
	t.Helper()
	set := newSet(t, memoryDir, testSize/2, testSize/2)
	mustClose(t, mustCreate(t, set, CreateOptions{Durability: Memory}))
	return set
}

func mustCreate(t testing.TB, set *poolset.Set, opt CreateOptions) *Pool {
	t.Helper()
	opt.SmallForTests = true
	p, err := Create(set, poolset.Attr{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustOpen(t testing.TB, set *poolset.Set, opt OpenOptions) *Pool {
	t.Helper()
	p, err := Open(set, opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustClose(t testing.TB, p *Pool) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// names lists the directory of the pool.
func names(t testing.TB, set *poolset.Set) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(set.Parts[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return s
}

// edit changes block 0 of a closed pool behind its back.
func edit(t testing.TB, set *poolset.Set, change func(block []byte)) {
	t.Helper()
	f, err := os.OpenFile(set.Parts[0].Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, poolset.BlockSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	change(b)
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

func TestCreateThenOpen(t *testing.T) {
	for _, parent := range []string{memoryDir, t.TempDir()} {
		set := newSet(t, parent, testSize, 4096)
		p := mustCreate(t, set, CreateOptions{Durability: Memory, State: poolset.State{Term: 4, Flags: poolset.Clean}})
		h, s := p.Header(), p.State()
		if h.PoolUUID.IsZero() || h.CopyID.IsZero() || h.PoolUUID == h.CopyID || h.PoolSize != testSize+4096 ||
			h.Signature != poolset.Signature || h.Major != 1 || h.Created == 0 {
			t.Errorf("header %+v", h)
		}
		if s.Seq != 1 || s.Gen == 0 || s.Term != 4 || s.Flags != poolset.Clean|poolset.Memory || !s.Writer.IsZero() {
			t.Errorf("state %+v", s)
		}
		copy(p.Region().Bytes()[testSize-5:], "0123456789")
		if err := pmem.Drain(p.Region(), []pmem.Range{{Off: testSize - 5, Len: 10}}, pmem.Seal{}); err != nil {
			t.Fatal(err)
		}
		mustClose(t, p)

		p = mustOpen(t, set, OpenOptions{})
		if p.Header() != h || p.State() != s {
			t.Errorf("opened: %+v, %+v", p.Header(), p.State())
		}
		if got := p.Region().Bytes()[testSize-5:]; !bytes.HasPrefix(got, []byte("0123456789")) {
			t.Errorf("content %q", got[:10])
		}
		mustClose(t, p)
		if err := p.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		if err := p.SetState(func(*poolset.State) {}); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("SetState after Close: %v", err)
		}
	}
}

func TestSetStateAlternatesSlots(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{})
	start := p.State()
	for i := uint64(1); i <= 5; i++ {
		before := bytes.Clone(p.Region().Bytes()[:poolset.BlockSize])
		if err := p.SetState(func(s *poolset.State) { s.Term = 100 + i }); err != nil {
			t.Fatal(err)
		}
		after := p.Region().Bytes()[:poolset.BlockSize]
		current := poolset.StateOff + int(i-1)%2*poolset.StateLen
		if !bytes.Equal(before[:poolset.StateOff], after[:poolset.StateOff]) ||
			!bytes.Equal(before[current:current+poolset.StateLen], after[current:current+poolset.StateLen]) {
			t.Fatalf("change %d touched the current slot or the header", i)
		}
		if s := p.State(); s.Seq != start.Seq+i || s.Term != 100+i {
			t.Errorf("state %+v", s)
		}
	}
	mustClose(t, p)
	edit(t, set, func(b []byte) { b[poolset.StateOff+poolset.StateLen+20]++ }) // the newest, torn
	p = mustOpen(t, set, OpenOptions{})
	if s := p.State(); s.Seq != start.Seq+4 || s.Term != 104 {
		t.Errorf("after a torn write: %+v", s)
	}
	mustClose(t, p)
}

func TestSetStateFromManyGoroutines(t *testing.T) {
	p := mustOpen(t, newPool(t), OpenOptions{})
	defer p.Close()
	start := p.State().Seq
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if err := p.SetState(func(s *poolset.State) { s.Term++ }); err != nil {
					t.Error(err)
				}
				p.State()
				p.Header()
			}
		})
	}
	wg.Wait()
	if s := p.State(); s.Term != 400 || s.Seq != start+400 {
		t.Errorf("%+v", s)
	}
}

func TestSetStateOnATruncatedPart(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{})
	defer p.Close()
	old := p.State()
	if err := os.Truncate(set.Parts[0].Path, 0); err != nil {
		t.Fatal(err)
	}
	err := p.SetState(func(s *poolset.State) { s.Term = 9 })
	var fe *pmem.FaultError
	if !errors.As(err, &fe) || p.State() != old {
		t.Errorf("%v, state %+v", err, p.State())
	}
}

func TestSetAttr(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{})
	h := p.Header()
	a := h.Attr
	a.UserFlags[3], a.CopyID = 7, poolset.UUID{}
	if err := p.SetAttr(a); err != nil {
		t.Fatal(err)
	}
	h.UserFlags[3] = 7
	if p.Header() != h {
		t.Errorf("header %+v", p.Header())
	}
	a.PoolUUID[0]++
	if err := p.SetAttr(a); err == nil {
		t.Error("the pool UUID changed")
	}
	mustClose(t, p)
	for name, place := range map[string]int{"header": 0x20, "copy": poolset.HeaderCopyOff + 0x20} {
		edit(t, set, func(b []byte) { b[place] ^= 0xff })
		p = mustOpen(t, set, OpenOptions{})
		if p.Header() != h {
			t.Errorf("with a torn %s: %+v", name, p.Header())
		}
		if err := p.SetAttr(h.Attr); err != nil { // restores both
			t.Fatal(err)
		}
		mustClose(t, p)
	}
}

func TestReadOnly(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{ReadOnly: true})
	defer p.Close()
	if err := p.SetState(func(*poolset.State) {}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("SetState: %v", err)
	}
	if err := p.SetAttr(p.Header().Attr); !errors.Is(err, ErrReadOnly) {
		t.Errorf("SetAttr: %v", err)
	}
}

// A private pool can be stored to, and its parts stay as they are, block 0 too.
func TestPrivate(t *testing.T) {
	set := newPool(t)
	before := readParts(t, set)
	p := mustOpen(t, set, OpenOptions{Private: true})
	if err := p.SetState(func(*poolset.State) {}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("SetState: %v", err)
	}
	copy(p.Region().Bytes()[4096:], "stored")
	if place := p.Place(4097); place != set.Parts[0].Path+", offset 4097" {
		t.Errorf("place %q", place)
	}
	mustClose(t, p)
	if !bytes.Equal(before, readParts(t, set)) {
		t.Error("the parts changed")
	}
}

func readParts(t *testing.T, set *poolset.Set) (all []byte) {
	t.Helper()
	for _, part := range set.Parts {
		b, err := os.ReadFile(part.Path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

func TestRemove(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{Role: "mount"})
	var busy *InUseError
	if err := Remove(set); !errors.As(err, &busy) || busy.Role != "mount" || len(names(t, set)) != 3 {
		t.Errorf("of an open pool: %v, left %v", err, names(t, set))
	}
	mustClose(t, p)
	if err := os.Remove(set.Parts[1].Path); err != nil {
		t.Fatal(err)
	}
	if err := Remove(set); err != nil || len(names(t, set)) != 0 {
		t.Errorf("of a pool that lacks a part: %v, left %v", err, names(t, set))
	}
	if err := Remove(set); !errors.Is(err, fs.ErrNotExist) || len(names(t, set)) != 0 {
		t.Errorf("of no pool: %v, left %v", err, names(t, set))
	}
}

// The node of a device that is no part of a pool, or cannot be examined, is not unlinked as if it were a file.
func TestRemove_LeavesOtherDevices(t *testing.T) {
	set := newPool(t)
	path := set.Parts[1].Path
	if err := errors.Join(os.Remove(path), unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))); err != nil {
		t.Fatal(err)
	}
	if err := Remove(set); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a part that is /dev/null: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestInspectAnOpenPool(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{Role: "target"})
	if err := p.SetState(func(s *poolset.State) { s.Term = 12 }); err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(set)
	if err != nil || info.Header != p.Header() || info.State != p.State() || info.State.Term != 12 {
		t.Fatalf("%+v, %v", info, err)
	}
	if info.Holder == nil || info.Holder.PID != os.Getpid() || info.Holder.Role != "target" {
		t.Errorf("holder %+v", info.Holder)
	}
	mustClose(t, p)
	if info, err = Inspect(set); err != nil || info.Holder != nil {
		t.Errorf("after Close: %+v, %v", info.Holder, err)
	}
}

func TestInspectWhileTheStateChanges(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{})
	defer p.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if err := p.SetState(func(s *poolset.State) { s.Term++ }); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	var last uint64
	for range 300 {
		info, err := Inspect(set)
		if err != nil || info.State.Term < last {
			t.Errorf("term %d after %d, %v", info.State.Term, last, err)
			break
		}
		last = info.State.Term
	}
	close(stop)
	<-done
}

func TestDurability(t *testing.T) {
	for s, want := range map[string]Durability{"memory": Memory, "media": Media} {
		var d Durability
		if err := d.UnmarshalText([]byte(s)); err != nil || d != want || d.String() != s {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	d := Media
	if err := d.UnmarshalText([]byte("disk")); err == nil || d != Media || Durability(9).String() != "durability 9" {
		t.Errorf("disk: %v, %v", d, err)
	}
}
