package replicate

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// This file holds lanes that go through bounce buffers, because a device cannot have a pool. Here, bytes are copied from the pool into
// a registered ring before they are sent. At the target, WRITEs place them in a ring of the staging area, and the flush request says where they stand.
// Both are free again once the target has proven that it needs them no more.

// marks are how far both rings are used.
type marks struct{ source, staging uint64 }

// bounceAt sets the rings up.
func (l *lane) bounceAt(g *wire.Grant, number, of int) error {
	if mr := l.fab.bounce; mr != nil {
		l.source = &ring{size: uint64(len(mr.Bytes())) / wire.StageUnit * wire.StageUnit}
		if l.source.size < 2*unitBytes {
			return fmt.Errorf("a bounce buffer of %d bytes is too small, it takes %d: make bounce larger", l.source.size, 2*unitBytes)
		}
	}
	if len(g.Chunks) > 0 {
		return nil
	}
	share := min(g.Staging.Len, wire.MaxStage) / uint64(of) / wire.StageUnit * wire.StageUnit
	if share < 2*unitBytes+bounceSize {
		return fmt.Errorf("the target's staging area of %d bytes is too small for %d lanes, each takes %d: make bounce in its configuration larger, or open fewer lanes",
			g.Staging.Len, of, 2*unitBytes+bounceSize)
	}
	// The end of the share is for fetches, of which there is one at a time.
	l.area, l.staging = g.Staging, &ring{base: uint64(number) * share, size: share - bounceSize}
	return nil
}

// bounced tells whether WRITEs need a ring, so that all bytes must go out in units, whose answers free it.
func (l *lane) bounced() bool { return l.source != nil || l.staging != nil }

// fits tells whether the rings have room for a unit.
func (l *lane) fits() bool {
	return (l.source == nil || l.source.fit(unitBytes)) && (l.staging == nil || l.staging.fit(unitBytes))
}

func (l *lane) marks() (m marks) {
	if l.source != nil {
		m.source = l.source.tail
	}
	if l.staging != nil {
		m.staging = l.staging.tail
	}
	return m
}

// release frees what was in use up to m.
func (l *lane) release(m marks) {
	if l.source != nil {
		l.source.release(m.source)
	}
	if l.staging != nil {
		l.staging.release(m.staging)
	}
}

// from is where the WRITE of r sends from. The bytes of r stay the same in a ring, whatever the pool does.
func (l *lane) from(r pmem.Range) (verbs.SGE, error) {
	if l.source == nil {
		return l.fab.local.Local(r.Off, r.Len), nil
	}
	at := l.source.take(r.Len)
	err := pmem.CopyOut(l.fab.bounce.Bytes()[at:], l.fab.pool.Bytes()[r.Off:r.Off+r.Len])
	return verbs.SGE{MR: l.fab.bounce, Off: at, Len: r.Len}, err
}

// to is where the WRITE of r places it.
func (l *lane) to(r pmem.Range) (addr uint64, rkey uint32) {
	if l.staging == nil {
		return l.remote.At(r.Off)
	}
	return l.area.Base + l.staging.take(r.Len), l.area.RKey
}

// fetchAt is where fetched bytes stand in the staging area.
func (l *lane) fetchAt() uint64 { return l.staging.base + l.staging.size }
