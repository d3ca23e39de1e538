package replicate

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

const grownSize = 2 << 20

func (b *bench) answerGrown(size uint64) []Action {
	g := wire.Grown{Region: testRegion(size, 2)}
	return b.answer(wire.StatusOK, g.Append(nil))
}

func TestMachine_Grow(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	b.drain(1)
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.want(InSync, "GROW")
	b.drain(2)
	b.want(InSync, "post2") // drains go on meanwhile
	b.conn(Event{Kind: EvAnswered, Seq: 1})
	b.want(InSync, "drained1")
	b.answerGrown(grownSize)
	b.want(InSync, "prove1048576")
	if b.m.grant.Chunks[0].RKey != 1 || b.m.peer.PoolSize != 1<<20 {
		t.Errorf("grant %+v before it is proven", b.m.grant)
	}
	b.drain(3)
	b.want(InSync, "post3") // and during the self-test
	b.conn(Event{Kind: EvProven})
	b.want(InSync, "regrant2 done")
	if g := b.m.grant; g.PoolSize != grownSize || g.Session != 77 || g.Credits != 64 || b.m.peer.PoolSize != grownSize || b.m.id.Size != 1<<20 {
		t.Errorf("grant %+v, peer %+v, local %+v", g, b.m.peer, b.m.id)
	}
	b.m.Extend(grownSize)
	b.conn(Event{Kind: EvLost, Err: errors.New("reset")})
	b.now = b.m.dialAt
	b.step(Event{Kind: EvTick})
	b.conn(Event{Kind: EvDialed})
	small := peerState()
	small.Gen, small.Term = 101, 6
	b.answerState(small)
	b.want(Refused, "break drained2! drained3!") // a smaller one comes back
	if !errors.Is(b.m.Err(), wire.StatusTooSmall) {
		t.Errorf("%v", b.m.Err())
	}
}

// A refusal, and an answer that grants too little, end the request alone. Only a fenced session ends.
func TestMachine_GrowRefused(t *testing.T) {
	for s := wire.StatusVersion; s <= wire.StatusPoolSet; s++ {
		b := newBench(t, testTimeout)
		b.inSync()
		b.drain(1)
		b.step(Event{Kind: EvGrow, Size: grownSize})
		b.refuse(s)
		if s == wire.StatusFenced {
			b.want(Refused, "break drained1! done!")
			continue
		}
		b.want(InSync, "done!")
		b.drain(2)
		b.want(InSync, "post2")
		b.step(Event{Kind: EvGrow, Size: grownSize})
		b.answerGrown(grownSize)
		b.conn(Event{Kind: EvProven})
		b.want(InSync, "regrant2 done")
	}
	b := newBench(t, testTimeout)
	b.inSync()
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.answerGrown(grownSize - 4096)
	b.want(InSync, "done!")
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.answer(wire.StatusOK, []byte("?"))
	b.want(Suspended, "break done! dial")
}

// Chunks that fail their self-test end the request alone, and the lane keeps what it has. The next try finds the copy large enough, and tests again.
func TestMachine_GrowNotProven(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	for range 2 {
		b.step(Event{Kind: EvGrow, Size: grownSize})
		b.answerGrown(grownSize)
		b.want(InSync, "prove1048576")
		b.conn(Event{Kind: EvProven, Err: errTest})
		b.want(InSync, "done!")
		if !errors.Is(b.last[0].Err, errTest) || b.m.grant.PoolSize != 1<<20 || b.m.peer.PoolSize != 1<<20 {
			t.Errorf("%v, grant %+v", b.last[0].Err, b.m.grant)
		}
	}
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.answerGrown(grownSize)
	b.conn(Event{Kind: EvProven})
	b.want(InSync, "regrant2 done")
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.answerGrown(grownSize)
	b.want(InSync, "regrant2 done") // nothing is new

	b.step(Event{Kind: EvGrow, Size: 2 * grownSize}) // the connection is lost meanwhile
	b.answerGrown(2 * grownSize)
	proven := Event{Kind: EvProven, Conn: b.m.conn}
	b.conn(Event{Kind: EvLost, Err: errTest})
	b.want(Suspended, "break done! dial")
	b.step(proven)
	b.want(Suspended, "")

	b = newBench(t, testTimeout) // the replica is closed meanwhile
	b.inSync()
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.answerGrown(grownSize)
	b.step(Event{Kind: EvClose})
	b.want(InSync, "done! CLOSE")
	b.conn(Event{Kind: EvProven})
	b.want(InSync, "")
	b.answer(wire.StatusOK, nil)
	b.want(Detached, "break done")
}

// The lane works with chunks or with a staging area as long as it lives, and what is in use stays where it is. An answer that would have that
// change is refused.
func TestMachine_GrowKeepsTheWay(t *testing.T) {
	region := func(size, chunk uint64, keys ...uint32) wire.Region {
		r := wire.Region{PoolSize: size, ChunkSize: chunk}
		for _, k := range keys {
			r.Chunks = append(r.Chunks, wire.Chunk{Base: 1 << 38, RKey: k})
		}
		return r
	}
	const half = 1 << 19
	staged, chunks := region(1<<20, 0), region(1<<20, half, 1, 2)
	for _, c := range []struct {
		name       string
		old, grown wire.Region
		want       string
	}{
		{"from chunks to a staging area", chunks, region(grownSize, 0), "done!"},
		{"from a staging area to chunks", staged, region(grownSize, 1<<20, 1, 2), "done!"},
		{"a staging area", staged, region(grownSize, 0), "regrant done"},
		{"other chunks", chunks, region(grownSize, 1<<20, 1, 2), "done!"},
		{"moved", chunks, region(grownSize, half, 1, 7, 3, 4), "done!"},
		{"more chunks", chunks, region(grownSize, half, 1, 2, 3, 4), "prove1048576"},
		{"a longer last chunk", region(1<<20+4096, half, 1, 2, 3), region(grownSize, half, 1, 2, 7, 4), "prove1052672"},
		{"the same size, moved", region(grownSize, half, 1, 2, 3, 4), region(grownSize, half, 1, 2, 3, 7), "done!"},
		{"a part of a word", chunks, region(grownSize+4, half, 1, 2, 3, 4, 5), "done!"},
		{"less than before", region(2*grownSize, grownSize, 1, 2), region(grownSize, grownSize, 1), "done!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testTimeout)
			b.inSync()
			b.m.grant.Region, b.m.grant.Staging = c.old, wire.Area{Len: 8 << 20}
			b.step(Event{Kind: EvGrow, Size: grownSize})
			g := wire.Grown{Region: c.grown}
			b.answer(wire.StatusOK, g.Append(nil))
			b.want(InSync, c.want)
		})
	}
}

// The target may allocate for long, but not for ever; and a lane that fails meanwhile is noticed as fast as ever.
func TestMachine_GrowDeadline(t *testing.T) {
	b := newBench(t, testTimeout)
	b.inSync()
	b.step(Event{Kind: EvGrow, Size: grownSize})
	asked := b.now
	b.now = asked + GrowTimeout - 1
	b.step(Event{Kind: EvTick})
	b.want(InSync, "")
	if at, ok := b.m.Next(); !ok || at != asked+GrowTimeout {
		t.Errorf("next look at %v", at)
	}
	b.now++
	b.step(Event{Kind: EvTick})
	b.want(Suspended, "break done! dial")

	b = newBench(t, testTimeout)
	b.inSync()
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.drain(1)
	b.now += testTimeout
	b.step(Event{Kind: EvTick})
	b.want(Failed, "break drained1! done!")

	b = newBench(t, testTimeout)
	b.hello(peerState())
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.want(Handshake, "done!")

	b = newBench(t, testTimeout)
	b.inSync()
	b.conn(Event{Kind: EvLost, Err: errors.New("cable cut")})
	b.want(Suspended, "break dial")
	b.step(Event{Kind: EvGrow, Size: grownSize})
	b.want(Suspended, "done!")
	if err := b.last[0].Err; !errors.Is(err, ErrOrder) || !strings.Contains(err.Error(), "away (cable cut): wait until") {
		t.Errorf("grow of a target that is away: %v", err)
	}
}

// prefix is a region of which only the first n bytes are there.
type prefix struct {
	pmem.Region
	n uint64
}

func (p prefix) Bytes() []byte { return p.Region.Bytes()[:p.n] }

// Drains go on while the copies grow, and reach the new space afterwards; a lost connection comes back with it.
func TestReplica_GrowWhileDraining(t *testing.T) {
	methods(t, func(t *testing.T, rig rig, m wire.Method) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		all := pmem.NewHeap(2 * testSize)
		p := newPairWith(t, rig, prefix{all, testSize}, m, 20*time.Second)
		p.attach()
		seq := uint64(0)
		drain := func(off, n uint64) {
			t.Helper()
			seq++
			fill(p.region.Bytes()[off:off+n], rng)
			p.Drain(seq, []pmem.Range{{Off: off, Len: n}}, pmem.Seal{Off: testSeal, Val: seq})
			must(t, p.expect(seq))
		}
		drain(1<<20, 4096)
		if err := p.Grow(t.Context(), 4*testSize); !errors.Is(err, wire.StatusTooSmall) || !strings.Contains(err.Error(), "target b: grow to 16777216 bytes") {
			t.Errorf("too much: %v", err)
		}
		over := make(chan error)
		go func() { over <- p.Grow(context.Background(), 2*testSize) }()
		for grown := false; !grown; {
			drain(uint64(1+rng.IntN(3))<<20, 1<<19)
			select {
			case err := <-over:
				must(t, err)
				grown = true
			default:
			}
		}
		must(t, p.Extend(all, 2*testSize))
		p.region = all
		drain(testSize-4096, 8192) // over the border
		drain(2*testSize-4096, 4096)
		b := make([]byte, 4096)
		must(t, p.ReadAt(2*testSize-4096, b))
		if !bytes.Equal(b, all.Bytes()[2*testSize-4096:]) {
			t.Error("other bytes were read from the end than were written")
		}
		must(t, p.Grow(t.Context(), 2*testSize)) // again
		p.target.hangUp()
		drain(2*testSize-8192, 4096)
		p.target.hangUp()
		must(t, p.Close(context.Background()))
		mem := p.target.memory()
		for _, at := range []uint64{testSize - 4096, 2*testSize - 8192} {
			if !bytes.Equal(mem[at:at+8192], all.Bytes()[at:at+8192]) {
				t.Errorf("the copies differ behind offset %d", at)
			}
		}
	})
}
