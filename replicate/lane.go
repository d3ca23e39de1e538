package replicate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/bulk"
	"github.com/pmemfs/pmemfs/verbs/region"
)

// Sizes of a lane.
const (
	unitWrites  = wire.MaxRanges   // WRITEs of one unit
	unitBytes   = 1 << 20          // bytes of one unit
	maxBatch    = 2*unitWrites + 3 // work requests of one unit, of any method
	maxUnits    = 128              // signaled work requests in the send queue
	sendDepth   = 4 * unitWrites   // work requests in the send queue
	reserved    = 3                // places of it that units leave free: for a READ, and for a seal that follows later
	mergeGap    = 64               // ranges closer than this become one for the method: a cache line is flushed as a whole
	bounceSize  = 1 << 20          // bytes of one READ
	aheadWrites = 16               // WRITEs that go ahead of their units, in flight
	aheadBytes  = 256 << 10        // bytes of one of them
)

// Work request ids: the kind in the low bits, a number above. A WRITE of a unit completes with it, and has none.
const (
	idSend  = iota // ends a unit
	idProof        // ends a unit: READ or FLUSH
	idSeal         // ends the seal of a drain that went out behind its units
	idRead
	idRecv
	idAhead
	idBits = 3
)

// memory is the local pool: pool offset 0 is byte 0. A pmem.Region is one.
type memory interface {
	Bytes() []byte
	Kind() pmem.Kind
}

// fabric is what all lanes of a replica share: the protection domain and the registered local memory.
type fabric struct {
	dev    verbs.Device
	pd     verbs.PD
	pool   memory         // with bounce it belongs to whoever may call the methods of lanes
	local  *region.Chunks // the pool; nil: it is out of the device's reach
	bounce verbs.MR       // takes its place, as the source of WRITEs; nil: there is none
	sent   traffic
}

// newFabric registers pool as what lanes send from, or bounce bytes of a buffer if the device cannot have it, unless bounce is 0.
func newFabric(dev verbs.Device, pool memory, bounce uint64, log logrus.FieldLogger) (*fabric, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("device %s: protection domain: %w", dev.Name(), err)
	}
	f := &fabric{dev: dev, pd: pd, pool: pool}
	f.local, err = region.Register(region.Config{Device: dev, PD: pd, Log: log}, pool.Bytes(), pool.Kind())
	if kind, ok := errors.AsType[*region.KindError](err); ok && bounce > 0 {
		log.Warnf("the local pool is sent through bounce buffers of %d MiB: %v", bounce>>20, kind)
		f.bounce, err = region.NewBuffer(dev, pd, bounce, 0)
	}
	if err != nil {
		pd.Close()
		return nil, err
	}
	return f, nil
}

// extend makes lanes reach the pool as far as it goes by now, if prove has nothing against what is new. It may take long, and may run beside the
// lanes. Afterwards f.pool is set.
func (f *fabric) extend(pool memory, prove func(span) error) error {
	if f.local == nil {
		return nil
	}
	s := span{from: f.local.Total(), to: uint64(len(pool.Bytes()))}
	return f.local.Extend(pool.Bytes(), pool.Kind(), func(at func(off, n uint64) verbs.SGE) error {
		s.at = at
		return prove(s)
	})
}

func (f *fabric) close() {
	if f.local != nil {
		f.local.Close()
	}
	deregister(f.bounce)
	f.pd.Close()
}

// writes says how the bytes of a drain get to the target.
type writes uint8

const (
	inUnits writes = iota // by the WRITEs of its units
	ahead                 // by WRITEs of the copier, all of them before the first unit
	placed                // they were posted before: no WRITEs
)

// job is a drain that the lane has taken and whose end is not proven yet.
type job struct {
	seq    uint64
	ranges []pmem.Range
	seal   pmem.Seal
	writes writes
	next   int    // range that is sent next
	done   uint64 // bytes of it that are sent
	whole  bool   // all its units are posted
	proven bool   // FLUSH: all its ranges are persistent
}

// unit is what one signaled work request of the send queue ends.
type unit struct {
	slots int   // places in the send queue: its own and those of the unsignaled ones before it
	last  bool  // of its drain
	mark  marks // what it uses of bounce buffers ends here
}

// outcome is what reap found.
type outcome struct {
	kind   outcomeKind
	seq    uint64
	status wire.FlushStatus
	where  uint64
	term   uint64
	n      uint32
}

type outcomeKind uint8

const (
	outDrained  outcomeKind = iota + 1 // the end of seq is proven, or it failed
	outProgress                        // a sign of the target in the middle of a drain
	outRead                            // the READ has put n bytes into the bounce buffer
)

// lane is one verbs connection and what is needed to send drains on it. Its methods are called by one goroutine at a time,
// except that wait may run beside the others.
type lane struct {
	fab     *fabric
	qp      verbs.QP
	cq      verbs.CQ
	session uint64
	size    uint64 // pool bytes, the least of both sides
	remote  wire.Region
	scratch wire.Area
	window  int // drains on the wire at a time
	how     method

	source  *ring     // of the bounce buffer here; nil: WRITEs send from the pool
	staging *ring     // of the target's staging area; nil: WRITEs place bytes in the pool
	area    wire.Area // that staging area

	bounce verbs.MR // sink of READs

	jobs          [MaxInFlight]job // ring of n, head is the oldest; full of them are wholly on the wire
	head, n, full int

	copier   *bulk.Copier   // of WRITEs that go ahead; it has places of its own in the send queue
	reaped   uint64         // completions
	free     int            // places in the send queue
	units    [maxUnits]unit // ring
	unitHead int
	unitN    int

	wrs    [maxBatch]verbs.SendWR
	flat   [wire.MaxRanges]pmem.Range
	naming named // by the unit that is being built
	wcs    [16]verbs.WC
}

// newLane makes the queue pair and what the granted method needs. Size is no more than what is registered. The lane is one of so many that share the
// target's staging area.
func newLane(fab *fabric, g *wire.Grant, size uint64, number, of int) (*lane, error) {
	l := &lane{fab: fab, session: g.Session, size: size, scratch: g.Scratch, free: sendDepth, window: MaxInFlight}
	if !fab.dev.Caps().OrderedPlace && !mutant.On(mutant.Overlap) {
		// Two drains may write the same bytes. Without in-order placement the second must wait for the proof of the first.
		l.window = 1
	}
	l.regrant(g)
	l.how = newMethod(l, g)
	err := l.bounceAt(g, number, of)
	if err == nil {
		err = l.open()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// regrant makes the lane use the region of g from now on.
func (l *lane) regrant(g *wire.Grant) { l.remote = g.Region }

func (l *lane) open() (err error) {
	const sends = sendDepth + aheadWrites
	if l.cq, err = l.fab.dev.CreateCQ(sends + maxAnswers); err != nil {
		return fmt.Errorf("completion queue: %w", err)
	}
	if l.qp, err = l.fab.pd.CreateQP(verbs.QPAttr{SendCQ: l.cq, RecvCQ: l.cq, SendDepth: sends, RecvDepth: maxAnswers}); err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	l.copier = bulk.New(bulk.Config{QP: l.qp, Op: verbs.OpWrite, Space: l, Chunk: aheadBytes, Window: aheadWrites, Tag: idAhead, TagBits: idBits})
	if l.bounce, err = l.buffer(bounceSize, verbs.LocalWrite); err != nil {
		return err
	}
	return l.how.open()
}

// buffer registers n bytes of memory for messages.
func (l *lane) buffer(n int, a verbs.Access) (verbs.MR, error) {
	mr, err := l.fab.pd.RegisterMR(make([]byte, n), a)
	if err != nil {
		return nil, fmt.Errorf("registering %d bytes of message buffers: %w", n, err)
	}
	return mr, nil
}

// connect connects the lane to the target's fabric address.
func (l *lane) connect(ctx context.Context, addr string, number uint16) error {
	p := wire.Private{Lane: number, Session: l.session}
	if _, err := l.fab.dev.Connect(ctx, l.qp, addr, p.Append(nil)); err != nil {
		return fmt.Errorf("connecting the lane to %s: %w", addr, err)
	}
	return nil
}

// wait returns when a completion may be there, or after d with verbs.ErrTimeout.
func (l *lane) wait(d time.Duration) error { return l.cq.Wait(d) }

// disconnect ends the connection and returns when nothing touches the registered memory any more. What was outstanding is flushed.
func (l *lane) disconnect() {
	if l.qp != nil {
		l.qp.Close()
	}
}

// close disconnects and frees everything. Nobody may be in wait.
func (l *lane) close() {
	l.disconnect()
	l.how.close()
	deregister(l.bounce)
	if l.cq != nil {
		l.cq.Close()
	}
}

func deregister(mr verbs.MR) {
	if mr != nil {
		mr.Deregister()
	}
}
