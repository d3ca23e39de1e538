package target

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// sizes makes p.set name parts of these sizes in bytes: p.part, then p.part1 and so on.
func (r *rig) sizes(sizes ...uint64) {
	r.t.Helper()
	text := "PMEMPOOLSET\n"
	for i, n := range sizes {
		name := r.part()
		if i > 0 {
			name += fmt.Sprint(i)
		}
		text += fmt.Sprintf("%d %s\n", n, name)
	}
	r.set("p.set", text)
}

func (c *client) grow(session, size uint64) (wire.Grown, error) {
	var g wire.Grown
	b, err := c.ask(wire.TypeGrow, &wire.Grow{Session: session, PoolSize: size})
	if err == nil {
		err = g.Decode(b)
	}
	return g, err
}

func (c *client) mustGrow(session, size uint64) wire.Grown {
	c.t.Helper()
	g, err := c.grow(session, size)
	if err != nil || g.PoolSize < size {
		c.t.Fatalf("grow to %d bytes: %+v, %v", size, g, err)
	}
	return g
}

// A copy grows under a session: the lane and its older key go on, the new key reaches all, and the size is durable.
func TestServe_Grow(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 1))
	l := mustConnect(t, g)
	l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: 1}, pmem.Range{Off: 8192, Len: 64})

	const size = 3*partSize + 4096
	r.sizes(2*partSize, partSize+4096)
	grown := c.mustGrow(g.Session, size)
	if again := c.mustGrow(g.Session, size); !reflect.DeepEqual(again, grown) {
		t.Errorf("%+v, and again %+v", grown, again)
	}
	if st := c.state(c.must(wire.TypeHello, &wire.Hello{Pool: "p.set"})); st.PoolSize != size || st.Served != 1 {
		t.Errorf("state: %+v", st)
	}
	if err := l.write(8192, []byte("by the older key")); err != nil {
		t.Fatal(err)
	}
	l.grant.Region = grown.Region
	for off, text := range map[uint64]string{12288: "by the new key", partSize - 2: "over the border", size - 3: "end"} {
		if err := l.write(off, []byte(text)); err != nil {
			t.Fatal(err)
		}
		l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: off}, pmem.Range{Off: off, Len: uint64(len(text))})
	}
	c.must(wire.TypeClose, &wire.Close{Session: g.Session})
	if h := r.info().Header; h.PoolSize != size {
		t.Errorf("header: %+v", h)
	}
	p := r.lock()
	b := p.Region().Bytes()
	for off, text := range map[uint64]string{8192: "by the older key", 12288: "by the new key", partSize - 2: "over the border", size - 3: "end"} {
		if uint64(len(b)) != size || !bytes.HasPrefix(b[off:], []byte(text)) {
			t.Errorf("%q is not in the pool of %d bytes at offset %d", text, len(b), off)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if g := c.mustClaim(claimFor(writerA, 2)); g.PoolSize != size {
		t.Errorf("the next grant: %+v", g)
	}
}

// A target that cannot grow says why, and nothing has changed: neither its files nor the session.
func TestServe_GrowRefused(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.create()
	g := c.mustClaim(claimFor(writerA, 1))
	l := mustConnect(t, g)
	list := func() (s string) {
		names, err := filepath.Glob(r.part() + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			fi, err := os.Stat(n)
			if err != nil {
				t.Fatal(err)
			}
			s += fmt.Sprintln(n, fi.Size())
		}
		return s
	}
	before := list()
	refused := func(want wire.Status, text string, session, size uint64) {
		t.Helper()
		_, err := c.grow(session, size)
		wantStatus(t, err, want, text)
		if after := list(); after != before {
			t.Errorf("before:\n%safter:\n%s", before, after)
		}
	}
	refused(wire.StatusTooSmall, "names 2097152 bytes, 2101248 are wanted", g.Session, partSize+4096)
	refused(wire.StatusNoSession, "", g.Session+1, partSize+4096)
	r.sizes(2 * partSize)
	refused(wire.StatusTooSmall, "names 4194304 bytes, 4198400 are wanted", g.Session, 2*partSize+4096)
	r.sizes(1 << 50)
	refused(wire.StatusNoSpace, "bytes are required", g.Session, 1<<50)
	r.sizes(partSize/2, 4*partSize)
	refused(wire.StatusPoolSet, "line 2", g.Session, 2*partSize)
	r.set("p.set", fmt.Sprintf("PMEMPOOLSET\n%d %s\n%d %s/none/x\n", partSize, r.part(), partSize, r.dir))
	refused(wire.StatusPoolSet, "line 3", g.Session, 2*partSize)
	other := filepath.Join(r.dir, "other")
	if err := os.WriteFile(other, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.set("p.set", fmt.Sprintf("PMEMPOOLSET\n%d %s\n%d %s\n", partSize, r.part(), partSize, other))
	refused(wire.StatusPoolSet, "other holds 8 bytes", g.Session, 2*partSize)
	r.set("p.set", "PMEMPOOLSET\nnonsense\n")
	refused(wire.StatusPoolSet, "line 2", g.Session, 2*partSize)
	if _, err := r.dial().grow(g.Session, partSize); err == nil {
		t.Error("a connection that claimed nothing was answered")
	}
	c.mustGrow(g.Session, partSize) // it has as much
	l.mustFlush(wire.FlushOK, pmem.Seal{Off: 4096, Val: 2}, pmem.Range{Off: 8192, Len: 64})
	a, err := l.flush(pmem.Seal{}, pmem.Range{Off: partSize, Len: 4096})
	if err != nil || a.Status != wire.FlushBadRange {
		t.Errorf("a flush behind the end: %+v, %v", a, err)
	}
}
