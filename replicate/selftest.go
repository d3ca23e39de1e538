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
	for _, off := range starts(l.size, l.remote.ChunkSize) {
		if err := l.proveRemote(ctx, off); err != nil {
			return l.unusable("the target's chunk", off, l.remote.ChunkSize, err)
		}
	}
	for _, off := range starts(l.size, l.fab.local.Size()) {
		if err := l.proveLocal(ctx, off); err != nil {
			return l.unusable("the local chunk", off, l.fab.local.Size(), err)
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

func (l *lane) unusable(whose string, off, chunk uint64, err error) error {
	return fmt.Errorf("self-test of device %s: %s %d at pool offset %d was registered and cannot be used: %w: see the kernel log on both machines, "+
		"or use Device DAX parts, or provider %q", l.fab.dev.Name(), whose, off/chunk, off, err, "iwarp")
}

// proveRemote reads a word of the target's pool, writes it back, and reads it again; then come the operations that only some methods
// have. This changes nothing: the session has just begun, so nobody else writes there, and the bytes are the same.
func (l *lane) proveRemote(ctx context.Context, off uint64) error {
	addr, rkey := l.remote.At(off)
	first := verbs.SendWR{Op: verbs.OpRead, Signaled: true, Local: verbs.SGE{MR: l.bounce, Len: word}, RemoteAddr: addr, RKey: rkey}
	if err := l.exchange(ctx, first); err != nil {
		return err
	}
	write, second := first, first
	write.Op, second.Local.Off = verbs.OpWrite, word
	if err := l.exchange(ctx, write, second); err != nil {
		return err
	}
	b := l.bounce.Bytes()
	if sent, got := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[word:]); got != sent {
		return fmt.Errorf("a READ brought %#x where %#x was written", got, sent)
	}
	if wrs := l.how.trial(off, binary.LittleEndian.Uint64(b)); len(wrs) > 0 {
		return l.exchange(ctx, wrs...)
	}
	return nil
}

// proveLocal writes a word of the pool here to the target's scratch area, and reads it back from there. A program may store to the pool
// meanwhile, so a word that has changed proves nothing.
func (l *lane) proveLocal(ctx context.Context, off uint64) error {
	if l.scratch.Len < word {
		return fmt.Errorf("the target's scratch area has %d bytes: %w", l.scratch.Len, wire.StatusBadRequest)
	}
	before, err := l.localWord(off)
	if err != nil {
		return err
	}
	write := verbs.SendWR{Op: verbs.OpWrite, Signaled: true, Local: l.fab.local.Local(off, word), RemoteAddr: l.scratch.Base, RKey: l.scratch.RKey}
	read := write
	read.Op, read.Local = verbs.OpRead, verbs.SGE{MR: l.bounce, Len: word}
	if err := l.exchange(ctx, write, read); err != nil {
		return err
	}
	after, err := l.localWord(off)
	if err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(l.bounce.Bytes()); got != before && before == after {
		return fmt.Errorf("%#x arrived where %#x was sent", got, before)
	}
	return nil
}

// localWord loads the word at off of the pool here.
func (l *lane) localWord(off uint64) (uint64, error) {
	s := l.fab.local.Local(off, word)
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
