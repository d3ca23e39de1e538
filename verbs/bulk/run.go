package bulk

import (
	"context"
	"errors"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// look is how often a Run that waits looks at its context.
	look = 100 * time.Millisecond
	// batch is how many completions one Poll takes.
	batch = 16
)

// Run posts what was added and returns when all of it is complete. Of cq, which is that of the send queue, it takes every completion;
// what is not the Copier's goes to other, whose error ends the copy. Limit is how long nothing may happen: after it the error is verbs.ErrTimeout.
func (c *Copier) Run(ctx context.Context, cq verbs.CQ, limit time.Duration, other func(*verbs.WC) error) error {
	last := time.Now()
	for {
		if _, _, err := c.Post(); err != nil {
			return err
		}
		if c.Idle() {
			return nil
		}
		n, err := cq.Poll(c.wcs[:])
		if err != nil {
			return c.fail(err)
		}
		for i := range n {
			if err := c.dispatch(&c.wcs[i], other); err != nil {
				return err
			}
		}
		if n > 0 {
			last = time.Now()
			continue
		}
		left := limit - time.Since(last)
		if left <= 0 {
			return c.fail(verbs.ErrTimeout)
		}
		if err := ctx.Err(); err != nil {
			return c.fail(err)
		}
		if err := cq.Wait(min(left, look)); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return c.fail(err)
		}
	}
}

func (c *Copier) dispatch(wc *verbs.WC, other func(*verbs.WC) error) error {
	if c.Mine(wc) {
		return c.Complete(wc)
	}
	if other == nil {
		return nil
	}
	return other(wc)
}

func (c *Copier) fail(err error) error {
	off, n := c.oldest()
	return &Error{c.Op, off, n, err}
}
