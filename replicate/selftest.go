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

// This file tests the registered memory of a lane that has just been connected, before anything depends on it: that it could be registered
// does not prove that the devices can use it. Chunk by chunk, since a connection that fails need not tell at which work request.

const (
	word     = 8
	testWait = 100 * time.Millisecond // how long a test sleeps before it looks at its context
)

// prove runs the self-test. The lane is connected, and nothing has been posted to its send queue. After an error it is of no further use.
func (l *lane) prove(ctx context.Context) error {
	if err := l.proveTarget(ctx); err != nil {
		return err
	}
	if l.source != nil {
		if err := l.proveLocal(ctx, verbs.SGE{MR: l.fab.bounce, Len: word}); err != nil {
			return l.unusable("the local bounce buffer", err)
		}
		return nil
	}
	for _, off := range starts(l.size, l.fab.local.Size()) {
		if err := l.proveLocal(ctx, l.fab.local.Local(off, word)); err != nil {
			return l.unusable(fmt.Sprintf("the local chunk %d at pool offset %d", off/l.fab.local.Size(), off), err)
		}
	}
	return nil
}

func (l *lane) proveTarget(ctx context.Context) error {
	if l.staging != nil {
		if _, err := l.proveWord(ctx, l.area.Base+l.fetchAt(), l.area.RKey); err != nil {
			return l.unusable("the target's staging area", err)
		}
		return nil
	}
	for _, off := range starts(l.size, l.remote.ChunkSize) {
		if err := l.proveRemote(ctx, off); err != nil {
			return l.unusable(fmt.Sprintf("the target's chunk %d at pool offset %d", off/l.remote.ChunkSize, off), err)
		}
	}
	return nil
}

// starts are the pool offsets at which the chunks of a pool of size bytes begin.
func starts(size, chunk uint64) (offs []uint64) {
	for off := uint64(wire.FirstOffset); wire.Inside(off, word, size); off = (off/chunk + 1) * chunk {
		offs = append(offs, off)
	}
	return offs
}

func (l *lane) unusable(what string, err error) error {
	return fmt.Errorf("self-test of device %s: %s was registered and cannot be used: %w: see the kernel log on both machines, "+
		"or use Device DAX parts, or provider %q", l.fab.dev.Name(), what, err, "iwarp")
}

// proveRemote tries a word of the target's pool, also with the operations that only some methods have. This changes nothing: the session has
// just begun, so nobody else writes there, and the bytes are the same.
func (l *lane) proveRemote(ctx context.Context, off uint64) error {
	addr, rkey := l.remote.At(off)
	val, err := l.proveWord(ctx, addr, rkey)
	if err != nil {
		return err
	}
	if wrs := l.how.trial(off, val); len(wrs) > 0 {
		return l.exchange(ctx, wrs...)
	}
	return nil
}

// proveWord reads a word at the target, writes it back, and reads it again.
func (l *lane) proveWord(ctx context.Context, addr uint64, rkey uint32) (uint64, error) {
	first := verbs.SendWR{Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: l.bounce, Len: word}, RemoteAddr: addr, RKey: rkey}
	if err := l.exchange(ctx, first); err != nil {
		return 0, err
	}
	write, second := first, first
	write.Op, second.Local.Off = verbs.OpWrite, word
	if err := l.exchange(ctx, write, second); err != nil {
		return 0, err
	}
	b := l.bounce.Bytes()
	sent, got := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[word:])
	if got != sent {
		return 0, fmt.Errorf("a READ brought %#x where %#x was written", got, sent)
	}
	return sent, nil
}

// proveLocal writes a word from here to the target's scratch area, and reads it back from there. A program may store to the pool
// meanwhile, so a word that has changed proves nothing.
func (l *lane) proveLocal(ctx context.Context, s verbs.SGE) error {
	if l.scratch.Len < word {
		return fmt.Errorf("the target's scratch area has %d bytes: %w", l.scratch.Len, wire.StatusBadRequest)
	}
	before, err := load(s)
	if err != nil {
		return err
	}
	write := verbs.SendWR{Op: verbs.OpWrite, Signaled: true, Local: s, RemoteAddr: l.scratch.Base, RKey: l.scratch.RKey}
	read := write
	read.Op, read.Local = verbs.OpRead, verbs.SGE{MR: l.bounce, Len: word}
	if err := l.exchange(ctx, write, read); err != nil {
		return err
	}
	after, err := load(s)
	if err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(l.bounce.Bytes()); got != before && before == after {
		return fmt.Errorf("%#x arrived where %#x was sent", got, before)
	}
	return nil
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
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.cq.Wait(testWait); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
	}
	return nil
}
