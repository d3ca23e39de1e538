package volume

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A full pool grows: what it gains can be used once the super is sealed, and not before.
func TestGrow_FullPool(t *testing.T) {
	for _, c := range []struct{ size, room uint64 }{
		{MinPool, 2 * MinPool},
		{MinPool + 5*4096, MinPool + 6*4096}, // less than a chunk
		{MinPool + 4096, 12 << 20},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := newRoomyRig(t, c.size, c.room, Params{NodeSize: 1024})
			f := r.file("f")
			had := r.fill(f, 10_000)
			full := r.v.StatFS()
			if err := r.v.Grow(c.room); err != nil {
				t.Fatal(err)
			}
			if ok, err := r.v.CloseEpoch(); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if now := r.v.StatFS(); now.Blocks != full.Blocks {
				t.Errorf("before the super is sealed: %+v, was %+v", now, full)
			}
			r.check()
			r.drain()
			r.check()
			more := (c.room - c.size) / 4096
			if now := r.v.StatFS(); now.Blocks != full.Blocks+more || now.Free < full.Free+more {
				t.Errorf("%d blocks more: %+v, was %+v", more, now, full)
			}
			g := r.file("g")
			got, avail := r.fill(g, 10_000), r.v.StatFS()
			if want := more * 4096 / 2; got < want && more > 100 {
				t.Errorf("%d bytes fit into %d blocks more: %+v", got, more, avail)
			}
			r.commit()
			if a := r.content(f); uint64(len(a)) != had || !bytes.Equal(a[:10_000], pattern(10_000, 0)) {
				t.Errorf("%d bytes of the old file, want %d", len(a), had)
			}
			r.crash(random(t), 0.5)
			if r.rec.PoolSize != c.room || len(r.content(r.lookup("g"))) != int(got) {
				t.Errorf("recovered %d bytes of %d, %d in the pool", len(r.content(r.lookup("g"))), got, r.rec.PoolSize)
			}
			r.deleteAll()
			r.settle()
			if now := r.v.StatFS(); now.Blocks != full.Blocks+more || now.Inodes != 1 {
				t.Errorf("after everything was removed: %+v", now)
			}
		})
	}
}

func (r *rig) lookup(name string) Ino {
	r.t.Helper()
	a, err := r.v.Lookup(Root, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Ino
}

// A pool that has grown behaves like one that was made with the size.
func TestGrow_SameLimitsAsANewPool(t *testing.T) {
	const from, to = 32 << 20, 128 << 20
	grown, made := newRoomyRig(t, from, to, Params{}), newRig(t, to, Params{Chunk: 256 << 10, LogLen: 4 << 20})
	if err := grown.v.Grow(to); err != nil {
		t.Fatal(err)
	}
	grown.settle()
	made.settle()
	g, m := grown.v.super, made.v.super
	if g.Chunk != m.Chunk || g.LogLen != m.LogLen || g.PoolSize != m.PoolSize || g.Reserve != m.Reserve || grown.v.limits != made.v.limits {
		t.Errorf("grown: %+v, %+v\nmade:  %+v, %+v", g, grown.v.limits, m, made.v.limits)
	}
	if a, b := grown.v.StatFS(), made.v.StatFS(); a.Blocks-a.Avail != b.Blocks-b.Avail {
		t.Errorf("grown: %+v, made: %+v", a, b)
	}
}

// At any moment of a growth a crash leaves the old size or the new one, and the growth can be repeated.
func TestGrow_CrashAtEachStep(t *testing.T) {
	rnd := random(t)
	const room = 3 * MinPool
	for steps := 0; ; steps++ {
		r := newRoomyRig(t, MinPool, room, Params{NodeSize: 1024})
		f := r.file("f")
		r.write(f, 0, pattern(200_000, 1))
		r.commit()
		r.write(f, 100, pattern(5000, 2))
		if err := r.v.Grow(room); err != nil {
			t.Fatal(err)
		}
		if _, err := r.v.FlushAll(); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.v.CloseEpoch(); err != nil || !ok {
			t.Fatal(ok, err)
		}
		over := false
		for range steps {
			over = !r.step()
		}
		if over {
			g := r.file("g")
			r.write(g, 0, pattern(MinPool, 3))
			r.commit()
		}
		r.crash(rnd, []float64{0, 0.5, 1}[rnd.IntN(3)])
		if size := r.rec.PoolSize; size != MinPool && size != room || over && size != room {
			t.Fatalf("after %d steps: recovered to %d bytes", steps, size)
		}
		if err := r.v.Grow(room); err != nil {
			t.Fatal(err)
		}
		r.flip()
		h := r.file("h")
		r.write(h, 0, pattern(MinPool, 4))
		r.commit()
		if len(r.content(r.lookup("f"))) != 200_000 || over && !bytes.Equal(r.content(r.lookup("g")), pattern(MinPool, 3)) {
			t.Fatalf("after %d steps: content was lost", steps)
		}
		r.check()
		if over {
			return
		}
	}
}

func TestGrow_Refusals(t *testing.T) {
	r := newRoomyRig(t, MinPool, 2*MinPool, Params{})
	before := r.v.StatFS()
	for _, size := range []uint64{0, MinPool - 4096, MinPool + 1, 2*MinPool + 4096, ^uint64(0)} {
		if err := r.v.Grow(size); err == nil {
			t.Errorf("grown to %d bytes", size)
		}
	}
	if err := r.v.Grow(MinPool); err != nil {
		t.Errorf("to the size that it has: %v", err)
	}
	r.flip()
	if now := r.v.StatFS(); now != before {
		t.Errorf("%+v, was %+v", now, before)
	}
}

// Growth in small random steps, with files that come and go, and crashes.
func TestGrow_Random(t *testing.T) {
	rnd := random(t)
	const room = 4 * MinPool
	r := newRoomyRig(t, MinPool, room, Params{NodeSize: []uint32{1024, 2048, 4096}[rnd.IntN(3)]})
	size := uint64(MinPool)
	for size < room {
		size = min(room, size+4096*(1+rnd.Uint64N(60)))
		if err := r.v.Grow(size); err != nil {
			t.Fatal(err)
		}
		for range rnd.IntN(3) {
			r.step()
		}
		r.flip()
		for range 1 + rnd.IntN(4) {
			name := fmt.Sprint("f", rnd.IntN(20))
			if slices.Contains(r.names(Root), name) {
				if err := r.retry(func() error { return r.v.Unlink(Root, name) }); err != nil {
					t.Fatal(err)
				}
				continue
			}
			var a Attr
			err := r.retry(func() (err error) { a, err = r.v.Make(Root, name, Make{Mode: 0o100644}); return err })
			if err == nil {
				err = r.retry(func() error { _, err := r.v.Write(a.Ino, 0, pattern(1+rnd.IntN(200_000), 1), false); return err })
			}
			if err != nil && !errors.Is(err, ErrShort) {
				t.Fatal(err)
			}
		}
		r.commit()
		r.check()
		if rnd.IntN(3) == 0 {
			r.crash(rnd, 0.5)
			if r.rec.PoolSize != size {
				t.Fatalf("recovered to %d bytes, the pool had %d", r.rec.PoolSize, size)
			}
		}
	}
}
