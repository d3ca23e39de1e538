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
	pick      func(n int) int // order of Writes, nil: as posted
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
	return &Fabric{auto: m == Auto, listeners: make(map[string]*listener)}
}

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

// execute carries out the oldest work request of q, which is connected.
func (f *Fabric) execute(q *qp) {
	f.forget(q, false)
	if f.pick != nil {
		q.shuffle(f.pick)
	}
	status, err := q.carryOut(&q.sq[0])
	if err == nil {
		q.complete()
		return
	}
	// The victim on the other side is its oldest receive, if the message did not fit it.
	other := unknown
	if status == verbs.StatusLength {
		other = firstRecv
	}
	q.peer.fail(status, err, other)
	q.fail(status, err, firstSend)
}

// carryOut moves the bytes of one work request.
func (q *qp) carryOut(wr *verbs.SendWR) (verbs.Status, error) {
	local, err := bytesOf(wr.Local)
	if err != nil {
		return verbs.StatusProtect, err
	}
	switch wr.Op {
	case verbs.OpSend:
		return q.peer.deliver(local)
	case verbs.OpWrite:
		remote, err := q.peer.reach(wr, verbs.RemoteWrite)
		if err == nil {
			err = pmem.Copy(remote, local)
		}
		return verbs.StatusProtect, err
	default: // OpRead
		remote, err := q.peer.reach(wr, verbs.RemoteRead)
		if err == nil {
			err = pmem.Copy(local, remote)
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

// reach finds the bytes of q's side that a work request of its peer names.
func (q *qp) reach(wr *verbs.SendWR, need verbs.Access) ([]byte, error) {
	n := wr.Local.Len
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

// Reorder makes devices that do not promise to place overlapping Writes in order, and places the Writes of a queue pair that no Send
// or Read separates in the order that pick says: it chooses one of n. It is called before the first device is made.
func (f *Fabric) Reorder(pick func(n int) int) { f.pick = pick }

// shuffle brings a Write to the head of q that may be placed next.
func (q *qp) shuffle(pick func(n int) int) {
	n := 0
	for n < len(q.sq) && q.sq[n].Op == verbs.OpWrite && !q.sq[n].Signaled {
		n++
	}
	if n > 1 {
		i := pick(n)
		q.sq[0], q.sq[i] = q.sq[i], q.sq[0]
	}
}

// Tear breaks the connection of a queue pair in the middle of its oldest work request: if that is a Write, its first n bytes are placed.
func (f *Fabric) Tear(v verbs.QP, n int) {
	f.mu.Lock()
	q := v.(*qp)
	if q.state == stateConnected && len(q.sq) > 0 && q.sq[0].Op == verbs.OpWrite {
		wr := q.sq[0]
		wr.Local.Len = min(wr.Local.Len, uint64(n))
		_, _ = q.carryOut(&wr)
	}
	f.mu.Unlock()
	f.Break(v)
}
