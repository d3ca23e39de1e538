package commit

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Copy is a target of the pool. It executes drains in the order given.
type Copy interface {
	// Drain starts to make ranges and then the seal durable. The slice stays untouched until the drain is reported to
	// Committer.Drained with the number of this copy; never from inside Drain.
	Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal)
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("commit: the pool is being unmounted")

// Committer drives an Engine and lets callers wait for it.
type Committer struct {
	vol      *volume.Volume
	interval time.Duration

	mu      sync.Mutex // protects all below, and orders every call of the engine
	changed sync.Cond  // signalled when what pipe says (see Hooks.Wake) or closed has changed
	engine  *Engine
	pipe    *Pipeline // of the engine
	closed  bool

	// What a status and a close(2) ask for, as of the last change: mu can be held for as long as a disk or a network takes.
	durable atomic.Uint64
	failure atomic.Pointer[error]

	kick     chan struct{} // a checkpoint may be due
	stop     chan struct{} // closed by Close
	finished chan struct{} // closed when the background goroutine has ended
}

// Config of a Committer.
type Config struct {
	Volume   *volume.Volume
	Region   pmem.Region   // the local copy
	Targets  []Copy        // copies 1, 2, ...
	Interval time.Duration // bounds what a crash may lose without fsync
	Seq      uint64        // of the last job that was executed, on every copy, before New
	Failed   func(error)   // told once, of the failure that ended it; it must not call the Committer. May be nil
}

// New starts a committer. The volume must have no job outstanding.
func New(cfg Config) *Committer {
	c := &Committer{
		vol: cfg.Volume, interval: cfg.Interval,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), finished: make(chan struct{}),
	}
	c.changed.L = &c.mu
	c.engine = NewEngine(cfg.Volume, cfg.Region, c.wrap(cfg.Targets), cfg.Seq, Hooks{Wake: c.wake, Due: c.poke, Stopped: cfg.Failed})
	c.pipe = c.engine.Pipeline()
	c.durable.Store(c.pipe.Durable())
	go c.background()
	return c
}

// Fsync returns when the content of ino and all earlier names are durable on every copy. dataOnly (fdatasync) makes no
// difference: the record that carries the size costs nothing extra.
func (c *Committer) Fsync(ino volume.Ino, dataOnly bool) error {
	lsn, err := c.vol.FlushFile(ino)
	if err != nil {
		return err
	}
	return c.wait(lsn)
}

// SyncAll returns when everything changed so far is durable on every copy.
func (c *Committer) SyncAll() error {
	lsn, err := c.vol.FlushAll()
	if err != nil {
		return err
	}
	return c.wait(lsn)
}

// Settle makes everything durable, flips the root and brings free space to all copies, so that their shared areas are equal
// while nobody changes anything.
func (c *Committer) Settle() error {
	if err := c.SyncAll(); err != nil {
		return err
	}
	return c.checkpoint(true)
}

// wake tells everybody that the pipeline has changed. Caller holds mu.
func (c *Committer) wake() {
	c.durable.Store(c.pipe.Durable())
	if c.pipe.Err() != nil && c.failure.Load() == nil {
		err := c.pipe.Err()
		c.failure.Store(&err)
	}
	c.changed.Broadcast()
}

// Err is the sticky failure, nil while healthy. It never waits.
func (c *Committer) Err() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Durable is the last group that is durable on every copy. It never waits.
func (c *Committer) Durable() uint64 { return c.durable.Load() }

// Drains counts the drains started on the copies, the local one included.
func (c *Committer) Drains() uint64 { return c.engine.Drains() }

// Drained is how copy number n reports: seq and all before it are durable there, or err.
func (c *Committer) Drained(n int, seq uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.Run(Event{Kind: Drained, Copy: n, Seq: seq, Err: err})
}

// wait returns when group lsn is durable everywhere. It is bounded as the drains are: a target that does not answer within its
// timeout reports an error; the local copy takes as long as its disk does.
func (c *Committer) wait(lsn uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lsn > c.pipe.Durable() && !c.closed {
		c.engine.Want(lsn)
	}
	for {
		switch {
		case c.pipe.Err() != nil:
			return c.pipe.Err()
		case lsn <= c.pipe.Durable():
			return nil
		case c.closed:
			return ErrClosed
		}
		c.changed.Wait()
	}
}

// Checkpoint commits all pending content, so that nothing stays set aside for it, reclaims what orphans hold, flips the root, and returns
// when space freed before the call can be allocated again.
func (c *Committer) Checkpoint() error { return c.checkpoint(false) }

func (c *Committer) checkpoint(settle bool) error {
	if _, err := c.vol.FlushAll(); err != nil {
		return err
	}
	for {
		more, err := c.vol.Reclaim()
		if err != nil && !errors.Is(err, volume.ErrShort) {
			return err
		}
		if err != nil || !more {
			break
		}
	}
	return c.flip(settle)
}

// flip waits for a super that was closed after the call began.
func (c *Committer) flip(settle bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pipe.Flipping() && c.pipe.Err() == nil && !c.closed {
		c.changed.Wait()
	}
	if c.closed {
		return ErrClosed
	}
	next := c.pipe.Supers() + 1
	c.engine.Flip(settle)
	for c.pipe.Supers() < next && c.pipe.Err() == nil {
		c.changed.Wait()
	}
	return c.pipe.Err()
}

// Grow makes the pool size bytes long, which every copy has already, and returns when that is durable on all of them and the new space can
// be allocated.
func (c *Committer) Grow(size uint64) error {
	if err := c.vol.Grow(size); err != nil {
		return err
	}
	return c.flip(false)
}

func (c *Committer) poke() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// background commits at the interval, flips the root when due and reclaims orphans. Errors are sticky in the pipeline, so it ignores them.
func (c *Committer) background() {
	defer close(c.finished)
	commit := time.NewTicker(c.interval)
	defer commit.Stop()
	reclaim := time.NewTicker(min(c.interval, time.Second))
	defer reclaim.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-commit.C:
			_ = c.SyncAll()
		case <-reclaim.C:
			c.reclaim()
		case <-c.kick:
			_ = c.flip(false)
		}
	}
}

// reclaim frees orphans a step at a time, so that other changes come in between.
func (c *Committer) reclaim() {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		more, err := c.vol.Reclaim()
		if errors.Is(err, volume.ErrShort) {
			err = c.flip(false)
		} else if !more {
			return
		}
		if err != nil {
			return
		}
	}
}

// Close commits everything, flips the root so that the next mount replays nothing, and ends the goroutine. Nobody may
// change the volume any more.
func (c *Committer) Close() error {
	select {
	case <-c.stop:
		return ErrClosed
	default:
	}
	close(c.stop)
	<-c.finished
	err := c.Settle()
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	return err
}
