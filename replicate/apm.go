package replicate

import (
	"encoding/binary"

	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

// apm is for targets where placed bytes are persistent: a READ is answered only when the WRITEs before it on the same connection are placed,
// and on its way it pushes them out of the buffers of device and bus. The target's CPU does nothing.
//
// Order of steps, in one batch: 1 WRITEs; 2 READ of bytes just written; 3 WRITE of the seal, fenced, so that it is not sent before the READ
// was answered: without the fence a WRITE may overtake the answer to a READ; 4 READ of the seal. A unit that is not the last of its drain
// ends after 2, and so does a drain without a seal.
//
// A target has no way to say that it failed. Its errors come as completions, its end as that of the connection.
type apm struct {
	*lane
	words  verbs.MR // a word for the seal of each job, then the sink of the READs, whose content nobody looks at
	inline bool
}

func (m *apm) open() (err error) {
	m.inline = m.fab.dev.Caps().MaxInline >= word
	m.words, err = m.buffer((MaxInFlight+1)*word, verbs.LocalWrite)
	return err
}

func (m *apm) close() { deregister(m.words) }

func (m *apm) trial(_, _ uint64) []verbs.SendWR { return nil }

func (m *apm) most() int { return unitWrites + 3 }

func (m *apm) room() bool { return true }

func (m *apm) finish(j *job, u *named, n int) int {
	sealed := u.last && j.seal != (pmem.Seal{})
	if w, ok := lastWord(u.ranges); (ok || !sealed) && !(sealed && mutant.On(mutant.APMNoRead)) {
		m.wrs[n] = m.proof(w)
		n++
	}
	if sealed {
		m.wrs[n], m.wrs[n+1] = m.seal(u.slot, j.seal), m.proof(pmem.Range{Off: j.seal.Off, Len: word})
		n += 2
		if mutant.On(mutant.APMNoLastRead) {
			n--
		}
	}
	m.wrs[n-1].Signaled = true
	return n
}

// seal is the WRITE of a seal. Its word is stored to again for the next drain in the same place of the ring, so after the READ that
// ends this one.
func (m *apm) seal(slot int, s pmem.Seal) verbs.SendWR {
	off := uint64(slot) * word
	binary.LittleEndian.PutUint64(m.words.Bytes()[off:], s.Val)
	m.fab.sent.write(1, word)
	addr, rkey := m.remote.At(s.Off)
	return verbs.SendWR{ID: idProof, Op: verbs.OpWrite, Fence: !mutant.On(mutant.APMNoFence), Inline: m.inline, Local: verbs.SGE{MR: m.words, Off: off, Len: word},
		RemoteAddr: addr, RKey: rkey}
}

// proof is a READ of r, at most a word.
func (m *apm) proof(r pmem.Range) verbs.SendWR {
	m.fab.sent.reads.Add(1)
	addr, rkey := m.remote.At(r.Off)
	return verbs.SendWR{ID: idProof, Op: verbs.OpRead, Local: verbs.SGE{MR: m.words, Off: MaxInFlight * word, Len: r.Len}, RemoteAddr: addr, RKey: rkey}
}

func (m *apm) complete(_ *verbs.WC, u unit, out []outcome) ([]outcome, error) {
	m.release(u.mark)
	if !u.last {
		return append(out, outcome{kind: outProgress}), nil
	}
	return append(out, m.ended(outcome{})), nil
}

// lastWord is the end of the bytes that ranges name: at most a word of the last range that has any. If none has, it is a word that
// may be read as well, and not ok.
func lastWord(ranges []pmem.Range) (w pmem.Range, ok bool) {
	for i := len(ranges) - 1; i >= 0; i-- {
		if r := ranges[i]; r.Len > 0 {
			n := min(r.Len, word)
			return pmem.Range{Off: r.Off + r.Len - n, Len: n}, true
		}
	}
	return pmem.Range{Off: wire.FirstOffset, Len: word}, false
}
