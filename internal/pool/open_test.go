package pool

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// editHeader rewrites header and copy with a valid CRC.
func editHeader(t *testing.T, set *poolset.Set, change func(*poolset.Header)) {
	t.Helper()
	edit(t, set, func(b []byte) {
		var h poolset.Header
		if err := h.Decode(b); err != nil {
			t.Fatal(err)
		}
		change(&h)
		h.Encode(b)
		h.Encode(b[poolset.HeaderCopyOff:])
	})
}

// editState rewrites the current state in place with a valid CRC.
func editState(t *testing.T, set *poolset.Set, change func(*poolset.State)) {
	t.Helper()
	edit(t, set, func(b []byte) {
		var h poolset.Header
		if err := h.Decode(b); err != nil {
			t.Fatal(err)
		}
		s, slot, err := poolset.CurrentState(b, h.PoolUUID)
		if err != nil {
			t.Fatal(err)
		}
		change(&s)
		s.Encode(b[poolset.StateOff+slot*poolset.StateLen:], h.PoolUUID)
	})
}

func TestOpenErrors(t *testing.T) {
	is := func(target error, words ...string) func(error) bool {
		return func(err error) bool {
			for _, w := range words {
				if !strings.Contains(err.Error(), w) {
					return false
				}
			}
			return target == nil || errors.Is(err, target)
		}
	}
	short := func(expected, found uint64) func(error) bool {
		return func(err error) bool {
			var se *pmem.SizeError
			return errors.As(err, &se) && se.Expected == expected && se.Found == found
		}
	}
	corrupt := func(off uint64) func(error) bool {
		return func(err error) bool {
			var ce *poolset.CorruptError
			return errors.As(err, &ce) && ce.Off == off && ce.Expected != "" && ce.Found != "" && !errors.Is(err, ErrNotPool)
		}
	}
	for name, c := range map[string]struct {
		harm    func(set *poolset.Set)
		check   func(error) bool
		inspect bool // Inspect gives an error too
	}{
		"missing part": {
			func(set *poolset.Set) { os.Remove(set.Parts[1].Path) }, is(fs.ErrNotExist, "part1", "line 3"), true},
		"truncated part": {
			func(set *poolset.Set) { os.Truncate(set.Parts[1].Path, 5000) }, short(testSize/2, 5000), true},
		"empty part": {
			func(set *poolset.Set) { os.Truncate(set.Parts[0].Path, 0) }, short(testSize/2, 0), true},
		"directory": {
			func(set *poolset.Set) {
				os.Remove(set.Parts[1].Path)
				os.Mkdir(set.Parts[1].Path, 0o700)
			}, is(nil, "not a regular file"), true},
		"text file": {
			func(set *poolset.Set) { edit(t, set, func(b []byte) { copy(b, strings.Repeat("text ", 800)) }) },
			is(ErrNotPool, `found "text tex"`), true},
		"zeros": {
			func(set *poolset.Set) { edit(t, set, func(b []byte) { clear(b) }) }, is(ErrNotPool, "expected signature"), true},
		"other program": {
			func(set *poolset.Set) { editHeader(t, set, func(h *poolset.Header) { h.Signature[0] = 'X' }) },
			is(ErrNotPool, `"XMEMFS\x00\x00"`, "another program"), false},
		"newer version": {
			func(set *poolset.Set) { editHeader(t, set, func(h *poolset.Header) { h.Major = 2 }) },
			is(ErrVersion, "expected version 1, found 2"), false},
		"incompatible feature": {
			func(set *poolset.Set) { editHeader(t, set, func(h *poolset.Header) { h.Incompat = 8 }) }, is(ErrVersion, "0x8"), false},
		"feature for writers": {
			func(set *poolset.Set) { editHeader(t, set, func(h *poolset.Header) { h.ROCompat = 4 }) },
			is(ErrVersion, "0x4", "read-only"), false},
		"other size": {
			func(set *poolset.Set) { editHeader(t, set, func(h *poolset.Header) { h.PoolSize += 4096 }) },
			is(nil, "1052672", "1048576"), true},
		"corrupt header": {
			func(set *poolset.Set) {
				edit(t, set, func(b []byte) { b[0x20]++; b[poolset.HeaderCopyOff+0x20]++ })
			}, corrupt(0x98), true},
		"corrupt state": {
			func(set *poolset.Set) { edit(t, set, func(b []byte) { b[poolset.StateOff]++ }) }, corrupt(poolset.StateOff), true},
	} {
		set := newPool(t)
		c.harm(set)
		before := names(t, set)
		p, err := Open(set, OpenOptions{})
		if err == nil || p != nil || !c.check(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Inspect(set); (err != nil) != c.inspect {
			t.Errorf("%s: Inspect: %v", name, err)
		}
		if after := names(t, set); len(after) != len(before) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
}

func TestOpenOfNothingLeavesNoLockFile(t *testing.T) {
	set := newSet(t, memoryDir, testSize)
	if _, err := Open(set, OpenOptions{}); !errors.Is(err, fs.ErrNotExist) || len(names(t, set)) != 0 {
		t.Errorf("missing: %v, left %v", err, names(t, set))
	}
	if err := os.WriteFile(set.Parts[0].Path, make([]byte, testSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(set, OpenOptions{}); !errors.Is(err, ErrNotPool) || len(names(t, set)) != 1 {
		t.Errorf("zeros: %v, left %v", err, names(t, set))
	}
}

func TestOpenForeignSignatureAndReadOnlyFeatures(t *testing.T) {
	set := newPool(t)
	editHeader(t, set, func(h *poolset.Header) { h.Signature, h.Major, h.Incompat = [8]byte{'O', 'B', 'J'}, 6, 2 })
	mustClose(t, mustOpen(t, set, OpenOptions{AnySignature: true}))
	editHeader(t, set, func(h *poolset.Header) { h.Signature, h.Major, h.Incompat, h.ROCompat = poolset.Signature, 1, 0, 4 })
	mustClose(t, mustOpen(t, set, OpenOptions{ReadOnly: true}))
}

func TestOpenTakesAUTOFromTheFile(t *testing.T) {
	set := newPool(t)
	set.Parts[1].Auto, set.Parts[1].Size = true, 0
	mustClose(t, mustOpen(t, set, OpenOptions{}))
	if _, err := Inspect(set); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesMediaInMemory(t *testing.T) {
	set := newPool(t)
	_, err := Open(set, OpenOptions{Durability: Media})
	if !errors.Is(err, ErrDurability) || !strings.Contains(err.Error(), `durability = "memory"`) {
		t.Errorf("%v", err)
	}
	mustClose(t, mustOpen(t, set, OpenOptions{Durability: Memory}))
}

func TestClassChangeIsPersistent(t *testing.T) {
	set := newSet(t, t.TempDir(), testSize)
	p := mustCreate(t, set, CreateOptions{Durability: Memory})
	onMedia := p.Region().Promise() != pmem.Volatile
	mustClose(t, p)
	p, err := Open(set, OpenOptions{Durability: Media})
	if !onMedia {
		if !errors.Is(err, ErrDurability) {
			t.Errorf("temporary files are in memory: %v", err)
		}
		return
	}
	if err != nil || p.State().Flags != 0 || !p.State().BootID.IsZero() || p.State().Seq != 2 {
		t.Fatalf("memory to media: %+v, %v", p.State(), err)
	}
	mustClose(t, p)
	if info, err := Inspect(set); err != nil || info.stored.Flags != 0 {
		t.Errorf("stored: %+v, %v", info.stored, err)
	}
	p = mustOpen(t, set, OpenOptions{Durability: Memory})
	mustClose(t, p)
	if info, err := Inspect(set); err != nil || info.stored.Flags != poolset.Memory || info.stored.BootID.IsZero() {
		t.Errorf("media to memory: %+v, %v", info.stored, err)
	}
}

func TestRebootLosesClassMemory(t *testing.T) {
	set := newPool(t)
	editState(t, set, func(s *poolset.State) {
		s.BootID, s.SyncGen = poolset.NewUUID(), 5
		s.Flags |= poolset.Clean
	})
	const want = poolset.Memory | poolset.Inconsistent
	info, err := Inspect(set)
	if err != nil || info.State.Flags != want || info.stored.Flags != poolset.Memory|poolset.Clean {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	p := mustOpen(t, set, OpenOptions{ReadOnly: true})
	if s := p.State(); s.Flags != want {
		t.Errorf("read-only: %+v", s)
	}
	mustClose(t, p)
	p = mustOpen(t, set, OpenOptions{})
	if s := p.State(); s.Flags != want || s.SyncGen != 0 {
		t.Errorf("opened: %+v", s)
	}
	mustClose(t, p)
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	if info, err = Inspect(set); err != nil || info.stored.Flags != want || info.stored.BootID != boot {
		t.Errorf("stored: %+v, %v", info.stored, err)
	}
	p = mustOpen(t, set, OpenOptions{}) // the mark outlives the boot id
	if s := p.State(); s.Flags != want {
		t.Errorf("opened again: %+v", s)
	}
	mustClose(t, p)
}
