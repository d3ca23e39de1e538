package target

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// Persistency is what a target's administrator says of the ways by which the bytes of sessions become persistent.
type Persistency struct {
	Allowed wire.Methods // 0: all
	// Inbound tells whether bytes that arrive by RDMA are in the persistence domain once a READ behind them was answered, and why
	// not. nil: nothing says so.
	Inbound func(device string, c verbs.Caps) (ok bool, why string)
	// Bounce is the size in bytes of the staging area of a session whose pool the device cannot have; 0: such a pool is refused.
	Bounce uint64
}

// choice is what the method of a session is chosen by.
type choice struct {
	Persistency
	claimed wire.Methods
	device  string
	caps    verbs.Caps
	promise pmem.Promise
	// flushable is why the region cannot be registered for FLUSH; nil: it is.
	flushable error
	staged    bool // the pool is out of the device's reach
}

// choiceOf is what the method of a session on r is chosen by, before anything is registered.
func choiceOf(dev verbs.Device, r pmem.Region, claimed wire.Methods, p Persistency) choice {
	return choice{Persistency: p, claimed: claimed, device: dev.Name(), caps: dev.Caps(), promise: r.Promise()}
}

// choose is the best method that both sides want and that keeps the promise of the region. why says what is against the others that were
// claimed.
//
// Where the target's CPU stores inbound bytes, GPSPM is the best: that CPU works in any case, GPSPM needs one round trip and the others
// two, and it can report a failure. Where a device places them, the other two leave the CPU alone, and FLUSH is preferred, because its
// device says itself that bytes are persistent, while APM believes the administrator. See docs/decisions/0011.
func (c *choice) choose() (m wire.Method, why string, err error) {
	order := []wire.Method{wire.FLUSH, wire.APM, wire.GPSPM}
	if c.caps.CPUPlaced {
		order = []wire.Method{wire.GPSPM, wire.FLUSH, wire.APM}
	}
	against := map[wire.Method]string{}
	for _, o := range order {
		switch s := c.against(o); {
		case s != "":
			against[o] = s
		case m == 0:
			m = o
		default:
			against[o] = c.lesser(m)
		}
	}
	var words []string
	for _, o := range []wire.Method{wire.GPSPM, wire.APM, wire.FLUSH} {
		if s := against[o]; s != "" && c.claimed.Has(o) {
			words = append(words, fmt.Sprintf("%v: %s", o, s))
		}
	}
	why = strings.Join(words, "; ")
	if m == 0 {
		return 0, "", refuse(wire.StatusMethod, "%s", cmp.Or(why, "no method is claimed that is known here"))
	}
	return m, why, nil
}

// lesser says why a method that nothing is against was not preferred to m.
func (c *choice) lesser(m wire.Method) string {
	if c.caps.CPUPlaced && m == wire.GPSPM {
		return "the target's CPU stores what arrives in any case, and GPSPM needs fewer round trips"
	}
	return fmt.Sprintf("%v is preferred", m)
}

// against says why m cannot be used; "" if nothing is against it.
func (c *choice) against(m wire.Method) string {
	switch {
	case !c.claimed.Has(m):
		return "not claimed"
	case c.Allowed != 0 && !c.Allowed.Has(m):
		return "not among the methods that target.toml allows"
	case c.staged && m != wire.GPSPM:
		return "the target's pool is behind bounce buffers, from which only its CPU takes bytes"
	case m == wire.APM:
		return c.againstAPM()
	case m == wire.FLUSH:
		return c.againstFLUSH()
	}
	return ""
}

// againstAPM: a READ proves that bytes are in memory, which is all that a volatile copy promises. For a persistent one, that must mean
// that they are in the persistence domain. Pages of a page cache are written by msync only.
func (c *choice) againstAPM() string {
	switch c.promise {
	case pmem.Volatile:
		return ""
	case pmem.PageCache:
		return "the target's pool is an ordinary file, which only msync there makes durable"
	}
	if mutant.On(mutant.APMCaching) {
		return ""
	}
	if c.Inbound == nil {
		return "nothing declares that inbound bytes are persistent at the target"
	}
	ok, why := c.Inbound(c.device, c.caps)
	if ok {
		return ""
	}
	return why
}

func (c *choice) againstFLUSH() string {
	switch {
	case !c.caps.Flush || !c.caps.AtomicWrite:
		return fmt.Sprintf("device %s of the target cannot do RDMA FLUSH and ATOMIC_WRITE", c.device)
	case c.promise != pmem.Persistent:
		// Asked here, because a device may take a registration for FLUSH of any memory (rxe does with on-demand paging).
		return "the target's pool is not in persistent memory"
	case c.flushable != nil:
		return fmt.Sprintf("the target's memory cannot be registered for it: %v", c.flushable)
	}
	return ""
}
