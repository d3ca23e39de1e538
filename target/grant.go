package target

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/region"
)

const (
	// endTimeout bounds the wait for the flush handlers of a session that ends.
	endTimeout = 10 * time.Second
	// vacateTimeout bounds the wait for the end of a lane that is connected anew.
	vacateTimeout = 500 * time.Millisecond
	// scratchSize is that of the scratch area in bytes.
	scratchSize = 4096
)

// grant is what a session may reach: the region above the pool header, and its lanes.
type grant struct {
	id, term uint64
	size     atomic.Uint64 // bytes of the pool with its header
	region   pmem.Region
	pd       verbs.PD
	log      logrus.FieldLogger
	method   wire.Method
	why      string // the others are not used

	failure  atomic.Pointer[failure]                    // the first one
	ioFailed atomic.Bool                                // bytes may be lost: the copy is Inconsistent
	join     func(lanes []*lane, d time.Duration) error // returns when the handlers of closed lanes have ended
	report   func()                                     // called once when ioFailed becomes true; it does not wait

	// What is registered belongs to whoever steps the pool's machine, except that lanes read staging.
	chunks  *region.Chunks // nil: the pool is out of the device's reach
	staging verbs.MR       // takes its place; nil: there is none
	scratch verbs.MR       // for the self-test of the initiator

	mu    sync.Mutex
	lanes []*lane // by number; nil: not connected
	ended bool    // no lane is admitted any more
}

// newGrant registers the pool r for a session, and chooses its method.
func newGrant(dev verbs.Device, r pmem.Region, session uint64, a Register, p Persistency, log logrus.FieldLogger) (*grant, error) {
	size := uint64(len(r.Bytes()))
	if size <= wire.FirstOffset {
		return nil, fmt.Errorf("target: the pool has %d bytes, which leaves nothing above its header: enlarge its parts", size)
	}
	g := &grant{id: session, term: a.Term, region: r, log: log, join: wait, lanes: make([]*lane, a.Lanes)}
	var err error
	if g.pd, err = dev.AllocPD(); err != nil {
		return nil, fmt.Errorf("target: protection domain: %w", err)
	}
	if err := g.establish(dev, choiceOf(dev, r, a.Methods, p)); err != nil {
		return nil, errors.Join(err, g.pd.Close())
	}
	if g.scratch, err = g.pd.RegisterMR(make([]byte, scratchSize), verbs.RemoteWrite|verbs.RemoteRead); err != nil {
		return nil, errors.Join(fmt.Errorf("target: register %d bytes of scratch memory: %w", scratchSize, err), g.deregister(), g.pd.Close())
	}
	g.size.Store(size)
	return g, nil
}

// establish chooses the method and registers the pool with the rights that it needs. Whether it can be registered for FLUSH is seen by
// trying. After an error nothing is registered.
func (g *grant) establish(dev verbs.Device, c choice) (err error) {
	if g.method, g.why, err = c.choose(); err != nil {
		return err
	}
	cfg := region.Config{Device: dev, PD: g.pd, Access: verbs.RemoteWrite | verbs.RemoteRead, First: wire.FirstOffset, Log: g.log}
	if g.method == wire.FLUSH {
		cfg.Access |= verbs.RemoteFlush
		if g.chunks, c.flushable = region.Register(cfg, g.region.Bytes(), g.region.Kind()); c.flushable == nil {
			return nil
		}
		cfg.Access &^= verbs.RemoteFlush
		if g.method, g.why, err = c.choose(); err != nil {
			return err
		}
	}
	g.chunks, err = region.Register(cfg, g.region.Bytes(), g.region.Kind())
	if kind, ok := errors.AsType[*region.KindError](err); ok && c.Bounce > 0 {
		return g.stage(dev, c, kind)
	}
	if err != nil {
		return refuse(wire.StatusRegister, "%v", err)
	}
	return nil
}

// extend makes a region that has grown reachable as a whole. WRITEs under way name older registrations, which end with the session.
func (g *grant) extend() (wire.Grown, error) {
	if g.chunks != nil {
		if err := g.chunks.Extend(g.region.Bytes(), g.region.Kind(), nil); err != nil {
			return wire.Grown{}, refuse(wire.StatusRegister, "%v", err)
		}
	}
	g.size.Store(uint64(len(g.region.Bytes())))
	return wire.Grown{Region: g.reach()}, nil
}

// reach is where the session finds the pool.
func (g *grant) reach() wire.Region {
	r := wire.Region{PoolSize: g.size.Load()}
	if g.chunks == nil {
		return r
	}
	r.ChunkSize = g.chunks.Size()
	for _, mr := range g.chunks.Regions() {
		r.Chunks = append(r.Chunks, wire.Chunk{Base: mr.Addr(), RKey: mr.RKey()})
	}
	return r
}

// randomID is a number that nobody can guess, and never 0.
func randomID() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:])
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// wire is the grant as the claimant gets it. fabric is where it connects its lanes.
func (g *grant) wire(fabric string) wire.Grant {
	return wire.Grant{Session: g.id, Fabric: fabric, Credits: credits, MaxRanges: wire.MaxRanges, Method: g.method, Why: g.why, Region: g.reach(),
		Scratch: areaOf(g.scratch), Staging: areaOf(g.staging)}
}

// connect answers the request of lane number and starts its flush handler.
func (g *grant) connect(dev verbs.Device, req verbs.ConnRequest, number uint16) error {
	g.vacate(number)
	l, err := g.admit(dev, number)
	if err != nil {
		return errors.Join(err, reject(req, err))
	}
	if err := req.Accept(l.qp, nil); err != nil {
		return errors.Join(fmt.Errorf("target: accept lane %d: %w", number, err), g.leave(l, number))
	}
	l.connected()
	go func() {
		log := g.log.WithField("lane", number)
		if err := errors.Join(l.run(), g.leave(l, number)); err != nil {
			log = log.WithError(err)
		}
		log.Info("lane ended")
	}()
	return nil
}

// vacate waits for the handler of an older connection of lane number: its initiator may ask for the next one before the news of its end
// is here.
func (g *grant) vacate(number uint16) {
	g.mu.Lock()
	var old *lane
	if int(number) < len(g.lanes) {
		old = g.lanes[number]
	}
	g.mu.Unlock()
	if old != nil {
		_ = wait([]*lane{old}, vacateTimeout) // if it is still there, admit refuses
	}
}

// admit makes lane number, which must not be connected.
func (g *grant) admit(dev verbs.Device, number uint16) (*lane, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
		return nil, fmt.Errorf("target: the session has ended: %w", wire.StatusNoSession)
	case int(number) >= len(g.lanes):
		return nil, fmt.Errorf("target: lane %d of a session with %d lanes", number, len(g.lanes))
	case g.lanes[number] != nil:
		return nil, fmt.Errorf("target: lane %d is connected already", number)
	}
	l, err := newLane(g, dev)
	if err == nil {
		g.lanes[number] = l
	}
	return l, err
}

// leave gives back what a lane holds. Its handler has ended.
func (g *grant) leave(l *lane, number uint16) error {
	err := l.release()
	g.mu.Lock()
	g.lanes[number] = nil
	g.mu.Unlock()
	close(l.done)
	return err
}

// connected counts the lanes.
func (g *grant) connected() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lanes {
		if l != nil {
			n++
		}
	}
	return n
}

// fail records the failure of a request, unless there was one before, and returns the first.
func (g *grant) fail(status wire.FlushStatus, where uint64, err error) *failure {
	if status == wire.FlushIO && g.ioFailed.CompareAndSwap(false, true) {
		g.report()
	}
	if g.failure.CompareAndSwap(nil, &failure{status, where, g.term}) {
		g.log.WithField("offset", where).Errorf("flush request failed, the session stores no seal any more: %v", err)
	}
	return g.failure.Load()
}

// end closes all lanes and returns when their handlers have ended and the region is deregistered: then no byte of it is
// changed by the session any more. Requests under way are finished and answered. After an error end may be called again.
// fencedBy is as in End.
func (g *grant) end(fencedBy uint64) error {
	if fencedBy != 0 {
		g.failure.CompareAndSwap(nil, &failure{status: wire.FlushFenced, term: fencedBy})
	}
	g.mu.Lock()
	g.ended = true
	var lanes []*lane
	for _, l := range g.lanes {
		if l != nil {
			lanes = append(lanes, l)
		}
	}
	g.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	if err := g.join(lanes, endTimeout); err != nil {
		return err
	}
	if err := g.deregister(); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return g.pd.Close()
}

// deregister puts all memory out of reach. After an error it may be called again.
func (g *grant) deregister() error {
	for _, mr := range []*verbs.MR{&g.scratch, &g.staging} {
		if *mr == nil {
			continue
		}
		if err := (*mr).Deregister(); err != nil {
			return fmt.Errorf("deregister scratch memory or bounce buffers: %w", err)
		}
		*mr = nil
	}
	if g.chunks == nil {
		return nil
	}
	return g.chunks.Close()
}

// wait returns when the handlers of all lanes have ended, or an error after d.
func wait(lanes []*lane, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, l := range lanes {
		select {
		case <-l.done:
		case <-timer.C:
			return refuse(wire.StatusBusy, "a flush of the previous session has not ended within %v: the disk under the pool is slow or stuck, try again", d)
		}
	}
	return nil
}
