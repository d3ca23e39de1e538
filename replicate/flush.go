package replicate

import (
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/verbs"
)

// flush lets the target's device work.
//
// Order of steps: 1 WRITEs; 2 a FLUSH of each range, persistent; when the last of them has completed, 3 ATOMIC_WRITE of the seal; 4 FLUSH
// of the seal. Steps 1 and 2 are one batch, and 3 and 4 another one. A fence in their place would not do: it waits for READs and atomics
// (docs/decisions/0011). One seal at a time is on the wire, so that seals become persistent in the order of their drains, although
// the ranges of later drains are flushed meanwhile.
//
// Ranges are flushed one by one, and those that nearly touch as one. A single FLUSH over the hull of a drain would often span
// most of the pool, from the log to the data, and the device walks all of it.
//
// Failures are reported as with apm.
type flush struct {
	*lane
	sealing bool // the seal of the oldest drain is on the wire
}

func (m *flush) open() error { return nil }

func (m *flush) close() {}

func (m *flush) trial(off, v uint64) []verbs.SendWR {
	wrs := []verbs.SendWR{m.store(pmem.Seal{Off: off, Val: v}), m.persist(idProof, pmem.Range{Off: off, Len: word})}
	wrs[0].Signaled, wrs[1].Signaled = true, true
	return wrs
}

func (m *flush) most() int { return 2 * unitWrites }

func (m *flush) room() bool { return true }

func (m *flush) finish(j *job, u *named, n int) int {
	if u.last && j.seal != (pmem.Seal{}) && mutant.On(mutant.FlushEarly) {
		m.wrs[n] = m.store(j.seal)
		n++
	}
	first := n
	for _, r := range u.ranges {
		if r.Len > 0 {
			m.wrs[n] = m.persist(idProof, r)
			n++
		}
	}
	if n == first { // a completion must tell that all drains before this one are persistent
		w, _ := lastWord(nil)
		m.wrs[n] = m.persist(idProof, w)
		n++
	}
	m.wrs[n-1].Signaled = true
	return n
}

func (m *flush) persist(id uint64, r pmem.Range) verbs.SendWR {
	m.fab.sent.flushes.Add(1)
	addr, rkey := m.remote.At(r.Off)
	kind := verbs.FlushPersistent
	if mutant.On(mutant.FlushVisible) {
		kind = verbs.FlushVisible
	}
	return verbs.SendWR{ID: id, Op: verbs.OpFlush, Flush: kind, Local: verbs.SGE{Len: r.Len}, RemoteAddr: addr, RKey: rkey}
}

func (m *flush) complete(wc *verbs.WC, u unit, out []outcome) ([]outcome, error) {
	m.release(u.mark)
	switch {
	case wc.ID == idSeal:
		m.sealing = false
		out = append(out, m.ended(outcome{}))
	case u.last:
		m.prove()
	default:
		return append(out, outcome{kind: outProgress}), nil
	}
	return m.advance(out)
}

// prove notes that the ranges of the next drain are persistent.
func (m *flush) prove() {
	for i := range m.n {
		if j := &m.jobs[(m.head+i)%MaxInFlight]; !j.proven {
			j.proven = true
			return
		}
	}
}

// advance ends drains that need no seal, in order, and posts the seal of the first that does.
func (m *flush) advance(out []outcome) ([]outcome, error) {
	for m.n > 0 && !m.sealing {
		j := &m.jobs[m.head]
		if !j.proven {
			break
		}
		if j.seal != (pmem.Seal{}) {
			m.sealing = true
			return append(out, outcome{kind: outProgress}), m.postSeal(j.seal)
		}
		out = append(out, m.ended(outcome{}))
	}
	return out, nil
}

func (m *flush) store(s pmem.Seal) verbs.SendWR {
	addr, rkey := m.remote.At(s.Off)
	return verbs.SendWR{ID: idSeal, Op: verbs.OpAtomicWrite, Value: s.Val, RemoteAddr: addr, RKey: rkey}
}

// postSeal posts steps 3 and 4, for which units leave places free.
func (m *flush) postSeal(s pmem.Seal) error {
	m.wrs[0] = m.store(s)
	m.wrs[1] = m.persist(idSeal, pmem.Range{Off: s.Off, Len: word})
	m.wrs[1].Signaled = true
	if mutant.On(mutant.FlushNoSeal) {
		m.wrs[1].Flush = verbs.FlushVisible
	}
	if err := m.qp.PostSend(m.wrs[:2]); err != nil {
		return err
	}
	m.fab.sent.write(1, word)
	m.pushUnit(unit{slots: 2})
	return nil
}
