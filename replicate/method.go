package replicate

import (
	"fmt"
	"strings"

	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// method is a way to make drains persistent at the target. It belongs to one lane and is called as that is.
//
// Common to all: a drain goes out in units. A unit is up to unitWrites WRITEs of up to unitBytes, and behind them what the method adds to
// prove them persistent, in one batch. The seal of a drain is stored only when all its ranges, and all that was drained before it, are
// persistent at the target; the drain ends when the seal is proven persistent as well. A drain without a seal ends with its ranges.
type method interface {
	// open makes what the method needs beside the queue pair, close frees it.
	open() error
	close()
	// trial are the work requests beside WRITE and READ that the method posts, all signaled, for a self-test: applied to the word at pool
	// offset off, which holds v, they change nothing.
	trial(off, v uint64) []verbs.SendWR
	// most is how many work requests a unit may have.
	most() int
	// room tells whether the method's own limits let another unit go now.
	room() bool
	// finish adds to the lane's wrs, behind the n WRITEs of a unit of j, what proves the unit. u holds what the unit names. It returns the
	// length of the batch, of which the last work request is signaled.
	finish(j *job, u *named, n int) int
	// bring starts to bring up to n bytes at pool offset off, which the bounce buffer has room for, and returns how many.
	bring(off, n uint64) (uint64, error)
	// complete handles the completion of the last work request of a unit, or of a receive. It appends to out what it proves.
	complete(wc *verbs.WC, u unit, out []outcome) ([]outcome, error)
}

// newMethod is the method of a grant, which checkGrant has found to be one that was asked for.
func newMethod(l *lane, g *wire.Grant) method {
	switch g.Method {
	case wire.APM:
		return &apm{lane: l}
	case wire.FLUSH:
		return &flush{lane: l}
	}
	return &gpspm{lane: l, credits: min(uint64(g.Credits), maxCredits)}
}

// usable are the methods to claim for a target when want is configured; 0 leaves the choice to the target. why says what is against the
// others, if there are.
func usable(dev verbs.Device, want wire.Method) (m wire.Methods, why string, err error) {
	c := dev.Caps()
	can := wire.MethodSet(wire.GPSPM, wire.APM)
	if c.Flush && c.AtomicWrite {
		can |= wire.MethodSet(wire.FLUSH)
	}
	switch {
	case want == 0 && can == wire.AllMethods:
		return can, "", nil
	case want == 0:
		return can, fmt.Sprintf("FLUSH: device %s here cannot do it", dev.Name()), nil
	case can.Has(want):
		return wire.MethodSet(want), fmt.Sprintf("method = %q is configured", strings.ToLower(want.String())), nil
	case want == wire.FLUSH:
		return 0, "", fmt.Errorf(`method %v is asked for, and device %s cannot do RDMA FLUSH and ATOMIC_WRITE: use a device that can, or set method = "auto"`, want, dev.Name())
	}
	return 0, "", fmt.Errorf("method %d is not known: %w", uint32(want), wire.StatusVersion)
}

// notChosen joins what both sides have against the methods that are not used.
func notChosen(here, there string) string {
	if here == "" || there == "" {
		return here + there
	}
	return there + "; " + here
}
