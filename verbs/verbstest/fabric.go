package verbstest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

// Fabric connects devices in memory.
type Fabric struct {
	mu        sync.Mutex // protects the fabric and everything in it
	auto      bool
	caps      verbs.Caps
	pick      func(n int) int // order of work requests, nil: as posted
	early     bool            // Writes and Sends complete before they are carried out
	pushes    bool            // the response to a Read makes Writes persistent
	persist   func(b []byte)  // told of bytes that are persistent, nil: nobody is
	last      verbs.Opcode    // of the work request carried out last
	order     []*qp           // a queue pair for each posted and not executed work request, oldest first
	keys      uint32
	ports     int
	listeners map[string]*listener
}

// Mode says when work requests are executed.
type Mode uint8

const (
	Auto    Mode = iota // in PostSend
	Stepped             // in Step and StepQP
)

// NewFabric makes a fabric without devices.
func NewFabric(m Mode) *Fabric {
	return &Fabric{auto: m == Auto, listeners: make(map[string]*listener),
		caps: verbs.Caps{OrderedPlace: true, CPUPlaced: true, OwnStores: true, MaxInline: maxInline}}
}

// maxInline is what RDMA devices take at least.
const maxInline = 64

// Hardware makes devices that place bytes without a CPU, and can register without pinning. It is called before the first device is made.
func (f *Fabric) Hardware() { f.caps.CPUPlaced, f.caps.OwnStores, f.caps.OnDemand = false, false, true }

// Native makes devices that have FLUSH and ATOMIC_WRITE. It is called before the first device is made.
func (f *Fabric) Native() { f.caps.Flush, f.caps.AtomicWrite = true, true }

// Step executes the oldest posted work request. It returns false if there is none.
func (f *Fabric) Step() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step()
}

func (f *Fabric) step() bool {
	if len(f.order) == 0 {
		return false
	}
	f.execute(f.order[0])
	return true
}

// Last is the operation of the work request that was carried out last.
func (f *Fabric) Last() verbs.Opcode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// StepQP executes the oldest posted work request of one queue pair. It returns false if there is none.
func (f *Fabric) StepQP(v verbs.QP) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := v.(*qp)
	if len(q.sq) == 0 {
		return false
	}
	f.execute(q)
	return true
}

// Link connects two queue pairs.
func (f *Fabric) Link(a, b verbs.QP) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return link(a.(*qp), b.(*qp))
}

func link(a, b *qp) error {
	if err := errors.Join(a.unused(), b.unused()); err != nil {
		return err
	}
	if a == b {
		return errors.New("verbstest: a queue pair cannot be linked to itself")
	}
	a.state, a.peer = stateConnected, b
	b.state, b.peer = stateConnected, a
	return nil
}

// ErrBroken is the cause that Break leaves.
var ErrBroken = errors.New("verbstest: the connection was broken")

// Break ends the connection of a queue pair as a dead network does: what was executed stays, the rest is flushed on
// both sides.
func (f *Fabric) Break(v verbs.QP) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := v.(*qp)
	if q.state != stateConnected {
		return
	}
	q.peer.fail(verbs.StatusTransport, ErrBroken, unknown)
	q.fail(verbs.StatusTransport, ErrBroken, unknown)
}

// forget takes one turn of q, or all of them, out of the order.
func (f *Fabric) forget(q *qp, all bool) {
	kept := f.order[:0]
	for _, o := range f.order {
		if o == q {
			if !all {
				q = nil // only the first
			}
			continue
		}
		kept = append(kept, o)
	}
	clear(f.order[len(kept):])
	f.order = kept
}

// execute carries out a work request of q, which is connected and has one to do.
func (f *Fabric) execute(q *qp) {
	f.forget(q, false)
	i := 0
	if f.pick != nil {
		i = q.choose(f)
	}
	f.last = q.sq[i].Op
	status, err := q.carryOut(&q.sq[i])
	if err == nil {
		q.sq[i].done = true
		q.retire()
		return
	}
	// The victim on the other side is its oldest receive, if the message did not fit it.
	other := unknown
	if status == verbs.StatusLength {
		other = firstRecv
	}
	q.lead(i)
	q.peer.fail(status, err, other)
	q.fail(status, err, firstSend)
}

// carryOut moves the bytes of one work request.
func (q *qp) carryOut(r *request) (verbs.Status, error) {
	local, err := r.source()
	if err != nil {
		return verbs.StatusProtect, err
	}
	switch r.Op {
	case verbs.OpSend:
		return q.peer.deliver(local)
	case verbs.OpWrite, verbs.OpAtomicWrite:
		remote, err := q.peer.reach(&r.SendWR, verbs.RemoteWrite, uint64(len(local)))
		if err == nil {
			err = pmem.Copy(remote, local)
		}
		if err == nil {
			q.placed(r.number, remote)
		}
		return verbs.StatusProtect, err
	case verbs.OpFlush:
		remote, err := q.peer.reach(&r.SendWR, verbs.RemoteFlush, r.Local.Len)
		if err == nil && r.Flush == verbs.FlushPersistent {
			q.flushed(remote)
		}
		return verbs.StatusProtect, err
	default: // OpRead
		remote, err := q.peer.reach(&r.SendWR, verbs.RemoteRead, r.Local.Len)
		if err == nil {
			err = pmem.Copy(local, remote)
		}
		if err == nil {
			q.answered(r.number)
		}
		return verbs.StatusProtect, err
	}
}

// deliver puts a message into the oldest receive.
func (q *qp) deliver(b []byte) (verbs.Status, error) {
	if len(q.rq) == 0 {
		return verbs.StatusPeer, errors.New("verbstest: a Send arrived and no receive was posted")
	}
	r := &q.rq[0]
	if uint64(len(b)) > r.Local.Len {
		return verbs.StatusLength, fmt.Errorf("verbstest: a message of %d bytes does not fit its receive of %d", len(b), r.Local.Len)
	}
	dst, err := bytesOf(r.Local)
	if err == nil {
		err = pmem.Copy(dst, b)
	}
	if err != nil {
		return verbs.StatusProtect, err
	}
	q.recvs.Complete(verbs.WC{ID: r.ID, Op: verbs.OpRecv, Len: uint32(len(b)), QP: q})
	q.rq = slices.Delete(q.rq, 0, 1)
	return verbs.StatusOK, nil
}

// reach finds the n bytes of q's side that a work request of its peer names.
func (q *qp) reach(wr *verbs.SendWR, need verbs.Access, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	m := q.pd.regions[wr.RKey]
	if m == nil {
		return nil, fmt.Errorf("verbstest: key %#x names no region of this protection domain", wr.RKey)
	}
	if m.access&need == 0 {
		return nil, fmt.Errorf("verbstest: region %#x does not grant %v", wr.RKey, wr.Op)
	}
	off := wr.RemoteAddr - m.base
	if wr.RemoteAddr < m.base || off > uint64(len(m.mem)) || n > uint64(len(m.mem))-off {
		return nil, fmt.Errorf("verbstest: %v of %d bytes at %#x is outside region %#x", wr.Op, n, wr.RemoteAddr, wr.RKey)
	}
	return m.mem[off : off+n], nil
}

// Tear breaks the connection of a queue pair in the middle of its oldest work request: if that is a Write, its first n bytes are placed.
func (f *Fabric) Tear(v verbs.QP, n int) {
	f.mu.Lock()
	q := v.(*qp)
	if q.state == stateConnected && len(q.sq) > 0 && q.sq[0].Op == verbs.OpWrite {
		q.sq[0].cut(n)
		_, _ = q.carryOut(&q.sq[0]) // what it cannot reach stays as it is, and the connection ends anyway
	}
	f.mu.Unlock()
	f.Break(v)
}
