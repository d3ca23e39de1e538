package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/bulk"
)

// retryPause is the time between two tries to connect.
const retryPause = 500 * time.Millisecond

type sender struct {
	dev   verbs.Device
	addr  string
	limit time.Duration // how long the receiver may be silent
	retry time.Duration // how long to try again after the last progress
	show  func(name string, size uint64) *progress
}

// send sends the file at path under name. After a loss of the connection it tries again, and goes on where the receiver has
// what is durable, until there was no progress for s.retry.
func (s *sender) send(ctx context.Context, path, name string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // else a FIFO is waited for
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	u := &upload{sender: s, f: f, fi: fi, name: name, shown: s.show(name, uint64(fi.Size()))}
	last, most := time.Now(), uint64(0)
	for {
		err := u.try(ctx)
		if err == nil {
			u.shown.end()
			return nil
		}
		if u.acked > most {
			last, most = time.Now(), u.acked
		}
		if final(err) || ctx.Err() != nil || time.Since(last) >= s.retry {
			u.shown.end()
			return fmt.Errorf("%s: %w", path, advise(err))
		}
		u.shown.note("%v: trying again", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// final tells whether another try would end the same.
func final(err error) bool {
	return errors.As(err, new(*refusal)) || errors.As(err, new(*peerError))
}

func advise(err error) error {
	if final(err) {
		return err
	}
	return fmt.Errorf("%w; run the same command again: it goes on with what has arrived", err)
}

// upload is one file on its way.
type upload struct {
	*sender
	f     *os.File
	fi    fs.FileInfo
	name  string
	shown *progress
	acked uint64 // bytes of the file that the receiver has written

	l     *link
	sum   hash.Hash
	slot  uint64 // bytes of a slot
	slots uint64
	start uint64 // offset of the first byte of slot 0
	next  uint64 // offset of what is read next
	full  uint64 // bytes in the slot whose WRITEs are being posted; 0: none
	seq   uint64 // number of that slot, or the next
	freed uint64 // slots that the receiver has given back
	addr  uint64 // of the receiver's ring
	rkey  uint32
}

// try is one connection.
func (u *upload) try(ctx context.Context) error {
	l, err := newLink(u.dev, u.limit)
	if err != nil {
		return err
	}
	defer l.close()
	dial, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	if _, err := u.dev.Connect(dial, l.qp, u.sender.addr, []byte(private)); err != nil {
		return err
	}
	l.connected()
	u.l = l
	err = u.transfer(ctx)
	if why, ok := errors.AsType[*refusal](err); ok {
		l.giveUp(why)
	}
	return err
}

func (u *upload) size() uint64 { return uint64(u.fi.Size()) }

func (u *upload) transfer(ctx context.Context) error {
	if err := u.l.send(ctx, message{kind: kindOffer, size: u.size(), mode: uint32(u.fi.Mode().Perm()), name: u.name}); err != nil {
		return err
	}
	accept, err := u.l.expect(ctx, kindAccept)
	if err != nil {
		return err
	}
	if err := u.prepare(accept); err != nil {
		return err
	}
	if err := u.resume(ctx, accept.off, accept.sum); err != nil {
		return err
	}
	if err := u.l.send(ctx, message{kind: kindStart, off: u.start}); err != nil {
		return err
	}
	if err := u.stream(ctx); err != nil {
		return err
	}
	if err := u.unchanged(); err != nil {
		return err
	}
	sum := [sumSize]byte(u.sum.Sum(nil))
	if err := u.l.send(ctx, message{kind: kindFinish, sum: sum}); err != nil {
		return err
	}
	done, err := u.l.expect(ctx, kindDone)
	if err != nil {
		return err
	}
	if done.sum != sum {
		return refuse(reasonSum, "the receiver has SHA-256 %x, sent was %x", done.sum, sum)
	}
	return nil
}

// prepare makes the ring that the receiver's needs: slot by slot of the same size.
func (u *upload) prepare(accept *message) error {
	if accept.n == 0 || accept.n > maxSlots || accept.slot == 0 || accept.slot > 16<<20 || accept.off > u.size() {
		return refuse(reasonProtocol, "a ring of %d slots of %d bytes, and %d bytes of the file, are offered", accept.n, accept.slot, accept.off)
	}
	u.addr, u.rkey = accept.addr, accept.rkey
	u.slots, u.slot = uint64(accept.n), uint64(accept.slot)
	u.seq, u.freed, u.full = 0, 0, 0
	if err := u.l.makeRing(accept.n, accept.slot, 0); err != nil {
		return err
	}
	u.l.data = bulk.New(bulk.Config{QP: u.l.qp, Op: verbs.OpWrite, Space: u, Tag: idData, TagBits: idBits})
	return nil
}

// resume goes on behind the n bytes that the receiver has, if they have the same sum here, else begins anew.
func (u *upload) resume(ctx context.Context, n uint64, want [sumSize]byte) error {
	u.sum = sha256.New()
	if err := sumOf(ctx, u.sum, u.f, n, u.l.alive); err != nil {
		return err
	}
	u.start = n
	switch {
	case [sumSize]byte(u.sum.Sum(nil)) != want:
		u.shown.note("the %d bytes that the receiver has are not those of the file: beginning anew", n)
		u.start = 0
		u.sum.Reset()
	case n > 0:
		u.shown.note("the receiver has %d bytes already, and they are the same", n)
	}
	u.next, u.acked = u.start, u.start
	u.shown.begin(u.start)
	return nil
}

// stream sends the rest of the file.
func (u *upload) stream(ctx context.Context) error {
	for u.acked < u.size() {
		if err := u.push(ctx); err != nil {
			return err
		}
		m, err := u.l.receive(ctx, u.limit)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		if m.kind != kindFreed || m.seq <= u.freed || m.seq > u.seq {
			return outOfTurn(m, fmt.Sprintf("FREED for one of the slots %d to %d", u.freed+1, u.seq))
		}
		u.freed = m.seq
		u.acked = min(u.start+u.freed*u.slot, u.size())
		u.shown.update(u.acked)
	}
	return nil
}

// push fills slots and posts their WRITEs, as far as the ring and the window have room. The message that a slot is full goes behind
// its last WRITE, on the same queue pair, so the receiver finds the bytes there.
func (u *upload) push(ctx context.Context) error {
	for {
		if u.full == 0 {
			if err := u.fill(); err != nil {
				return err
			}
			if u.full == 0 {
				return nil
			}
		}
		if _, _, err := u.l.data.Post(); err != nil {
			return err
		}
		if !u.l.data.Posted() {
			return nil
		}
		if err := u.l.send(ctx, message{kind: kindFilled, seq: u.seq, n: uint32(u.full)}); err != nil {
			return err
		}
		u.seq++
		u.full = 0
	}
}

// fill reads the next bytes into a slot of the ring, unless all are read or no slot is free. A slot is free again once the receiver says
// so: until then the device may read it.
func (u *upload) fill() error {
	n := min(u.size()-u.next, u.slot)
	if n == 0 || u.seq-u.freed == u.slots {
		return nil
	}
	b := u.l.ring.Bytes()[u.seq%u.slots*u.slot:][:n]
	if _, err := u.f.ReadAt(b, int64(u.next)); err != nil {
		return refuse(reasonSource, "the sender cannot read byte %d of its file: %v", u.next, err)
	}
	u.sum.Write(b)
	u.l.data.Add(u.next, n)
	u.next += n
	u.full = n
	return nil
}

// Locate implements bulk.Space. Offsets are those of the file; both rings have the same slots.
func (u *upload) Locate(off, n uint64) (verbs.SGE, uint64, uint32) {
	at := (off - u.start) % (u.slots * u.slot)
	return verbs.SGE{MR: u.l.ring, Off: at, Len: n}, u.addr + at, u.rkey
}

// unchanged makes sure that the file was not written to meanwhile.
func (u *upload) unchanged() error {
	now, err := u.f.Stat()
	if err == nil && (now.Size() != u.fi.Size() || !now.ModTime().Equal(u.fi.ModTime())) {
		err = errors.New("it was written to while it was sent: send it again")
	}
	if err != nil {
		return refuse(reasonSource, "the sender's file: %v", err)
	}
	return nil
}
