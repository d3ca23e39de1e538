package replicate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file tests registered memory before anything depends on it: that it could be registered does not prove that the devices can use it. Chunk
// by chunk, since a connection that fails need not tell at which work request. All that a lane reaches is tested when it is connected; what
// a growth adds is tested on a lane of its own, before that of the drains gets it.

const (
	word     = 8
	testWait = 100 * time.Millisecond // how long a test sleeps before it looks at its context
)

// span is the memory here that is registered for the pool offsets from from up to to. at finds n bytes of it, which lie in one chunk.
type span struct {
	at       func(off, n uint64) verbs.SGE
	from, to uint64
}

// prove tests all that the lane reaches. It is connected, and nothing has been posted to its send queue. After an error it is of no further use.
func (l *lane) prove(ctx context.Context) error {
	if err := l.proveTarget(ctx); err != nil {
		return err
	}
	if l.source == nil {
		return l.proveHere(ctx, span{l.fab.local.Local, 0, l.fab.local.Total()})
	}
	if err := l.proveLocal(ctx, verbs.SGE{MR: l.fab.bounce, Len: word}); err != nil {
		return l.unusable("the local bounce buffer", err)
	}
	return nil
}

func (l *lane) proveTarget(ctx context.Context) error {
	if l.staging == nil {
		return l.proveThere(ctx, 0)
	}
	if _, err := l.proveWord(ctx, l.area.Base+l.fetchAt(), l.area.RKey, anything); err != nil {
		return l.unusable("the target's staging area", err)
	}
	return nil
}

// proveThere tests the chunks of the target with pool offsets from from on. If that is not 0 the pool has just got longer by them.
func (l *lane) proveThere(ctx context.Context, from uint64) error {
	expect := anything
	if from > 0 {
		expect = newSpace
	}
	for _, off := range starts(from, l.remote.PoolSize, l.remote.ChunkSize) {
		if err := l.proveRemote(ctx, off, expect); err != nil {
			return l.unusable(fmt.Sprintf("the target's chunk %d at pool offset %d", off/l.remote.ChunkSize, off), err)
		}
	}
	return nil
}

// proveHere tests the chunks of s.
func (l *lane) proveHere(ctx context.Context, s span) error {
	chunk := l.fab.local.Size()
	for _, off := range starts(s.from, s.to, chunk) {
		if err := l.proveLocal(ctx, s.at(off, word)); err != nil {
			return l.unusable(fmt.Sprintf("the local chunk %d at pool offset %d", off/chunk, off), err)
		}
	}
	return nil
}

// starts are the pool offsets at which the chunks of a pool of size bytes begin, and in place of those before from, which is a multiple of a word, from
// itself.
func starts(from, size, chunk uint64) (offs []uint64) {
	for off := max(from, wire.FirstOffset); wire.Inside(off, word, size); off = (off/chunk + 1) * chunk {
		offs = append(offs, off)
	}
	return offs
}

// anything and newSpace say what a word of the target may hold that nobody has told of.
func anything(uint64) error { return nil }

// newSpace: what a copy gains by a growth is zero (docs/decisions/0009).
func newSpace(v uint64) error {
	if v != 0 {
		return fmt.Errorf("a READ brought %#x from where the copy has grown, which is zero", v)
	}
	return nil
}

func (l *lane) unusable(what string, err error) error {
	return fmt.Errorf("self-test of device %s: %s was registered and cannot be used: %w: see the kernel log on both machines, "+
		"or use Device DAX parts, or provider %q", l.fab.dev.Name(), what, err, "iwarp")
}

// proveRemote tries a word of the target's pool, also with the operations that only some methods have. This changes nothing: the session has
// just begun, or the pool does not use the word yet, so nobody else writes there, and the bytes are the same.
func (l *lane) proveRemote(ctx context.Context, off uint64, expect func(uint64) error) error {
	addr, rkey := l.remote.At(off)
	val, err := l.proveWord(ctx, addr, rkey, expect)
	if err != nil {
		return err
	}
	if wrs := l.how.trial(off, val); len(wrs) > 0 {
		return l.exchange(ctx, wrs...)
	}
	return nil
}

// proveWord reads a word at the target, writes it back if it is as expected, and reads it again.
func (l *lane) proveWord(ctx context.Context, addr uint64, rkey uint32, expect func(uint64) error) (uint64, error) {
	first := verbs.SendWR{Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: l.bounce, Len: word}, RemoteAddr: addr, RKey: rkey}
	if err := l.exchange(ctx, first); err != nil {
		return 0, err
	}
	b := l.bounce.Bytes()
	sent := binary.LittleEndian.Uint64(b)
	if err := expect(sent); err != nil {
		return 0, err
	}
	write, second := first, first
	write.Op, second.Local.Off = verbs.OpWrite, word
	if err := l.exchange(ctx, write, second); err != nil {
		return 0, err
	}
	if got := binary.LittleEndian.Uint64(b[word:]); got != sent {
		return 0, fmt.Errorf("a READ brought %#x where %#x was written", got, sent)
	}
	return sent, nil
}

// proveLocal writes a word from here to the target's scratch area, which holds another one, and reads it back from there. A program may store to
// the pool meanwhile, so a word that has changed proves nothing.
func (l *lane) proveLocal(ctx context.Context, s verbs.SGE) error {
	if l.scratch.Len < word {
		return fmt.Errorf("the target's scratch area has %d bytes: %w", l.scratch.Len, wire.StatusBadRequest)
	}
	before, err := load(s)
	if err != nil {
		return err
	}
	other := verbs.SGE{MR: l.bounce, Off: word, Len: word}
	binary.LittleEndian.PutUint64(l.bounce.Bytes()[word:], ^before)
	if _, err := l.viaScratch(ctx, other); err != nil {
		return err
	}
	got, err := l.viaScratch(ctx, s)
	if err != nil {
		return err
	}
	after, err := load(s)
	if err != nil {
		return err
	}
	if got != before && before == after {
		return fmt.Errorf("%#x arrived where %#x was sent", got, before)
	}
	return nil
}

// viaScratch writes a word from s to the target's scratch area, and returns what it finds there.
func (l *lane) viaScratch(ctx context.Context, s verbs.SGE) (uint64, error) {
	write := verbs.SendWR{Op: verbs.OpWrite, Signaled: true, Local: s, RemoteAddr: l.scratch.Base, RKey: l.scratch.RKey}
	read := write
	read.Op, read.Local = verbs.OpRead, verbs.SGE{MR: l.bounce, Len: word}
	err := l.exchange(ctx, write, read)
	return binary.LittleEndian.Uint64(l.bounce.Bytes()), err
}

// load loads a word of registered memory here.
func load(s verbs.SGE) (uint64, error) {
	var b [word]byte
	err := pmem.CopyOut(b[:], s.MR.Bytes()[s.Off:s.Off+word])
	return binary.LittleEndian.Uint64(b[:]), err
}

// exchange posts wrs, all of which are signaled, and returns when they are complete.
func (l *lane) exchange(ctx context.Context, wrs ...verbs.SendWR) error {
	if err := l.qp.PostSend(wrs); err != nil {
		return err
	}
	for left := len(wrs); left > 0; {
		n, err := l.cq.Poll(l.wcs[:left])
		if err != nil {
			return err
		}
		for i := range n {
			if wc := &l.wcs[i]; wc.Op == verbs.OpRecv || wc.Status != verbs.StatusOK {
				return &verbs.WCError{Op: wc.Op, Status: wc.Status, ID: wc.ID, Cause: l.qp.Err()}
			}
		}
		if left -= n; n > 0 {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := l.cq.Wait(testWait); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
	}
	return nil
}
