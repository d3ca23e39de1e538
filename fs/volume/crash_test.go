package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// recovered opens an image, checks it, and tells its names and the group that it recovered to.
func recovered(t *testing.T, image []byte) (names int, rec Recovered) {
	t.Helper()
	r := &rig{t: t, region: pmem.NewHeap(uint64(len(image))), media: image, clock: 5_000_000, term: 99}
	copy(r.region.Bytes(), image)
	r.open()
	r.check()
	return len(r.names(Root)), r.rec
}

// TestCrashBetweenJobs makes one file per group, with checkpoints in between, and crashes after each part of each job:
// each range, then the seal. Each image must recover to the last sealed group, and Probe must say the same.
func TestCrashBetweenJobs(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 2<<20, Params{LogLen: 64 << 10})
	group := func() {
		f := r.file(fmt.Sprint("f", r.v.LSN()))
		r.write(f, 0, pattern(3000, 1))
		if _, err := r.v.FlushAll(); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.v.CloseGroup(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	crash := func(sealed uint64) {
		t.Helper()
		for _, keep := range []float64{0, 0.5, 1} {
			image := r.image(rnd, keep)
			names, rec := recovered(t, image)
			if rec.LSN != sealed || names != int(sealed) {
				t.Fatalf("recovered to group %d with %d names, expected group %d", rec.LSN, names, sealed)
			}
			probed, err := Probe(func(off uint64, b []byte) error { copy(b, image[off:]); return nil }, testUUID, uint64(len(image)))
			if err != nil || probed.LSN != rec.LSN || probed.LSNSeal != rec.LSNSeal || probed.Epoch != rec.Epoch || probed.Term != rec.Term {
				t.Fatalf("probe says %+v, %v; open says %+v", probed, err, rec)
			}
		}
	}
	sealed := uint64(0)
	for i := range 20 {
		group()
		if i%4 == 3 {
			if ok, err := r.v.CloseEpoch(); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if i%3 == 2 {
			group() // two groups under way, perhaps with a super between
		}
		r.collect()
		for len(r.jobs) > 0 {
			j := r.jobs[0]
			for n := range j.Ranges {
				crash(sealed)
				r.ranges(j, n+1)
			}
			crash(sealed)
			if !j.Super {
				sealed = j.LSN
			}
			r.step()
			crash(sealed)
		}
	}
}

// TestLogWraps writes the log many times over, on a pool with a log of the shortest length.
func TestLogWraps(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 2<<20, Params{LogLen: 64 << 10})
	f := r.file("f")
	for i := range 3000 {
		r.write(f, uint64(i%10), []byte{byte(i), byte(i >> 8)})
		if err := r.retry(func() error { return second(r.v.FlushFile(f)) }); err != nil {
			t.Fatal(err)
		}
		if err := r.retry(func() error { return second(r.v.CloseGroup()) }); err != nil {
			t.Fatal(err)
		}
		r.drain()
		if r.v.WantCheckpoint() {
			r.flip()
		}
		if i%500 == 250 {
			before := r.content(f)
			r.crash(rnd, 0.5)
			if got := r.content(f); !bytes.Equal(got, before) {
				t.Fatalf("round %d: %v, expected %v", i, got, before)
			}
			if r.rec.LSN < uint64(i) {
				t.Fatalf("recovered to group %d in round %d", r.rec.LSN, i)
			}
		}
	}
}

// TestLogIsNotReusedBeforeTheSuper: until the super is sealed, recovery needs the records before it.
func TestLogIsNotReusedBeforeTheSuper(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 4<<20, Params{LogLen: 64 << 10})
	n := 0
	group := func() error {
		n++
		if _, err := r.v.Make(Root, fmt.Sprintf("%0200d", n), Make{Mode: syscall.S_IFREG}); err != nil {
			return err
		}
		return second(r.v.CloseGroup())
	}
	for range 20 {
		want(t, "group", group(), nil)
	}
	r.drain()
	if ok, err := r.v.CloseEpoch(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for err := error(nil); err == nil; err = group() {
		if n > 1000 {
			t.Fatal("the log never is full")
		}
	}
	for i := 1; i < n; i++ { // deletions go further
		if r.v.Unlink(Root, fmt.Sprintf("%0200d", i)) != nil || second(r.v.CloseGroup()) != nil {
			break
		}
	}
	r.crash(rnd, 1)
	if got := len(r.names(Root)); r.rec.LSN != 20 || got != 20 {
		t.Errorf("recovered to group %d with %d names", r.rec.LSN, got)
	}
}

// TestLogFullIsShort: without a checkpoint changes end with ErrShort, deletions go on for a while, and one checkpoint
// helps.
func TestLogFullIsShort(t *testing.T) {
	r := newRig(t, 4<<20, Params{LogLen: 64 << 10})
	n := 0
	for ; ; n++ {
		_, err := r.v.Make(Root, fmt.Sprintf("%0100d", n), Make{Mode: syscall.S_IFREG})
		if errors.Is(err, ErrShort) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want(t, "unlink on a full log", r.v.Unlink(Root, fmt.Sprintf("%0100d", 0)), nil)
	r.drain()
	r.flip()
	want(t, "make after a checkpoint", second(r.v.Make(Root, "x", Make{Mode: syscall.S_IFREG})), nil)
}

// TestDamagedSuper flips every byte of each super slot in turn. With one slot damaged the other one counts, and Recovered
// says so; with both damaged Open says what it found where.
func TestDamagedSuper(t *testing.T) {
	r := newRig(t, 1<<20, Params{})
	r.file("f")
	r.flip()
	image := bytes.Clone(r.media)
	reg := pmem.NewHeap(uint64(len(image)))
	copy(reg.Bytes(), image)
	for slot, off := range SealWords() {
		for i := range uint64(layout.SuperEnd) {
			reg.Bytes()[off+i] ^= 0x10
			_, rec, err := Open(reg, Options{PoolUUID: testUUID, Term: 2, Now: r.now})
			reg.Bytes()[off+i] ^= 0x10
			if err != nil || !errors.Is(rec.Slot, ErrCorrupt) || !strings.Contains(rec.Slot.Error(), fmt.Sprint(off)) {
				t.Fatalf("slot %d, byte %d: %v, %v", slot, i, err, rec.Slot)
			}
			if rec.LSN != 1 {
				t.Fatalf("slot %d, byte %d: recovered to group %d", slot, i, rec.LSN)
			}
		}
	}
	for _, c := range []struct {
		what  string
		spoil func(b []byte) []byte
		uuid  [16]byte
		text  string
	}{
		{"both slots", func(b []byte) []byte { b[4100] ^= 1; b[8200] ^= 1; return b }, testUUID, "offset 4096"},
		{"zeros", func(b []byte) []byte { clear(b); return b }, testUUID, "magic"},
		{"half the pool", func(b []byte) []byte { return b[:1<<19] }, testUUID, "truncated"},
		{"a block less", func(b []byte) []byte { return b[:len(b)-4096] }, testUUID, "less than the smallest pool"},
		{"nothing", func(b []byte) []byte { return nil }, testUUID, "truncated"},
		{"another pool", func(b []byte) []byte { return b }, [16]byte{9}, "super slot"},
	} {
		b := c.spoil(bytes.Clone(image))
		reg := pmem.NewHeap(uint64(len(b)))
		copy(reg.Bytes(), b)
		_, _, err := Open(reg, Options{PoolUUID: c.uuid, Term: 2, Now: r.now})
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.what, err)
		}
		if _, err := Probe(func(off uint64, dst []byte) error {
			if copy(dst, b[min(off, uint64(len(b))):]) < len(dst) {
				return io.ErrUnexpectedEOF
			}
			return nil
		}, c.uuid, uint64(len(b))); err == nil {
			t.Errorf("%s: probe finds nothing wrong", c.what)
		}
	}
}

// TestDamagedAnywhere flips bytes of a pool at random and opens it. Whatever happens must be an error or a state, never a
// panic; damage of a node must be found.
func TestDamagedAnywhere(t *testing.T) {
	rnd := random(t)
	r := newRig(t, 2<<20, Params{LogLen: 64 << 10})
	for i := range 60 {
		f := r.file(fmt.Sprint("file", i))
		r.write(f, 0, pattern(10_000, byte(i)))
		want(t, "xattr", r.v.SetXattr(f, "user.x", pattern(i*20, 1), 0), nil)
		if i == 40 {
			r.commit()
			r.flip()
		}
	}
	r.commit()
	var nodes []uint64
	image := bytes.Clone(r.media)
	base := pmem.NewHeap(uint64(len(image)))
	copy(base.Bytes(), image)
	v, _, err := Open(base, Options{PoolUUID: testUUID, Term: 2, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	err = v.tree.Walk(false, func(off uint64, _ int, birth uint64) error {
		if birth < v.tree.Epoch() {
			nodes = append(nodes, off)
		}
		return nil
	}, nil)
	if err != nil || len(nodes) == 0 {
		t.Fatal(err, nodes)
	}
	damaged := pmem.NewHeap(uint64(len(image)))
	for i := range 300 {
		copy(damaged.Bytes(), image)
		inNode := i%2 == 0
		if inNode {
			off := pick(rnd, nodes) + uint64(rnd.IntN(4096))
			damaged.Bytes()[off] ^= 1 << rnd.IntN(8)
		} else {
			for range 1 + rnd.IntN(20) {
				damaged.Bytes()[rnd.IntN(len(image))] ^= byte(1 + rnd.IntN(255))
			}
		}
		v, _, err := Open(damaged, Options{PoolUUID: testUUID, Term: 2, Now: r.now, WalkUpTo: uint64(btoi(inNode)) << 20})
		if inNode && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a flipped bit in a node: %v", err)
		}
		if inNode {
			v, _, err = Open(damaged, Options{PoolUUID: testUUID, Term: 2, Now: r.now})
		}
		if err == nil {
			_ = v.Check(func(Finding) {})
			_ = v.ReadDir(Root, 0, func(e DirEnt) bool {
				return e.Ino != 0
			})
		}
	}
}

// TestForgedRecord: a log with valid seals and a body that maps what it must not, or is no body, is refused.
func TestForgedRecord(t *testing.T) {
	for name, body := range map[string][]byte{
		"block of the log":   layout.AppendPut(nil, extentKey(5, 0), extentValue(3, 1)),
		"behind the pool":    layout.AppendPut(nil, extentKey(5, 0), extentValue(255, 9)),
		"far behind":         layout.AppendPut(nil, extentKey(5, 0), extentValue(1<<60, 9)),
		"patch of an extent": layout.AppendPatch(nil, extentKey(5, 0), 0, []byte{1}),
		"patch of nothing":   layout.AppendPatch(nil, inodeKey(77), 0, []byte{1}),
		"no operation":       {99},
		"no inode":           layout.AppendPut(nil, inodeKey(9), []byte("short")),
		"no type":            layout.AppendPut(nil, layout.MakeKey(9, 0x77, 1), []byte("x")),
	} {
		r := newRig(t, 1<<20, Params{})
		_, seal, _, err := r.v.log.Append(body, 1, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.region.Store64(seal.Off, seal.Val); err != nil {
			t.Fatal(err)
		}
		_, _, err = Open(r.region, Options{PoolUUID: testUUID, Term: 2, Now: r.now})
		if err == nil || !strings.Contains(err.Error(), "record 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func extentValue(blk uint64, n uint32) []byte {
	b := make([]byte, layout.ExtentSize)
	e := layout.Extent{Pblk: blk, N: n}
	e.Encode(b)
	return b
}

func TestTerms(t *testing.T) {
	r := newRig(t, 1<<20, Params{})
	r.term = 7
	r.open()
	r.file("f")
	r.commit()
	if _, _, err := Open(r.region, Options{PoolUUID: testUUID, Term: 6, Now: r.now}); err == nil || !strings.Contains(err.Error(), "term 6") {
		t.Error("opened with a term that is lower than that of the log: ", err)
	}
	r.open()
	if r.rec.Term != 7 {
		t.Errorf("%+v", r.rec)
	}
}

func TestStop(t *testing.T) {
	r := newRig(t, 1<<20, Params{})
	f := r.file("f")
	cause := errors.New("the target is gone")
	r.v.Stop(cause)
	r.v.Stop(errors.New("later"))
	for what, err := range map[string]error{
		"make":      second(r.v.Make(Root, "x", Make{Mode: syscall.S_IFREG})),
		"write":     second(r.v.Write(f, 0, []byte("x"), false)),
		"setattr":   second(r.v.SetAttr(f, SetAttr{Valid: SetMode})),
		"flush":     second(r.v.FlushFile(f)),
		"flush all": second(r.v.FlushAll()),
		"group":     second(r.v.CloseGroup()),
		"epoch":     second(r.v.CloseEpoch()),
		"unlink":    r.v.Unlink(Root, "f"),
		"stopped":   r.v.Stopped(),
	} {
		if !errors.Is(err, ErrStopped) || !errors.Is(err, cause) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want(t, "lookup", second(r.v.Lookup(Root, "f")), nil)
	want(t, "read", second(r.v.Read(f, 0, make([]byte, 1))), nil)
}

func TestFormatRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		size uint64
		p    Params
		text string
	}{
		"tiny":    {1 << 19, Params{}, "at least"},
		"nodes":   {1 << 20, Params{NodeSize: 512}, "node size"},
		"chunk":   {1 << 20, Params{Chunk: 65537}, "chunk"},
		"log":     {1 << 20, Params{LogLen: 512 << 10}, "log"},
		"log2":    {1 << 20, Params{LogLen: 65537}, "log"},
		"reserve": {1 << 20, Params{Reserve: 9}, "reserve"},
		"chunky":  {1 << 20, Params{Chunk: 1 << 20, Reserve: 1}, "reserve"},
	} {
		reg := pmem.NewHeap(c.size)
		if err := c.p.Check(uint64(len(reg.Bytes()))); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: Check: %v", what, err)
		}
		if err := Format(reg, c.p); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
		if !bytes.Equal(reg.Bytes(), make([]byte, c.size)) {
			t.Errorf("%s: bytes were stored", what)
		}
	}
}

// TestFormatForgets: an old log of the same pool must not continue the new one.
func TestFormatForgets(t *testing.T) {
	r := newRig(t, 1<<20, Params{})
	r.file("f")
	r.commit()
	if err := Format(r.region, Params{PoolUUID: testUUID, HashKey: [16]byte{42}}); err != nil {
		t.Fatal(err)
	}
	r.open()
	if got := r.names(Root); len(got) != 0 || r.rec.LSN != 0 {
		t.Errorf("%q, %+v", got, r.rec)
	}
}

func TestConcurrent(t *testing.T) {
	r := newRig(t, 32<<20, Params{})
	var mu sync.Mutex // jobs are run one after the other
	commit := func() {
		mu.Lock()
		defer mu.Unlock()
		if _, err := r.v.CloseGroup(); err != nil {
			t.Error(err)
		}
		for j := r.v.NextJob(); j != nil; j = r.v.NextJob() {
			if err := pmem.Drain(r.region, j.Ranges, j.Seal); err != nil {
				t.Error(err)
			}
			r.v.Sealed(j)
		}
		if r.v.WantCheckpoint() {
			if _, err := r.v.CloseEpoch(); err != nil {
				t.Error(err)
			}
		}
	}
	deadline := time.Now().Add(500 * time.Millisecond)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			buf := make([]byte, 5000)
			for i := 0; time.Now().Before(deadline); i++ {
				name := fmt.Sprintf("%d-%d", g, i%20)
				a, err := r.v.Make(Root, name, Make{Mode: syscall.S_IFREG})
				if err != nil {
					t.Error(err)
					return
				}
				r.v.Hold(a.Ino)
				data := pattern(5000, byte(i))
				if _, err := r.v.Write(a.Ino, uint64(i%3000), data, true); err != nil && !errors.Is(err, ErrShort) {
					t.Error(err)
				}
				if _, err := r.v.FlushFile(a.Ino); err != nil {
					t.Error(err)
				}
				if n, err := r.v.Read(a.Ino, uint64(i%3000), buf); err != nil || !bytes.Equal(buf[:n], data[:n]) {
					t.Error("read differs", n, err)
				}
				commit()
				_ = r.v.ReadDir(Root, 0, func(DirEnt) bool { return true })
				r.v.StatFS()
				if err := r.v.Unlink(Root, name); err != nil {
					t.Error(err)
				}
				r.v.Forget(a.Ino, 1)
				if _, err := r.v.Reclaim(); err != nil && !errors.Is(err, ErrShort) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.media = bytes.Clone(r.region.Bytes())
	r.check()
}
