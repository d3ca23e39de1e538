package target

import (
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// promote makes this copy the primary, whoever wrote it before.
//
// Order of durable steps: 1 the session is fenced, so that no byte changes any more; 2 the whole region is persistent, also
// what a writer placed and never flushed: nothing that recovery believes may sit in a cache only; 3 (term+1, own
// copy id, new generation) is persistent. A crash before 3 leaves a replica that its old writer may claim again; after
// 3 every older term is refused.
func (m *Machine) promote(p Promotion) {
	if m.open {
		m.takeOver(p)
		return
	}
	m.then(Open{}, func(d Done) {
		if d.Err != nil {
			m.do(Report{Err: d.Err})
			return
		}
		m.open, m.rep = true, d.Replica
		m.takeOver(p)
	})
}

func (m *Machine) takeOver(p Promotion) {
	fail := func(err error) {
		m.do(Report{Err: err})
		m.releaseIdle()
	}
	if m.session.id == 0 && m.rep.Writer == m.rep.Attr.CopyID && m.rep.Flags&wire.FlagInconsistent == 0 {
		m.do(Report{Term: m.rep.Term}) // done before, and nobody has claimed it since, or begun to
		m.releaseIdle()
		return
	}
	if ref := checkPromotion(&m.rep, p.Force); ref != nil {
		fail(ref)
		return
	}
	m.fence(0, wire.Fenced{Term: m.rep.Term + 1, Text: "the copy on the target was promoted"}, func(err error) {
		if err != nil {
			fail(err)
			return
		}
		// The end of the session may have found a flush that failed, and marked the copy.
		if ref := checkPromotion(&m.rep, p.Force); ref != nil {
			fail(ref)
			return
		}
		rep := promoted(m.rep, p.Gen)
		m.then(Sync{}, func(d Done) {
			if d.Err != nil {
				fail(d.Err)
				return
			}
			m.persist(rep, func(err error) {
				if err != nil {
					fail(err)
					return
				}
				m.do(Report{Term: rep.Term})
				m.releaseIdle()
			})
		})
	})
}

// checkPromotion refuses a copy that may lack acknowledged bytes.
func checkPromotion(rep *Replica, force bool) *Refusal {
	switch {
	case force:
		return nil
	case rep.Writer.IsZero() || rep.Gen == 0:
		return refuse(wire.StatusInconsistent, "the copy has never received the pool: promote another copy, or an empty one with --force")
	case rep.Flags&wire.FlagInconsistent != 0:
		return refuse(wire.StatusInconsistent, "the copy is inconsistent: a copy to it did not finish, or a write to it failed; "+
			"promote another copy, or lose data with --force")
	case rep.Flags&wire.FlagMayDegrade != 0:
		return refuse(wire.StatusInconsistent, "the initiator was allowed to go on without this copy, which may lack acknowledged writes: "+
			"make sure that it did not, or accept the loss with --force")
	}
	return nil
}

// promoted is the state of rep after its promotion. The peers are unknown from now on, and a forced promotion declares the
// bytes good as they are.
func promoted(rep Replica, gen uint64) Replica {
	copy(rep.History[1:], rep.History[:len(rep.History)-1])
	rep.History[0] = rep.Gen
	rep.Term++
	rep.Writer, rep.Gen = rep.Attr.CopyID, gen
	rep.Flags &^= wire.FlagInconsistent | wire.FlagClean
	rep.SyncGen, rep.SyncID, rep.Peers = 0, 0, nil
	return rep
}
