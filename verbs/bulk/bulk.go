// Package bulk moves long runs of bytes over a queue pair: in chunks, with a window of work requests in flight, of which few are
// signaled. Full copies of a pool, file transfers and the bandwidth benchmark use it.
//
// A Copier neither waits nor polls, so that it can share a queue pair and its completion queue with other work: Post posts
// what the window has room for, Complete takes a completion that is its own. Run does both in a loop, for users that have
// nothing else to do meanwhile.
//
// What is complete has left this side, no more (see package verbs): that WRITEs are placed is proven by the answer to a later Send
// or by a later READ, and the source is not stored to before that.
package bulk

import (
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
)

// Sizes of a Copier that are good for every provider measured.
const (
	DefaultChunk  = 256 << 10 // bytes of one work request
	DefaultWindow = 16        // work requests in flight
)

// signals is how many work requests of a window are signaled. With one, the queue would run empty before its places come back.
const signals = 4

// Space says where the bytes lie that a Copier moves. Offsets count as its user likes.
type Space interface {
	// Locate finds offset off on both sides. Local.Len is how many of the n bytes from there on (n is at least 1) lie in one piece on both.
	Locate(off, n uint64) (local verbs.SGE, addr uint64, rkey uint32)
}

// Config of a Copier.
type Config struct {
	QP     verbs.QP     // its SendDepth has Window places that nobody else uses
	Op     verbs.Opcode // OpWrite, or OpRead
	Space  Space
	Chunk  uint64 // most bytes of one work request; 0: DefaultChunk
	Window int    // most work requests in flight; 0: DefaultWindow
	// Work request n, counted from 0, has the ID n<<TagBits | Tag. No other work request or receive of the completion queue has these low bits.
	Tag     uint64
	TagBits uint
}

// Copier moves one run of bytes after the other. Its methods are called by one goroutine at a time.
type Copier struct {
	Config
	next, end uint64 // what is left of the run

	posted, done uint64  // work requests
	pieces       []piece // ring: what number n moves is in n % Window
	wrs          []verbs.SendWR
	wcs          [batch]verbs.WC // of Run
}

type piece struct{ off, n uint64 }

// New makes a Copier.
func New(c Config) *Copier {
	if c.Chunk == 0 {
		c.Chunk = DefaultChunk
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	c.Chunk = min(c.Chunk, verbs.MaxMessage)
	return &Copier{Config: c, pieces: make([]piece, c.Window), wrs: make([]verbs.SendWR, c.Window)}
}

// Add appends n bytes at off to what is to be moved. The run before must have been posted whole.
func (c *Copier) Add(off, n uint64) {
	if !c.Posted() {
		panic("bulk: a run is added to one that is not posted")
	}
	c.next, c.end = off, off+n
}

// Posted tells whether all that was added is posted.
func (c *Copier) Posted() bool { return c.next == c.end }

// Idle tells whether all that was added is complete.
func (c *Copier) Idle() bool { return c.Posted() && c.posted == c.done }

// Post posts what the window has room for, as one batch, and tells how many work requests of how many bytes in all that were. After an
// error the connection is of no further use.
func (c *Copier) Post() (wrs int, bytes uint64, err error) {
	next, posted := c.next, c.posted
	batch := c.wrs[:0]
	for next < c.end && posted-c.done < uint64(c.Window) {
		local, addr, rkey := c.Space.Locate(next, min(c.end-next, c.Chunk))
		c.pieces[posted%uint64(c.Window)] = piece{next, local.Len}
		next += local.Len
		batch = append(batch, verbs.SendWR{ID: posted<<c.TagBits | c.Tag, Op: c.Op, Local: local, RemoteAddr: addr, RKey: rkey,
			Signaled: c.signaled(posted) || next == c.end})
		posted++
	}
	if len(batch) == 0 {
		return 0, 0, nil
	}
	bytes = next - c.next
	if err := c.QP.PostSend(batch); err != nil {
		return 0, 0, &Error{c.Op, c.next, bytes, err}
	}
	c.next, c.posted = next, posted
	return len(batch), bytes, nil
}

// signaled tells of each so many work requests the last, so that a full window has one in any case.
func (c *Copier) signaled(n uint64) bool {
	every := uint64(max(1, c.Window/signals))
	return n%every == every-1
}

// Mine tells whether a completion is one of this Copier.
func (c *Copier) Mine(wc *verbs.WC) bool {
	return wc.ID&(1<<c.TagBits-1) == c.Tag
}

// Complete takes a completion of its own. An error is an *Error; the connection is of no further use then.
func (c *Copier) Complete(wc *verbs.WC) error {
	n := wc.ID >> c.TagBits
	if n < c.done || n >= c.posted {
		return fmt.Errorf("bulk: completion of %v %d, while %d to %d are in flight", wc.Op, n, c.done, c.posted)
	}
	p := c.pieces[n%uint64(c.Window)]
	if wc.Status != verbs.StatusOK {
		return &Error{c.Op, p.off, p.n, &verbs.WCError{Op: c.Op, Status: wc.Status, ID: wc.ID, Cause: c.QP.Err()}}
	}
	c.done = n + 1
	return nil
}

// oldest is the run of bytes from the first that is not complete on.
func (c *Copier) oldest() (off, n uint64) {
	if c.done < c.posted {
		p := c.pieces[c.done%uint64(c.Window)]
		return p.off, p.n
	}
	return c.next, c.end - c.next
}

// Error is a failed copy. Off is where its Space counts.
type Error struct {
	Op     verbs.Opcode
	Off, N uint64
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v of %d bytes at offset %d: %v", e.Op, e.N, e.Off, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
