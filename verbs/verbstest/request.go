package verbstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/pmemfs/pmemfs/verbs"
)

// request is a posted work request.
type request struct {
	verbs.SendWR
	number uint64 // its place among all of its queue pair
	data   []byte // what it sends, if PostSend took a copy
	done   bool   // carried out
	told   bool   // its completion was made, or it wants none
}

func (q *qp) checkSend(wr *verbs.SendWR) error {
	caps := &q.pd.dev.fabric.caps
	if wr.Inline && (wr.Op != verbs.OpWrite && wr.Op != verbs.OpSend || wr.Local.Len > uint64(caps.MaxInline)) {
		return fmt.Errorf("%d bytes inline: only WRITE and SEND take some, and at most %d", wr.Local.Len, caps.MaxInline)
	}
	var need verbs.Access
	switch wr.Op {
	case verbs.OpWrite, verbs.OpSend:
	case verbs.OpRead:
		need = verbs.LocalWrite
	case verbs.OpFlush:
		return checkFlush(wr, caps)
	case verbs.OpAtomicWrite:
		return checkAtomic(wr, caps)
	default:
		return verbs.ErrUnsupported
	}
	return q.pd.checkLocal(wr.Local, need)
}

func checkFlush(wr *verbs.SendWR, caps *verbs.Caps) error {
	switch {
	case !caps.Flush:
		return verbs.ErrUnsupported
	case wr.Local.MR != nil || wr.Local.Off != 0 || wr.Local.Len > verbs.MaxMessage:
		return fmt.Errorf("a FLUSH names no local memory, and at most %d bytes", verbs.MaxMessage)
	case wr.Flush > verbs.FlushVisible:
		return fmt.Errorf("flush type %d is unknown", wr.Flush)
	}
	return nil
}

func checkAtomic(wr *verbs.SendWR, caps *verbs.Caps) error {
	switch {
	case !caps.AtomicWrite:
		return verbs.ErrUnsupported
	case wr.RemoteAddr%8 != 0:
		return errors.New("the address is not a multiple of 8")
	}
	return nil
}

// append adds a work request that checkSend has accepted, and copies what its user may change from now on.
func (q *qp) append(wr *verbs.SendWR) {
	q.posted++
	r := request{SendWR: *wr, number: q.posted}
	switch {
	case wr.Op == verbs.OpAtomicWrite:
		r.data = binary.LittleEndian.AppendUint64(nil, wr.Value)
	case wr.Local.Len > 0 && (wr.Inline || q.fetches(wr)):
		m := wr.Local.MR.(*mr)
		r.data = slices.Clone(m.mem[wr.Local.Off : wr.Local.Off+wr.Local.Len])
	}
	q.sq = append(q.sq, r)
}

// fetches says whether the source of a Write is fetched now: a device may do that at any moment until it places the bytes.
func (q *qp) fetches(wr *verbs.SendWR) bool {
	f := q.pd.dev.fabric
	return wr.Op == verbs.OpWrite && f.pick != nil && f.pick(2) == 0
}

// source is the local memory of r.
func (r *request) source() ([]byte, error) {
	if r.data != nil || r.Op == verbs.OpFlush {
		return r.data, nil
	}
	return bytesOf(r.Local)
}

// cut leaves the first n bytes of a Write.
func (r *request) cut(n int) {
	r.data = r.data[:min(len(r.data), n)]
	r.Local.Len = min(r.Local.Len, uint64(n))
}

// Reorder lets a queue pair carry out its work requests in any order that package verbs allows to devices that do not place overlapping Writes in
// order: pick chooses one of n. It chooses as well whether the source of a Write is fetched at the post or when it is placed. It is called before the
// first device is made.
func (f *Fabric) Reorder(pick func(n int) int) { f.pick, f.caps.OrderedPlace = pick, false }

// Overtake is Reorder for devices that place Writes in order: what is not fenced may still be carried out before earlier Reads and
// AtomicWrites, and anything before earlier Flushes.
func (f *Fabric) Overtake(pick func(n int) int) { f.pick = pick }

// Early lets Writes and Sends complete before they are carried out, as a transport in software does: their bytes are fetched from the source when they are
// placed. It is called before the first device is made.
func (f *Fabric) Early() { f.early = true }

// choose picks one of the work requests of q that may be carried out next.
func (q *qp) choose(f *Fabric) int {
	n := 0
	for i := range q.sq {
		if q.free(i) {
			n++
		}
	}
	if n == 1 {
		return 0
	}
	k := f.pick(n)
	for i := range q.sq {
		if q.free(i) {
			if k == 0 {
				return i
			}
			k--
		}
	}
	return 0
}

// free says whether number i of the queue may be carried out before all that are in front of it.
func (q *qp) free(i int) bool {
	if q.sq[i].done {
		return false
	}
	for j := range q.sq[:i] {
		if !q.sq[j].done && !q.overtakes(&q.sq[i], &q.sq[j]) {
			return false
		}
	}
	return true
}

// overtakes says whether r may be carried out before the earlier one.
func (q *qp) overtakes(r, earlier *request) bool {
	store := r.Op == verbs.OpWrite || r.Op == verbs.OpAtomicWrite
	if earlier.Op == verbs.OpSend || earlier.Op == verbs.OpWrite {
		return store && !q.pd.dev.fabric.caps.OrderedPlace
	}
	held := r.Fence && earlier.Op != verbs.OpFlush
	return !held && (store || r.Op == verbs.OpSend)
}

// retire completes what may complete and has nothing in front of it that may not, and takes what is over off the queue.
func (q *qp) retire() {
	for i := range q.sq {
		r := &q.sq[i]
		if !r.done && !q.early(r) {
			break
		}
		if !r.told {
			r.told = true
			q.succeed(r)
		}
	}
	n := 0
	for n < len(q.sq) && q.sq[n].done && q.sq[n].told {
		n++
	}
	q.sq = slices.Delete(q.sq, 0, n)
}

// early says whether r completes before it is carried out.
func (q *qp) early(r *request) bool {
	return q.pd.dev.fabric.early && (r.Op == verbs.OpWrite || r.Op == verbs.OpSend)
}

func (q *qp) succeed(r *request) {
	if !r.Signaled {
		q.sends.Skip()
		return
	}
	wc := verbs.WC{ID: r.ID, Op: r.Op, QP: q}
	if r.Op == verbs.OpRead {
		wc.Len = uint32(r.Local.Len)
	}
	q.sends.Complete(wc)
}

// lead brings number i of the queue to its head: it is at fault.
func (q *qp) lead(i int) {
	r := q.sq[i]
	copy(q.sq[1:i+1], q.sq[:i])
	q.sq[0] = r
}
