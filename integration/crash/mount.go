package crash

import (
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/initiator"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/verbs/region"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// This file begins lives.

// lossTimeout is how long a target may take to come back.
const lossTimeout = 5 * time.Second

// bounce is the size of bounce buffers in bytes, for copies that a device cannot have.
const bounce = 3 << 20

// begin mounts a new pool, with /dir in it.
func (w *World) begin() {
	fresh := w.format()
	w.life = &life{}
	a := &host{copyUnderTest: &copyUnderTest{name: "local copy", id: poolset.UUID{1}}}
	more := 0
	if w.cfg.Ballast > 0 {
		more = 1
	}
	origin := newLine(1, newModel(more).state())
	if w.cfg.Setup == Bare {
		w.primary = a
		a.line = origin
		w.plug(a, fresh)
		w.term = 1
		w.mountBare(w.term)
		return
	}
	b := &host{copyUnderTest: &copyUnderTest{name: "target", id: poolset.UUID{2}}}
	w.newFabric()
	a.dev, b.dev = verbstest.Small(w.fabric.Device("a"), 2*region.MinChunk), verbstest.Small(w.fabric.Device("b"), region.MinChunk) // several chunks
	a.line = origin
	state := poolset.State{Seq: 1, Term: 1, Writer: a.id, Gen: 0x6e01, Flags: poolset.Clean}
	theirs := state
	if w.cfg.Mounts {
		theirs = poolset.State{Seq: 1}
	} else {
		state.Peers[0] = b.id
		b.line = origin
	}
	w.primary, w.other = a, b
	silent := w.cfg.Effort
	if !w.cfg.Mounts {
		w.cfg.Effort = pmemtest.Effort{}
	}
	w.plug(a, withHeader(fresh, a.id, state))
	if w.cfg.Mounts {
		fresh = make([]byte, w.cfg.Size+w.cfg.Room)
	}
	w.plug(b, withHeader(fresh, b.id, theirs))
	w.serve(b)
	w.mount(a, b)
	w.cfg.Effort = silent
}

// format makes the bytes of a pool with /dir, without a header.
func (w *World) format() []byte {
	w.cfg.Volume.PoolUUID, w.cfg.Volume.HashKey = poolUUID, [16]byte{7}
	b := make([]byte, w.cfg.Size)
	r := pmemtest.Plain(b)
	err := volume.Format(r, w.cfg.Volume)
	var v *volume.Volume
	if err == nil {
		v, _, err = volume.Open(r, volume.Options{PoolUUID: poolUUID, Term: 1, Now: w.now})
	}
	if err == nil {
		_, err = v.Make(volume.Root, "dir", volume.Make{Mode: 0o40755})
	}
	if err == nil && w.cfg.Ballast > 0 {
		var a volume.Attr
		a, err = v.Make(volume.Root, "ballast", volume.Make{Mode: 0o100600})
		if err == nil {
			err = v.Fallocate(a.Ino, 0, w.cfg.Ballast)
		}
	}
	if err == nil {
		_, err = v.SettleEpoch()
	}
	if err != nil {
		w.fail(fmt.Errorf("making a pool: %w", err))
	}
	for j := v.NextJob(); j != nil; j = v.NextJob() {
		_ = pmem.Drain(r, j.Ranges, j.Seal)
		v.Sealed(j)
	}
	return append(b, make([]byte, w.cfg.Room)...)
}

// size is that of the pool, which the copy may exceed. A copy that cannot be mounted has the first one.
func (w *World) size(h *host) uint64 {
	b := h.region.Bytes()
	read := func(off uint64, to []byte) error { return second(copy(to, b[off:]), nil) }
	found, err := volume.Probe(read, poolUUID, uint64(len(b)))
	if err != nil {
		return w.cfg.Size
	}
	return found.PoolSize
}

// withHeader is b with the header of a copy.
func withHeader(b []byte, id poolset.UUID, s poolset.State) []byte {
	out := append([]byte(nil), b...)
	h := poolset.Header{Attr: poolset.Attr{Signature: poolset.Signature, Major: 1, PoolUUID: poolUUID, CopyID: id}, PoolSize: uint64(len(b))}
	h.Encode(out)
	h.Encode(out[poolset.HeaderCopyOff:])
	s.Encode(out[poolset.StateOff:], poolUUID)
	return out
}

// plug gives h memory with these bytes on the medium.
func (w *World) plug(h *host, b []byte) {
	h.region = pmemtest.New(b, w.cfg.Mode, nil)
	w.watch(h.copyUnderTest)
}

// mountBare opens the volume alone.
func (w *World) mountBare(term uint64) {
	v, rec, err := volume.Open(w.primary.region, volume.Options{PoolUUID: poolUUID, Term: term, Now: w.now, NoAtime: true})
	if err != nil {
		w.fail(err)
	}
	w.live(v, rec, 0)
}

// mount mounts the copy of h with the target t, or alone. Whatever goes wrong meanwhile, it tries again.
func (w *World) mount(h, t *host) {
	w.primary, w.other = h, t
	w.fuse, w.broken = 0, false
	if w.cfg.Mounts && w.rnd.IntN(2) == 0 {
		w.fuse = 1 + w.rnd.IntN(60)
	}
	for try := 0; ; try++ {
		err, crashed := w.attach(h, t)
		if err == nil && !crashed {
			break
		}
		if !w.broken || try > 3 {
			w.fail(fmt.Errorf("mount: %w", err))
		}
		w.broken = false
		w.counts.Cut.Add(1)
		w.endLife()
		if crashed {
			w.plug(h, w.choose(h))
		}
	}
	w.fuse = 0
	w.counts.Mounts.Add(1)
	if t != nil {
		t.follow(w.line)
		w.compare() // whether this mount copied the pool, or took the copies for equal
	}
}

// crashed is thrown where the initiator loses its power in the middle of a mount.
type crashed struct{}

// attach is one try of a mount.
func (w *World) attach(h, t *host) (err error, died bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(crashed); !ok {
				panic(p)
			}
			died = true
		}
	}()
	l := &life{}
	w.life = l
	if l.pool, err = h.open("mount"); err != nil {
		return err, false
	}
	var replicas []initiator.Replica
	if t != nil {
		l.stepper, err = replicate.NewStepper(h.dev, h.region, initiator.Identity(l.pool, w.size(h)), "pool", lossTimeout, w.cfg.Method, bounce, mountWorld{w, l})
		if err == nil {
			err = l.stepper.Connect()
		}
		if err != nil {
			return err, false
		}
		replicas = append(replicas, l.stepper)
	}
	if l.attached, err = initiator.Attach(l.pool, h.name, replicas, w.now, w.id); err != nil {
		return err, false
	}
	w.live(l.attached.Volume(), l.attached.Found(), l.attached.Seq())
	return nil, false
}

// live begins the life of a volume that was recovered: what it found becomes the model.
func (w *World) live(v *volume.Volume, found volume.Recovered, seq uint64) {
	h := w.primary
	st, err := h.judge.known(v, found, h.line)
	if err != nil {
		w.fail(fmt.Errorf("after the mount: %w", err))
	}
	w.vol = v
	w.model = w.adopt(st)
	w.line = newLine(found.LSN, w.model.state())
	w.line.states[v.LSN()] = w.line.states[found.LSN]
	v.Watch(follower{w, w.life})
	var targets []commit.Copy
	if w.stepper != nil {
		targets = append(targets, w.stepper)
	}
	l := w.life
	w.engine = commit.NewEngine(v, h.region, targets, seq, commit.Hooks{Due: func() { l.due = true }})
	w.mounted = true
	h.follow(w.line)
	h.floor = found.LSN
	if found.Slot != nil {
		w.flips = 1 // until then there is one super slot only
	}
}

// adopt makes the model of a life from the state that it recovered to, and the content found.
func (w *World) adopt(st *state) *model {
	m := newModel(st.more)
	m.clock = st.clock
	copies := make(map[*node]*node)
	for _, e := range st.entries {
		n := copies[e.node]
		if n == nil {
			n = m.make(e.node.ino, e.node.dir, e.mode)
			n.links, n.xattr, n.zeroed = e.links, e.xattr, e.node.zeroed
			if !n.dir {
				n.versions[0].data = w.content(n)
			}
			copies[e.node] = n
		}
		m.names[e.path] = n
	}
	return m
}

// content is what readers see of n.
func (w *World) content(n *node) []byte {
	a, err := w.vol.GetAttr(n.ino)
	if err != nil {
		w.fail(err)
	}
	b, err := w.primary.judge.content(w.vol, n.ino, a.Size)
	if err != nil {
		w.fail(err)
	}
	return append([]byte(nil), b...)
}

// compare tests that the target equals the local copy, which holds still.
func (w *World) compare() {
	if w.other == nil {
		return
	}
	a, b := w.primary.region.Bytes(), w.other.region.Bytes()
	at := uint64(poolset.BlockSize)
	for _, skip := range append(w.vol.LocalAreas(), pmem.Range{Off: uint64(len(a))}) {
		if off, ok := equal(a[at:skip.Off], b[at:skip.Off]); !ok {
			w.fail(fmt.Errorf("the copies are quiet and differ at offset %#x", at+uint64(off)))
		}
		at = skip.Off + skip.Len
	}
}
