package replicate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// This file runs the self-test of what a growth adds, while drains go on. It has a lane of its own: a work request that fails ends its connection,
// and the lane of the drains must outlive that.

// The lanes of a Replica, by number.
const (
	drainLane = iota
	testLane  // stands for the time of a self-test
	lanes
)

var (
	errNoProof = errors.New("no answer in time: see whether the target's fabric address is reachable, then grow again")
	errAway    = errors.New("the target is away: wait until it is InSync, then grow again")
)

// proveGrown tests the chunks of g with pool offsets from from on.
func (r *Replica) proveGrown(l *connection, g *wire.Grant, from uint64) {
	err := r.tryOut(l, g, g.PoolSize-from, func(ctx context.Context, ln *lane) error { return ln.proveThere(ctx, from) })
	r.step(&Event{Kind: EvProven, Conn: l.conn, Err: err})
}

// proveExtended tests memory that has been registered here.
func (r *Replica) proveExtended(s span) error {
	r.mu.Lock()
	l, g := r.link, r.machine.grant
	up := r.currentLane() != nil
	r.mu.Unlock()
	if !up {
		return errAway
	}
	return r.tryOut(l, &g, s.to-s.from, func(ctx context.Context, ln *lane) error { return ln.proveHere(ctx, s) })
}

// tryOut runs a self-test of n bytes on a lane that it connects for that. It may take as long as any request, since drains go on meanwhile, and longer
// if a device has to bring the pages of a large growth.
func (r *Replica) tryOut(l *connection, g *wire.Grant, n uint64, test func(context.Context, *lane) error) error {
	limit := r.testTime + time.Duration(n>>30)*registerTime
	ctx, cancel := context.WithTimeoutCause(l.ctx, limit, errNoProof)
	defer cancel()
	ln, err := r.dialLane(ctx, g, testLane)
	if err == nil {
		err = test(ctx, ln)
		ln.close()
	}
	switch {
	case err == nil:
		return nil
	case l.ctx.Err() != nil:
		return errAway
	case ctx.Err() != nil && !errors.Is(err, errNoProof):
		return fmt.Errorf("%w (%w)", errNoProof, err)
	}
	return err
}
