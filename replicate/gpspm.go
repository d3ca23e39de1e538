package replicate

import (
	"errors"
	"fmt"

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
	silent      int              // Sends since the last one that asked
	asked       [maxAnswers]bool // ring: whether the answered Send was the last of its drain
	askHead     int
	askN        int

	msg  wire.Flush
	ans  wire.FlushAnswer
	recv [1]verbs.RecvWR
}

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

// finish adds the Send. The one that uses the last credit asks for an answer, and so does every answerEvery-th of a long drain.
func (m *gpspm) finish(j *job, u *named, n int) int {
	m.silent++
	ask := u.last || m.sent+1-m.taken == m.credits || m.silent == answerEvery
	m.msg = wire.Flush{Seq: j.seq, Session: m.session, Answer: ask, Ranges: u.ranges}
	if u.last {
		m.msg.Seal = j.seal
	}
	off := m.sent % m.credits * wire.MaxFlush
	size := m.msg.Encode(m.sends.Bytes()[off:])
	m.wrs[n] = verbs.SendWR{ID: idSend, Op: verbs.OpSend, Signaled: true, Local: verbs.SGE{MR: m.sends, Off: off, Len: uint64(size)}}
	m.fab.sent.send(ask)
	m.sent++
	if ask {
		m.silent = 0
		m.asked[(m.askHead+m.askN)%maxAnswers] = u.last
		m.askN++
	}
	return n + 1
}

// complete handles an answer. The completion of a Send says nothing about the target.
func (m *gpspm) complete(wc *verbs.WC, _ unit, out []outcome) ([]outcome, error) {
	if wc.Op != verbs.OpRecv {
		return out, nil
	}
	last, err := m.answer(wc)
	if err != nil {
		return out, err
	}
	j, a := &m.jobs[m.head], &m.ans
	if a.Seq != j.seq {
		return out, fmt.Errorf("answer to drain %d, drain %d is the oldest: %w", a.Seq, j.seq, wire.ErrCorrupt)
	}
	if a.Status == wire.FlushOK && !last {
		return append(out, outcome{kind: outProgress}), nil
	}
	return append(out, m.ended(outcome{status: a.Status, where: a.Where, term: a.Term})), nil
}

// answer takes one flush answer into m.ans, posts its receive again, and tells whether its Send was the last one of its drain.
func (m *gpspm) answer(wc *verbs.WC) (last bool, err error) {
	i := wc.ID >> idBits
	off := i * wire.AnswerSize
	if wc.Len > wire.AnswerSize {
		return false, errors.New("the target's answer is too long: run the same release of pmemfs on both sides")
	}
	a := &m.ans
	if err := a.Decode(m.recvs.Bytes()[off : off+uint64(wc.Len)]); err != nil {
		return false, err
	}
	if m.askN == 0 || a.Taken < m.taken || a.Taken > m.sent {
		return false, fmt.Errorf("answer to drain %d covers %d Sends of %d, or was not asked for: %w", a.Seq, a.Taken, m.sent, wire.ErrCorrupt)
	}
	m.taken = a.Taken
	last = m.asked[m.askHead]
	m.askHead = (m.askHead + 1) % maxAnswers
	m.askN--
	return last, m.postRecv(i)
}
