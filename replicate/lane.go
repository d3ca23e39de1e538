package replicate

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/bulk"
	"github.com/pmemfs/pmemfs/verbs/region"
)

// Sizes of a lane.
const (
	maxCredits  = 64             // flush messages that may be outstanding; one buffer each
	maxAnswers  = 16             // answered ones among them; one receive each
	answerEvery = 8              // Sends after which one asks for an answer, so that a long drain shows progress
	unitWrites  = wire.MaxRanges // WRITEs of one unit
	unitBytes   = 1 << 20        // bytes of one unit
	maxUnits    = 2 * maxCredits // signaled work requests in the send queue
	sendDepth   = 4 * unitWrites // work requests in the send queue
	mergeGap    = 64             // flush ranges closer than this become one: a cache line is flushed as a whole
	bounceSize  = 1 << 20        // bytes of one READ
	aheadWrites = 16             // WRITEs that go ahead of their Sends, in flight
	aheadBytes  = 256 << 10      // bytes of one of them
)

// Work request ids: the kind in the low bits, a buffer number above. A WRITE that stands in a unit completes with it.
const (
	idSend = iota
	idWrite
	idRead
	idRecv
	idAhead
	idBits = 3
)

// fabric is what all lanes of a replica share: the protection domain and the registered local memory.
type fabric struct {
	dev   verbs.Device
	pd    verbs.PD
	local *region.Chunks // pool offset 0 is byte 0
	sent  traffic
}

// newFabric registers local, which is of kind k, as what lanes send from.
func newFabric(dev verbs.Device, local []byte, k pmem.Kind, log logrus.FieldLogger) (*fabric, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("device %s: protection domain: %w", dev.Name(), err)
	}
	f := &fabric{dev: dev, pd: pd}
	if f.local, err = region.Register(region.Config{Device: dev, PD: pd, Log: log}, local, k); err != nil {
		pd.Close()
		return nil, err
	}
	return f, nil
}

func (f *fabric) close() {
	f.local.Close()
	f.pd.Close()
}

// writes says how the bytes of a drain get to the target.
type writes uint8

const (
	inUnits writes = iota // by the WRITEs of its units
	ahead                 // by WRITEs of the copier, all of them before the first unit
	placed                // they were posted before: no WRITEs
)

// job is a drain that the lane has taken and not yet seen answered.
type job struct {
	seq    uint64
	ranges []pmem.Range
	seal   pmem.Seal
	writes writes
	next   int    // range that is sent next
	done   uint64 // bytes of it that are sent
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
	outDrained  outcomeKind = iota + 1 // seq was answered for good
	outProgress                        // an answer in the middle of a drain
	outRead                            // the READ has put n bytes into the bounce buffer
)

// lane is one verbs connection and what is needed to send drains on it. Its methods are called by one goroutine at a time,
// except that wait may run beside the others.
//
// Credits: sent counts the Sends posted, taken those that answers have covered. The bytes of a Send buffer may be
// needed until an answer covers it (a software provider may still hold them), so the buffers are the ring of the credits.
type lane struct {
	fab     *fabric
	qp      verbs.QP
	cq      verbs.CQ
	session uint64
	size    uint64 // pool bytes, the least of both sides
	remote  wire.Region
	scratch wire.Area
	window  int // drains on the wire at a time

	sends, recvs, bounce verbs.MR

	credits     uint64
	sent, taken uint64
	silent      int              // Sends since the last one that asked
	asked       [maxAnswers]bool // ring: whether the answered Send was the last of its drain
	askHead     int
	askN        int

	jobs          [MaxInFlight]job // ring of n, head is the oldest; full of them are wholly on the wire
	head, n, full int

	copier   *bulk.Copier  // of WRITEs that go ahead; it has places of its own in the send queue
	reaped   uint64        // completions
	free     int           // places in the send queue
	units    [maxUnits]int // ring: places of one signaled work request and the WRITEs before it
	unitHead int
	unitN    int

	wrs  [unitWrites + 1]verbs.SendWR
	recv [1]verbs.RecvWR
	msg  wire.Flush
	flat [wire.MaxRanges]pmem.Range
	wcs  [16]verbs.WC
	ans  wire.FlushAnswer
}

// newLane makes the queue pair and its message buffers and posts the receives for answers. Size is no more than what is registered.
func newLane(fab *fabric, g *wire.Grant, size uint64) (*lane, error) {
	l := &lane{fab: fab, session: g.Session, size: size, scratch: g.Scratch,
		credits: min(uint64(g.Credits), maxCredits), free: sendDepth, window: MaxInFlight}
	if !fab.dev.Caps().OrderedPlace {
		// Two drains may write the same bytes. Without in-order placement the second must wait for the answer to the first.
		l.window = 1
	}
	l.regrant(g)
	if err := l.open(); err != nil {
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
	for _, b := range []struct {
		mr     *verbs.MR
		size   int
		access verbs.Access
	}{{&l.sends, maxCredits * wire.MaxFlush, 0}, {&l.recvs, maxAnswers * wire.AnswerSize, verbs.LocalWrite}, {&l.bounce, bounceSize, verbs.LocalWrite}} {
		if *b.mr, err = l.fab.pd.RegisterMR(make([]byte, b.size), b.access); err != nil {
			return fmt.Errorf("registering %d bytes of message buffers: %w", b.size, err)
		}
	}
	for i := range uint64(maxAnswers) {
		if err := l.postRecv(i); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) postRecv(i uint64) error {
	l.recv[0] = verbs.RecvWR{ID: i<<idBits | idRecv, Local: verbs.SGE{MR: l.recvs, Off: i * wire.AnswerSize, Len: wire.AnswerSize}}
	return l.qp.PostRecv(l.recv[:])
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
	for _, mr := range []verbs.MR{l.sends, l.recvs, l.bounce} {
		if mr != nil {
			mr.Deregister()
		}
	}
	if l.cq != nil {
		l.cq.Close()
	}
}
