package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// resized is set with other sizes of its parts in bytes; where there are more sizes, more parts.
func resized(t testing.TB, set *poolset.Set, sizes ...uint64) *poolset.Set {
	t.Helper()
	text := "PMEMPOOLSET\n"
	for i, n := range sizes {
		text += fmt.Sprintf("%d %s/part%d\n", n, filepath.Dir(set.Parts[0].Path), i)
	}
	s, err := poolset.Parse(strings.NewReader(text), "test.set")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustGrow(t testing.TB, p *Pool, set *poolset.Set) {
	t.Helper()
	want, err := p.SizeWith(set)
	if err == nil {
		err = p.Grow(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b := p.Region().Bytes(); p.Header().PoolSize != want || uint64(len(b)) != want {
		t.Fatalf("grown to %d bytes and %d in the header, want %d", len(b), p.Header().PoolSize, want)
	}
}

// sizes lists what stands in the directory of the pool, with sizes and blocks.
func sizes(t testing.TB, set *poolset.Set) string {
	t.Helper()
	var b strings.Builder
	for _, name := range names(t, set) {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(filepath.Dir(set.Parts[0].Path), name), &st); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %d\n", name, st.Size, st.Blocks)
	}
	return b.String()
}

func TestGrow_KeepsBytesAndAddsZeros(t *testing.T) {
	for _, parent := range []string{memoryDir, t.TempDir()} {
		set := newSet(t, parent, testSize/2, testSize/2)
		p := mustCreate(t, set, CreateOptions{Durability: Memory})
		before := p.Region().Bytes()
		copy(before[testSize-4:], "last")
		longer := resized(t, set, testSize/2, testSize)
		mustGrow(t, p, longer)
		more := resized(t, set, testSize/2, testSize, MinPart)
		mustGrow(t, p, more)
		mustGrow(t, p, more)
		b := p.Region().Bytes()
		if unsafe.SliceData(b) != unsafe.SliceData(before) || !bytes.Equal(b[testSize:], make([]byte, len(b)-testSize)) {
			t.Error("the region moved, or new bytes are not zero")
		}
		if p.Sparse() {
			t.Errorf("new parts have no blocks:\n%s", sizes(t, set))
		}
		copy(b[len(b)-3:], "end")
		mustClose(t, p)
		p = mustOpen(t, more, OpenOptions{})
		if b := p.Region().Bytes(); string(b[len(b)-3:]) != "end" || string(b[testSize-4:testSize]) != "last" {
			t.Error("bytes were lost by a second opening")
		}
		mustClose(t, p)
		if _, err := Open(longer, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "correct the pool set") {
			t.Errorf("opened with the set of before: %v", err)
		}
	}
}

// A pool set that is ahead of the pool does not keep anybody from using the pool.
func TestOpen_SetAheadOfThePool(t *testing.T) {
	set := newPool(t)
	for _, ahead := range []*poolset.Set{
		resized(t, set, testSize/2, 8*testSize),
		resized(t, set, testSize/2, testSize, MinPart),
		resized(t, set, testSize/2, testSize/2, MinPart),
	} {
		info, err := Inspect(ahead)
		if err != nil || info.Header.PoolSize != testSize {
			t.Errorf("Inspect: %+v, %v", info.Header, err)
		}
		p := mustOpen(t, ahead, OpenOptions{})
		if n := len(p.Region().Bytes()); n != testSize {
			t.Errorf("opened with %d bytes", n)
		}
		mustClose(t, p)
	}
	p := mustOpen(t, set, OpenOptions{})
	mustGrow(t, p, resized(t, set, testSize/2, testSize, MinPart))
	mustClose(t, p)
}

// A part before the last that was made longer would push the ones behind it out of the pool, or to other offsets.
func TestOpen_LongerPartBeforeTheLast(t *testing.T) {
	const half = testSize / 2
	for name, c := range map[string]struct {
		auto          bool
		file, in, set uint64 // bytes of the first part: its file, and what the set says; where data are in the second one
	}{
		"AUTO, the second part falls out":     {auto: true, file: testSize, in: half - 1},
		"AUTO, the second part is cut off":    {auto: true, file: testSize - 4096, in: half - 1},
		"a size, the second part falls out":   {file: testSize, set: testSize, in: 0},
		"a size, the second part is cut off":  {file: testSize, set: testSize - 4096, in: half - 1},
		"a size that the file does not have":  {file: half, set: testSize, in: 0},
		"AUTO, data in the middle of the end": {auto: true, file: testSize, in: half / 2},
	} {
		set := newSet(t, memoryDir, half, half)
		p := mustCreate(t, set, CreateOptions{Durability: Memory})
		p.Region().Bytes()[half+c.in] = 1
		mustClose(t, p)
		if err := os.Truncate(set.Parts[0].Path, int64(c.file)); err != nil {
			t.Fatal(err)
		}
		longer := resized(t, set, max(c.set, half), half)
		longer.Parts[0].Auto = c.auto
		before := sizes(t, set)
		if _, err := Inspect(longer); err == nil {
			t.Errorf("%s: Inspect takes it", name)
		}
		if p, err := Open(longer, OpenOptions{}); err == nil {
			t.Errorf("%s: opened", name)
			mustClose(t, p)
		}
		if after := sizes(t, set); after != before {
			t.Errorf("%s: before\n%safter\n%s", name, before, after)
		}
		if err := os.Truncate(set.Parts[0].Path, half); err != nil {
			t.Fatal(err)
		}
		p = mustOpen(t, set, OpenOptions{})
		if p.Region().Bytes()[half+c.in] != 1 {
			t.Errorf("%s: the byte is lost", name)
		}
		mustClose(t, p)
	}
}

func TestGrow_RefusalChangesNothing(t *testing.T) {
	set := newPool(t)
	dir := filepath.Dir(set.Parts[0].Path)
	if err := os.WriteFile(filepath.Join(dir, "part2"), []byte(strings.Repeat("\x00", 5000)+"not zero"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := mustOpen(t, set, OpenOptions{})
	defer p.Close()
	before := sizes(t, set)
	auto := resized(t, set, testSize/2, testSize/2, MinPart)
	auto.Parts[2].Auto, auto.Parts[2].Size = true, 0
	renamed := resized(t, set, testSize/2, testSize)
	renamed.Parts[1].Path += "x"
	for name, c := range map[string]struct {
		set  *poolset.Set
		want error
		text string
	}{
		"not the last":  {resized(t, set, testSize, testSize/2), ErrGrowth, "line 2"},
		"shorter":       {resized(t, set, testSize/2, testSize/4), ErrGrowth, "line 3"},
		"fewer":         {resized(t, set, testSize), ErrGrowth, "1 parts"},
		"another file":  {renamed, ErrGrowth, "part1x"},
		"new with AUTO": {auto, nil, "AUTO"},
		"new and small": {resized(t, set, testSize/2, testSize/2, 4096), nil, "at least"},
		"in the way":    {resized(t, set, testSize/2, testSize, MinPart), fs.ErrExist, "part2 holds 5008 bytes"},
		"no room":       {resized(t, set, testSize/2, 1<<50), syscall.ENOSPC, "required"},
		"no room later": {resized(t, set, testSize/2, testSize, MinPart, 1<<50), fs.ErrExist, ""},
	} {
		err := p.Grow(c.set)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if after := sizes(t, set); after != before || len(p.Region().Bytes()) != testSize || p.Header().PoolSize != testSize {
			t.Errorf("%s: before\n%safter\n%s", name, before, after)
		}
	}
	if err := os.Remove(filepath.Join(dir, "part2")); err != nil {
		t.Fatal(err)
	}
	before = sizes(t, set)
	if err := p.Grow(resized(t, set, testSize/2, testSize, MinPart, 1<<50)); !errors.Is(err, syscall.ENOSPC) || sizes(t, set) != before {
		t.Errorf("the last of three has no room: %v\n%s", err, sizes(t, set))
	}
}

// What a Grow left that was killed is taken by the next one, and so is whatever stood behind the bytes in use.
func TestGrow_AfterAnInterruptedOne(t *testing.T) {
	set := newPool(t)
	dir := filepath.Dir(set.Parts[0].Path)
	rest := append(make([]byte, testSize), "garbage"...)
	f, err := os.OpenFile(filepath.Join(dir, "part1"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(rest[testSize:], testSize/2); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(filepath.Join(dir, "part2"), rest[:testSize], 0o600); err != nil {
		t.Fatal(err)
	}
	p := mustOpen(t, set, OpenOptions{})
	defer p.Close()
	mustGrow(t, p, resized(t, set, testSize/2, testSize, MinPart))
	if b := p.Region().Bytes()[testSize:]; !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("new bytes are not zero")
	}
}

func TestGrow_SparseStaysSparse(t *testing.T) {
	set := newSet(t, memoryDir, testSize)
	p := mustCreate(t, set, CreateOptions{Durability: Memory, Sparse: true})
	defer p.Close()
	mustGrow(t, p, resized(t, set, 1<<40))
	if !p.Sparse() {
		t.Error("a TiB was allocated")
	}
}

func TestGrow_TakesAUTOFromTheFile(t *testing.T) {
	set := newPool(t)
	auto := resized(t, set, testSize/2, testSize/2)
	auto.Parts[1].Auto, auto.Parts[1].Size = true, 0
	p := mustOpen(t, auto, OpenOptions{})
	defer p.Close()
	if err := os.Truncate(auto.Parts[1].Path, testSize+5); err != nil {
		t.Fatal(err)
	}
	mustGrow(t, p, auto)
	if n := len(p.Region().Bytes()); n != testSize*3/2 {
		t.Errorf("grown to %d bytes", n)
	}
}

func TestGrow_ReadOnlyIsRefused(t *testing.T) {
	set := newPool(t)
	p := mustOpen(t, set, OpenOptions{ReadOnly: true})
	defer p.Close()
	before := sizes(t, set)
	if err := p.Grow(resized(t, set, testSize/2, testSize)); !errors.Is(err, ErrReadOnly) || sizes(t, set) != before {
		t.Errorf("%v\n%s", err, sizes(t, set))
	}
}

// A pool that is closed while it grows has grown before, or not at all.
func TestGrow_WhileClosed(t *testing.T) {
	set := newPool(t)
	for size := uint64(testSize); size < 6*testSize; size += testSize {
		p := mustOpen(t, set, OpenOptions{})
		longer := resized(t, set, testSize/2, size)
		end := make(chan error)
		go func() { end <- p.Grow(longer) }()
		mustClose(t, p)
		err := <-end
		if err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Errorf("grow to %d bytes: %v", size, err)
		}
		if err == nil {
			set = longer
		}
		info, err := Inspect(set)
		if err != nil || info.Header.PoolSize != set.Size() {
			t.Errorf("the pool has %d bytes, want %d: %v", info.Header.PoolSize, set.Size(), err)
		}
	}
}
