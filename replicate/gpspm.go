package replicate

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	maxCredits  = 64 // flush messages that may be outstanding; one buffer each
	maxAnswers  = 16 // answered ones among them; one receive each
	answerEvery = 8  // Sends after which one asks for an answer, so that a long drain shows progress
)

// gpspm lets the target's CPU work. A unit ends with a Send that names its ranges; the Send of the last unit carries the seal and asks for an
// answer. The target handles Sends in order, and each finds its ranges placed, since the WRITEs stand before it on the same
// connection. An ordinary drain is one unit: one batch, one answer.
//
// Order of durable steps, at the target: 1 WRITEs placed; 2 ranges flushed and fenced; 3 seal stored; 4 seal flushed and fenced; 5 answer.
//
// Credits: sent counts the Sends posted, taken those that answers have covered. The bytes of a Send buffer may be
// needed until an answer covers it (a software provider may still hold them), so the buffers are the ring of the credits.
type gpspm struct {
	*lane
	sends, recvs verbs.MR

	credits     uint64
	sent, taken uint64
	silent      int               // Sends since the last one that asked
	marks       [maxCredits]marks // of the Sends: what they use of bounce buffers ends there
	asked       [maxAnswers]asked // ring
	askHead     int
	askN        int
	fetching    pmem.Range // to be fetched or on its way; Len 0: none
	fetchAsked  bool       // on its way

	msg  wire.Flush
	ans  wire.FlushAnswer
	recv [1]verbs.RecvWR

	fetched [1]pmem.Range // of the message that asks for it
}

// asked is what a Send that asked for an answer was.
type asked uint8

const (
	askedMiddle asked = iota // of a drain
	askedLast                // of a drain
	askedFetch
)

func (m *gpspm) open() (err error) {
	if m.sends, err = m.buffer(maxCredits*wire.MaxFlush, 0); err != nil {
		return err
	}
	if m.recvs, err = m.buffer(maxAnswers*wire.AnswerSize, verbs.LocalWrite); err != nil {
		return err
	}
	for i := range uint64(maxAnswers) {
		if err := m.postRecv(i); err != nil {
			return err
		}
	}
	return nil
}

func (m *gpspm) close() {
	deregister(m.sends)
	deregister(m.recvs)
}

func (m *gpspm) postRecv(i uint64) error {
	m.recv[0] = verbs.RecvWR{ID: i<<idBits | idRecv, Local: verbs.SGE{MR: m.recvs, Off: i * wire.AnswerSize, Len: wire.AnswerSize}}
	return m.qp.PostRecv(m.recv[:])
}

func (m *gpspm) trial(_, _ uint64) []verbs.SendWR { return nil }

func (m *gpspm) most() int { return unitWrites + 1 }

func (m *gpspm) room() bool { return m.sent-m.taken < m.credits && m.askN < maxAnswers }

// finish adds the Send. The one that uses the last credit asks for an answer, and so does the one behind which a bounce buffer has no room for another
// unit, and every answerEvery-th of a long drain.
func (m *gpspm) finish(j *job, u *named, n int) int {
	m.silent++
	m.msg = wire.Flush{Seq: j.seq, Session: m.session, Ranges: u.ranges}
	m.msg.Answer = u.last || m.sent+1-m.taken == m.credits || m.silent == answerEvery || !m.fits()
	what := askedMiddle
	if u.last {
		m.msg.Seal, what = j.seal, askedLast
	}
	if m.staging != nil {
		m.msg.Stage, m.msg.StageAt = wire.Staged, u.stage
	}
	m.wrs[n] = m.send(what)
	return n + 1
}

// send is the Send of m.msg.
func (m *gpspm) send(what asked) verbs.SendWR {
	slot := m.sent % m.credits
	off := slot * wire.MaxFlush
	size := m.msg.Encode(m.sends.Bytes()[off:])
	m.fab.sent.send(m.msg.Answer)
	m.marks[slot] = m.lane.marks()
	m.sent++
	if m.msg.Answer {
		m.silent = 0
		m.asked[(m.askHead+m.askN)%maxAnswers] = what
		m.askN++
	}
	return verbs.SendWR{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: m.sends, Off: off, Len: uint64(size)}}
}

// bring lets the target copy the bytes from its pool into the staging area, if it has one. It is asked now or when there is a credit, and the READ
// follows its answer.
func (m *gpspm) bring(off, n uint64) (uint64, error) {
	if m.staging == nil {
		return m.lane.bring(off, n)
	}
	m.fetching, m.fetchAsked = pmem.Range{Off: off, Len: n}, false
	return n, m.askFetch()
}

// askFetch sends what bring has to ask, if it can.
func (m *gpspm) askFetch() error {
	if m.fetching.Len == 0 || m.fetchAsked || !m.room() {
		return nil
	}
	m.fetched[0] = m.fetching
	m.msg = wire.Flush{Session: m.session, Answer: true, Stage: wire.Fetch, StageAt: m.fetchAt(), Ranges: m.fetched[:]}
	m.wrs[0] = m.send(askedFetch)
	if err := m.qp.PostSend(m.wrs[:1]); err != nil {
		return err
	}
	m.pushUnit(unit{slots: 1})
	m.fetchAsked = true
	return nil
}

// fetchAnswered posts the READ of what was fetched.
func (m *gpspm) fetchAnswered() error {
	r := m.fetching
	m.fetching = pmem.Range{}
	if m.ans.Status != wire.FlushOK {
		return fmt.Errorf("reading %d bytes at offset %d: %w", r.Len, r.Off, m.ans.Status)
	}
	return m.postRead(r.Len, m.area.Base+m.fetchAt(), m.area.RKey)
}

// complete handles an answer. The completion of a Send says nothing about the target.
func (m *gpspm) complete(wc *verbs.WC, _ unit, out []outcome) ([]outcome, error) {
	if wc.Op != verbs.OpRecv {
		return out, nil
	}
	what, err := m.answer(wc)
	if err != nil {
		return out, err
	}
	if what == askedFetch {
		return append(out, outcome{kind: outProgress}), m.fetchAnswered()
	}
	if err := m.askFetch(); err != nil {
		return out, err
	}
	last := what == askedLast
	j, a := &m.jobs[m.head], &m.ans
	if a.Seq != j.seq {
		return out, fmt.Errorf("answer to drain %d, drain %d is the oldest: %w", a.Seq, j.seq, wire.ErrCorrupt)
	}
	if a.Status == wire.FlushOK && !last {
		return append(out, outcome{kind: outProgress}), nil
	}
	return append(out, m.ended(outcome{status: a.Status, where: a.Where, term: a.Term})), nil
}

// answer takes one flush answer into m.ans, posts its receive again, and tells what its Send was.
func (m *gpspm) answer(wc *verbs.WC) (what asked, err error) {
	i := wc.ID >> idBits
	off := i * wire.AnswerSize
	if wc.Len > wire.AnswerSize {
		return 0, errors.New("the target's answer is too long: run the same release of pmemfs on both sides")
	}
	a := &m.ans
	if err := a.Decode(m.recvs.Bytes()[off : off+uint64(wc.Len)]); err != nil {
		return 0, err
	}
	if m.askN == 0 || a.Taken < m.taken || a.Taken > m.sent {
		return 0, fmt.Errorf("answer to drain %d covers %d Sends of %d, or was not asked for: %w", a.Seq, a.Taken, m.sent, wire.ErrCorrupt)
	}
	if a.Taken > m.taken {
		m.release(m.marks[(a.Taken-1)%m.credits])
	}
	m.taken = a.Taken
	what = m.asked[m.askHead]
	m.askHead = (m.askHead + 1) % maxAnswers
	m.askN--
	return what, m.postRecv(i)
}
