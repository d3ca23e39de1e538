package replicate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// Config of a Replica.
type Config struct {
	Name       string        // the target, for messages
	Pool       string        // name of the pool set in the target's pool directory
	Addr       string        // control address, "host:port"
	Device     verbs.Device  // lives longer than the Replica; a write timeout above Timeout/2 delays every failure by as much
	Timeout    time.Duration // how long a lost target may take to come back; 0 = not at all
	Durability uint32        // least class asked for: wire.DurabilityMemory or wire.DurabilityMedia
	Method     wire.Method   // of persistency; 0: the target chooses among those that Device can do
	Bounce     uint64        // bytes of the bounce buffer for a region that Device cannot have; 0: such a region is refused
	// OnDrained is called for each drain, in order, by one goroutine. After an error every later call has one.
	OnDrained func(seq uint64, err error)
	Log       *logrus.Entry
}

// Status of a replica, for people.
type Status struct {
	State      State
	Err        error         // why it is Refused, Failed or Suspended
	Method     wire.Method   // of persistency, 0 before the claim
	NotChosen  string        // why the other methods are not used
	Durability uint32        // what the target promises
	AnswerAge  time.Duration // since the last sign of life
	InFlight   int           // drains started and not reported
	Bounce     uint64        // bytes of the bounce buffer that the local pool is sent through, 0: it is sent from where it is
	Staging    uint64        // bytes of that which the target's pool is reached through, 0: it is reached itself
	Sent       Traffic
}

// Replica is one target's copy of the pool, as the initiator sees it.
type Replica struct {
	cfg   Config
	why   string        // what is against the methods that it does not claim
	size  atomic.Uint64 // bytes of the pool
	fab   *fabric
	begun time.Time

	testTime time.Duration // for the self-test of a growth of less than 1 GiB

	request sync.Mutex // held by the one user request under way (Claim, FullSync, ...)
	done    chan error // end of that request

	reading sync.Mutex // held by the one ReadAt under way

	mu       sync.Mutex // protects all below
	machine  *Machine
	actions  []Action
	events   []Event // follow-ups of the actions being executed
	link     *connection
	dead     []*lane // broken; the reaper frees them
	reports  []report
	armed    time.Duration // when the clock wakes
	outcomes []outcome

	wake  chan struct{} // the reaper has something to do
	rearm chan struct{} // the clock must look again
	stop  chan struct{}
	group sync.WaitGroup

	closing sync.Once
}

// connection is what belongs to one connection number.
type connection struct {
	conn   uint32
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	ctl    *control
	lane   *lane
	steps  chan CopyStep // copy steps asked for
	copied chan outcome  // answers to the drains of a copy
	read   chan uint32   // bytes of the READ that has ended
}

// report is a drain that OnDrained has not been told of.
type report struct {
	seq uint64
	err error
}

// Connect opens the control connection and asks for the state of the target's copy, which changes nothing there. A copy that
// does not fit is an error; see Refused. region must stay mapped until Close.
func Connect(ctx context.Context, cfg Config, region pmem.Region, id Identity) (*Replica, error) {
	if n := uint64(len(region.Bytes())); id.Size < 2*wire.FirstOffset || id.Size > n {
		return nil, &Error{cfg.Name, "connect", NoOffset, fmt.Errorf("a pool of %d bytes does not fit a region of %d: %w", id.Size, n, ErrOrder)}
	}
	methods, why, err := usable(cfg.Device, cfg.Method)
	if err != nil {
		return nil, &Error{cfg.Name, "connect", NoOffset, err}
	}
	if cfg.Log == nil {
		cfg.Log = logrus.NewEntry(logrus.StandardLogger())
	}
	fab, err := newFabric(cfg.Device, region, cfg.Bounce, cfg.Log)
	if err != nil {
		return nil, &Error{cfg.Name, "connect", NoOffset, err}
	}
	r := &Replica{
		cfg: cfg, why: why, fab: fab, begun: time.Now(), machine: NewMachine(id, cfg.Pool, cfg.Timeout, methods),
		testTime: RequestTimeout, done: make(chan error, 1), armed: never,
		wake: make(chan struct{}, 1), rearm: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	r.size.Store(id.Size)
	r.group.Go(r.reap)
	r.group.Go(r.clock)
	if err := r.call(ctx, "connect", Event{Kind: EvConnect}); err != nil {
		r.shutdown()
		return nil, err
	}
	return r, nil
}

// call hands a request of the user to the machine and waits for its end, which is bounded by the machine's own deadlines and ctx.
func (r *Replica) call(ctx context.Context, op string, ev Event) error {
	r.request.Lock()
	defer r.request.Unlock()
	r.step(&ev)
	return r.await(ctx, op)
}

func (r *Replica) await(ctx context.Context, op string) error {
	var err error
	select {
	case err = <-r.done:
	case <-ctx.Done():
		r.step(&Event{Kind: EvCancel, Err: ctx.Err()})
		err = <-r.done
	}
	return r.wrap(op, err)
}

func (r *Replica) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{r.cfg.Name, op, NoOffset, err}
}

// Peer is the state of the target's copy as last heard.
func (r *Replica) Peer() wire.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.peer
}

// Need says what the target's copy needs before Adopt.
func (r *Replica) Need() Need {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.need
}

// Claim takes the target's copy over under term, which fences every other writer there, and connects the lane.
func (r *Replica) Claim(ctx context.Context, term uint64) error {
	return r.call(ctx, fmt.Sprintf("claim under term %d", term), Event{Kind: EvClaim, Term: term, Durability: r.cfg.Durability})
}

// Adopt gives the target's copy this generation and clears its Inconsistent mark; from now on drains go there. It needs a
// FullSync before, unless Need is NeedNothing and the caller knows that both copies end in the same group.
func (r *Replica) Adopt(ctx context.Context, gen uint64, history [8]uint64, peers []wire.UUID) error {
	return r.call(ctx, "adopt", Event{Kind: EvAdopt, Gen: gen, History: history, Peers: peers})
}

// Clean sets flags (wire.FlagClean) in the target's state slot, after the last drain was reported.
func (r *Replica) Clean(ctx context.Context, flags uint32) error {
	return r.call(ctx, "marking the copy clean", Event{Kind: EvClean, Flags: flags})
}

// Grow asks the target for a copy of at least size bytes, in sync as it is, and tests the chunks that it gains. What the pool uses stays the
// same until Extend. After an error nothing has changed but that the target's copy may be larger, and drains go on in any case.
func (r *Replica) Grow(ctx context.Context, size uint64) error {
	return r.call(ctx, fmt.Sprintf("grow to %d bytes", size), Event{Kind: EvGrow, Size: size})
}

// Extend says that the pool has size bytes from now on, for which Grow has asked before; region is that of Connect, and as long by now. What is
// registered for it here is tested first, which needs the target. After an error nothing has changed. Drains that were started before go on.
func (r *Replica) Extend(region pmem.Region, size uint64) error {
	if err := r.fab.extend(region, r.proveExtended); err != nil { // may take long, while drains go on
		return r.wrap("extend", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fab.pool = region
	r.machine.Extend(size)
	r.size.Store(size)
	if l := r.link; l != nil && l.lane != nil {
		l.lane.size = size
	}
	return nil
}

// Drain starts to make ranges and then seal durable on the target; OnDrained reports the outcome. The ranges and their bytes in the region
// may change only such that a second copy of them does no harm, until then: after a loss they are sent again. It neither
// waits for an answer nor calls back. At most MaxInFlight drains may be unreported.
func (r *Replica) Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal) {
	r.step(&Event{Kind: EvDrain, Seq: seq, Ranges: ranges, Seal: seal, Err: checkRanges(ranges, seal, r.size.Load())})
}

// Status of the replica now.
func (r *Replica) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machine
	s := Status{
		State: m.State(), Err: m.Err(), Method: m.grant.Method, NotChosen: notChosen(r.why, m.grant.Why),
		Durability: m.peer.Durability, AnswerAge: r.now() - m.heardAt, InFlight: m.n + len(r.reports), Sent: r.fab.sent.now(),
	}
	if mr := r.fab.bounce; mr != nil {
		s.Bounce = uint64(len(mr.Bytes()))
	}
	if len(m.grant.Chunks) == 0 {
		s.Staging = m.grant.Staging.Len
	}
	return s
}

// Close ends the session and all goroutines. Drains not reported yet are reported with ErrClosed before it returns.
func (r *Replica) Close(ctx context.Context) error {
	var err error
	r.closing.Do(func() {
		err = r.call(ctx, "close", Event{Kind: EvClose})
		r.shutdown()
	})
	return err
}

func (r *Replica) shutdown() {
	close(r.stop)
	r.group.Wait()
	r.fab.close()
}
