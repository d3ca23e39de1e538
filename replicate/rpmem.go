package replicate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// MaxLanes is the most lanes of a Pool.
const MaxLanes = 16

// pageSize is the unit of a pool's size in bytes.
const pageSize = 4096

// Client opens remote pools for programs that replicate their own memory. It is librpmem's API (librpmem(7)) in Go: Create,
// Open and Remove here, the rest on Pool.
type Client struct {
	Device verbs.Device // lives longer than the pools
	// Timeout bounds every wait for an answer; 0 means 5 seconds.
	Timeout time.Duration
	// Durability is the least class asked for; 0 means wire.DurabilityMedia.
	Durability uint32
	// Method of persistency; 0: the target chooses among those that Device can do.
	Method wire.Method
}

// Pool is a remote pool. Local memory and pool have the same offsets; the first 4096 bytes of the pool are its header and
// cannot be written. A lane is used by one goroutine at a time, as in librpmem; there is no order between lanes.
//
// After the first failure of the target or the connection every call fails with that error: close the pool, and open
// it again. A call with wrong arguments fails and changes nothing.
type Pool struct {
	target, name string
	timeout      time.Duration
	size         uint64
	fab          *fabric
	session      uint64
	lanes        []poolLane

	mu   sync.Mutex // protects the control connection and all below
	ctl  *control
	next uint32 // number of the next request
	attr wire.Attr
	err  error // sticky
}

// Create makes the pool whose pool set file is name at the target ("host:port"), with attributes attr, and opens it. Zero UUIDs
// in attr are replaced by random ones. The size of local is a multiple of 4096; the target's pool is at least as large. At most
// MaxLanes lanes are opened, see Pool.Lanes.
// If the pool exists, errors.Is(err, fs.ErrExist); if its pool set file does not, fs.ErrNotExist.
// Implements rpmem_create(3).
func (c *Client) Create(ctx context.Context, target, name string, local []byte, lanes int, attr wire.Attr) (*Pool, error) {
	if attr.PoolUUID.IsZero() {
		attr.PoolUUID = poolset.NewUUID()
	}
	if attr.CopyID.IsZero() {
		attr.CopyID = poolset.NewUUID()
	}
	return c.open(ctx, "create", target, name, local, lanes, func(p *Pool) (wire.Frame, error) {
		m := wire.Create{Attr: attr, PoolSize: p.size, Pool: name}
		return p.call(ctx, wire.TypeCreate, m.Append(nil))
	})
}

// Open opens an existing pool. Its attributes are in Pool.Attr. A pool that another program has open is busy.
// Implements rpmem_open(3).
func (c *Client) Open(ctx context.Context, target, name string, local []byte, lanes int) (*Pool, error) {
	return c.open(ctx, "open", target, name, local, lanes, func(p *Pool) (wire.Frame, error) {
		m := wire.Hello{Pool: name}
		return p.call(ctx, wire.TypeHello, m.Append(nil))
	})
}

// Remove deletes the pool at the target; force also where it is damaged. Implements rpmem_remove(3).
func (c *Client) Remove(ctx context.Context, target, name string, force bool) error {
	m := wire.Remove{Pool: name}
	if force {
		m.Force = 1
	}
	return ask(ctx, "remove", target, name, wire.TypeRemove, m.Append(nil))
}

// open connects to the target, finds the pool's state with first, and claims the pool.
func (c *Client) open(ctx context.Context, op, target, name string, local []byte, lanes int, first func(*Pool) (wire.Frame, error)) (*Pool, error) {
	p := &Pool{target: target, name: name, timeout: c.Timeout, size: uint64(len(local))}
	if p.timeout == 0 {
		p.timeout = atOnceLimit
	}
	err := p.checkOpen(lanes)
	if err == nil {
		err = p.dial(ctx)
	}
	if err == nil {
		err = p.claim(ctx, c, local, min(lanes, MaxLanes), first)
	}
	if err != nil {
		p.release()
		return nil, p.wrap(op, NoOffset, err)
	}
	return p, nil
}

func (p *Pool) checkOpen(lanes int) error {
	switch {
	case p.size <= wire.FirstOffset || p.size%pageSize != 0:
		return fmt.Errorf("local memory has %d bytes: give a multiple of %d, at least %d", p.size, pageSize, 2*pageSize)
	case lanes < 1:
		return fmt.Errorf("%d lanes asked for: ask for at least one", lanes)
	case len(p.name) == 0 || len(p.name) > 255:
		return fmt.Errorf("pool set name of %d bytes: give 1 to 255", len(p.name))
	}
	return nil
}

func (p *Pool) dial(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	p.ctl, err = dialControl(ctx, p.target)
	return err
}

// call sends a request on the control connection. Caller holds mu, or is the only user yet.
func (p *Pool) call(ctx context.Context, t wire.Type, body []byte) (wire.Frame, error) {
	p.next++
	return p.ctl.call(ctx, wire.Frame{Type: t, ID: p.next, Body: body})
}

// claim takes the pool under the next term, as a writer of its own, and connects the lanes.
func (p *Pool) claim(ctx context.Context, c *Client, local []byte, lanes int, first func(*Pool) (wire.Frame, error)) error {
	methods, _, err := usable(c.Device, c.Method)
	if err != nil {
		return err
	}
	f, err := first(p)
	if err != nil {
		return err
	}
	var st wire.State
	if err := st.Decode(f.Body); err != nil {
		return err
	}
	if err := p.checkState(&st); err != nil {
		return err
	}
	p.attr = st.Attr
	m := wire.Claim{PoolUUID: st.Attr.PoolUUID, Writer: poolset.NewUUID(), Term: st.Term + 1, Gen: st.Gen, History: st.History,
		Lanes: uint32(lanes), Durability: c.Durability, Methods: methods, Pool: p.name}
	if m.Durability == 0 {
		m.Durability = wire.DurabilityMedia
	}
	if f, err = p.call(ctx, wire.TypeClaim, m.Append(nil)); err != nil {
		return err
	}
	var g wire.Grant
	if err := g.Decode(f.Body); err != nil {
		return err
	}
	if err := checkGrant(&g, p.size, methods); err != nil {
		return err
	}
	p.session = g.Session
	if p.fab, err = newFabric(c.Device, ordinary(local), 0, logrus.StandardLogger()); err != nil {
		return err
	}
	return p.connect(ctx, &g, lanes)
}

func (p *Pool) checkState(st *wire.State) error {
	switch {
	case st.PoolSize < p.size:
		return fmt.Errorf("the pool has %d bytes, %d are needed: %w", st.PoolSize, p.size, wire.StatusTooSmall)
	case st.Served != 0:
		return fmt.Errorf("another program has it open: %w", wire.StatusBusy)
	case !st.Writer.IsZero() && st.Writer == st.Attr.CopyID:
		return promoted(st)
	case st.Gen != 0:
		// Its owner could not mount any more, or would take changed bytes for his own.
		return fmt.Errorf("it is a replica of a pmemfs file system, which only a mount may write: %w", wire.StatusForeign)
	case st.Flags&wire.FlagInconsistent != 0:
		return wire.StatusInconsistent
	}
	return nil
}

// connect connects the lanes.
func (p *Pool) connect(ctx context.Context, g *wire.Grant, lanes int) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	addr, err := laneAddr(g.Fabric, p.target)
	if err != nil {
		return err
	}
	p.lanes = make([]poolLane, lanes)
	for i := range p.lanes {
		l, err := newLane(p.fab, g, p.size, i, lanes)
		if err == nil {
			p.lanes[i].lane = l
			err = l.connect(ctx, addr, uint16(i))
		}
		if err == nil && i == 0 { // the lanes share their memory
			err = l.prove(ctx)
		}
		if err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
	}
	return nil
}

// Lanes is the number of lanes; they are numbered from 0.
func (p *Pool) Lanes() int { return len(p.lanes) }

// Attr are the pool's attributes.
func (p *Pool) Attr() wire.Attr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attr
}

// SetAttr replaces the pool's attributes, but not its UUIDs. Implements rpmem_set_attr(3).
func (p *Pool) SetAttr(ctx context.Context, attr wire.Attr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.wrap("set attributes", NoOffset, p.err)
	}
	attr.PoolUUID, attr.CopyID = p.attr.PoolUUID, p.attr.CopyID
	m := wire.SetAttr{Session: p.session, Attr: attr}
	if _, err := p.call(ctx, wire.TypeSetAttr, m.Append(nil)); err != nil {
		p.err = err
		return p.wrap("set attributes", NoOffset, err)
	}
	p.attr = attr
	return nil
}

// Close ends the session and frees everything, also after a failure. Bytes flushed and not drained may or may not be durable.
// Nobody may be in another call. Implements rpmem_close(3).
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == ErrClosed {
		return p.wrap("close", NoOffset, ErrClosed)
	}
	err := p.err
	if err == nil {
		m := wire.Close{Session: p.session}
		_, err = p.call(ctx, wire.TypeClose, m.Append(nil))
	}
	p.release()
	p.err = ErrClosed
	return p.wrap("close", NoOffset, err)
}

func (p *Pool) release() {
	for i := range p.lanes {
		if l := p.lanes[i].lane; l != nil {
			l.close()
		}
	}
	if p.fab != nil {
		p.fab.close()
	}
	if p.ctl != nil {
		p.ctl.close()
	}
}

func (p *Pool) wrap(op string, off uint64, err error) error {
	if err == nil {
		return nil
	}
	return &Error{p.target, "pool " + p.name + ": " + op, off, err}
}

// fail makes err sticky and returns the first one.
func (p *Pool) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	return p.err
}

func (p *Pool) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// ordinary is memory of the program.
type ordinary []byte

func (m ordinary) Bytes() []byte   { return m }
func (m ordinary) Kind() pmem.Kind { return pmem.Heap }

// poolLane is a lane and what was flushed on it since the last drain.
type poolLane struct {
	mu       sync.Mutex // held by the one call under way
	lane     *lane
	seq      uint64
	pending  []pmem.Range
	outcomes []outcome
}
