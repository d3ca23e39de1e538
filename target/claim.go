package target

import (
	"slices"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/mutant"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// MaxLanes is the most lanes of one session.
const MaxLanes = 16

// claim gives the pool to a new writer.
//
// Order of durable steps: 1 open: what earlier writers left in caches is persistent; 2 what can be refused without touching the old session
// is; 3 that session is fenced: lanes closed, handlers ended, region deregistered; 4 region registered, method chosen; 5 (term, writer)
// persistent; 6 grant sent. A refusal or a crash before 5 leaves the old writer, who can claim again; after 5 only the new one can. Before 6
// nobody knows the session's number and keys, so no byte is written under a term that is not durable.
func (m *Machine) claim(c ConnID, r *wire.Claim) {
	if m.open {
		m.weigh(c, r)
		return
	}
	m.then(Open{}, func(d Done) {
		if d.Err != nil {
			m.refuseLocked(c, r, d.Err)
			return
		}
		m.open, m.rep = true, d.Replica
		m.weigh(c, r)
	})
}

// refuseLocked answers a claim of a pool that cannot be opened. One that is locked because it was promoted and is
// mounted here is not merely busy: its old writer must learn that it is fenced.
func (m *Machine) refuseLocked(c ConnID, r *wire.Claim, err error) {
	if asRefusal(err).Status != wire.StatusBusy {
		m.refuse(c, err)
		return
	}
	m.then(Inspect{}, func(d Done) {
		if d.Err == nil && d.Replica.Attr.PoolUUID == r.PoolUUID {
			if ref := checkPromoted(&d.Replica, r); ref != nil {
				m.refuse(c, ref)
				return
			}
		}
		m.refuse(c, err)
	})
}

// weigh checks the claim against the open pool and grants or refuses it.
func (m *Machine) weigh(c ConnID, r *wire.Claim) {
	giveUp := func(err error) {
		m.releaseIdle()
		m.refuse(c, err)
	}
	ref := checkClaim(&m.rep, r)
	if ref == nil {
		ref = checkDurability(&m.rep, r, m.durability)
	}
	if ref != nil {
		giveUp(ref)
		return
	}
	m.then(Choose{r.Methods}, func(d Done) {
		if d.Err != nil {
			giveUp(d.Err)
			return
		}
		m.fence(c, wire.Fenced{Term: r.Term, Text: "another connection claimed the pool"}, func(err error) {
			if err != nil {
				giveUp(err)
				return
			}
			m.grant(c, r, giveUp)
		})
	})
}

// fence ends the session of an older connection, if there is one, and leaves the pool open. The connection by is not closed.
func (m *Machine) fence(by ConnID, f wire.Fenced, next func(error)) {
	if m.session.id == 0 || mutant.On(mutant.NoFencing) {
		next(nil)
		return
	}
	if old := m.session.conn; old != 0 && old != by {
		m.do(Notice{old, f})
	}
	m.endSession(f.Term, next)
}

// grant registers the region and persists the new term. Nobody else holds the pool.
func (m *Machine) grant(c ConnID, r *wire.Claim, giveUp func(error)) {
	m.then(Register{r.Term, r.Lanes, r.Methods}, func(d Done) {
		if d.Err != nil {
			giveUp(d.Err)
			return
		}
		m.session = session{id: d.Grant.Session, term: r.Term} // nobody's before the term is durable
		m.persist(claimed(m.rep, r), func(err error) {
			if err != nil {
				m.endSession(0, func(error) { giveUp(err) })
				return
			}
			m.session.conn = c
			m.answer(c, d.Grant.Append(nil))
		})
	})
}

// claimed is the state of rep under a new writer.
func claimed(rep Replica, r *wire.Claim) Replica {
	if rep.Writer != r.Writer {
		rep.Flags &^= wire.FlagClean // what the mark compares with is the copy of the writer who set it
	}
	rep.Term, rep.Writer = r.Term, r.Writer
	return rep
}

// checkClaim refuses a claim that must not write this copy.
func checkClaim(rep *Replica, r *wire.Claim) *Refusal {
	if r.PoolUUID != rep.Attr.PoolUUID {
		return foreign(r.PoolUUID, rep.Attr.PoolUUID)
	}
	if r.Writer == (wire.UUID{}) || r.Writer == rep.Attr.CopyID {
		return refuse(wire.StatusBadRequest, "writer %v is no copy id of an initiator: give each copy its own", r.Writer)
	}
	if r.Lanes == 0 || r.Lanes > MaxLanes {
		return refuse(wire.StatusBadRequest, "%d lanes asked for, 1 to %d can be had", r.Lanes, MaxLanes)
	}
	if mutant.On(mutant.AnyTerm) {
		return checkGeneration(rep, r)
	}
	if ref := checkPromoted(rep, r); ref != nil {
		return ref
	}
	if r.Term < rep.Term || r.Term == rep.Term && rep.Writer != (wire.UUID{}) && rep.Writer != r.Writer {
		return fenced(rep, "term %d was claimed, but writer %v holds term %d", r.Term, rep.Writer, rep.Term)
	}
	return checkGeneration(rep, r)
}

// checkPromoted refuses a claim of a copy that has been the primary itself at the claimed term or later.
func checkPromoted(rep *Replica, r *wire.Claim) *Refusal {
	if rep.Writer != rep.Attr.CopyID || rep.Term < r.Term {
		return nil
	}
	return fenced(rep, "promoted elsewhere at term %d", rep.Term)
}

// checkGeneration accepts a claimant that holds all that this copy holds: it has the same generation, or one that came
// after it, or it is in the line of the source of a full copy that did not finish. A copy without a writer or a
// generation holds nothing.
func checkGeneration(rep *Replica, r *wire.Claim) *Refusal {
	inLine := func(gen uint64) bool { return gen != 0 && (gen == r.Gen || slices.Contains(r.History[:], gen)) }
	switch {
	case rep.Writer.IsZero(), rep.Gen == 0, inLine(rep.Gen):
		return nil
	case rep.Flags&wire.FlagInconsistent != 0 && inLine(rep.SyncGen):
		return nil
	case r.Gen != 0 && slices.Contains(rep.History[:], r.Gen):
		return refuse(wire.StatusSplitBrain, "the copy here is newer: its generation %016x came after the claimant's %016x", rep.Gen, r.Gen)
	}
	return refuse(wire.StatusSplitBrain, "generation %016x here is neither that of the claimant, %016x, nor in its history", rep.Gen, r.Gen)
}

// checkDurability refuses to serve a copy whose promise is less than the claimant or the configuration asks for.
func checkDurability(rep *Replica, r *wire.Claim, least config.Durability) *Refusal {
	have := config.Durability(rep.Durability)
	switch {
	case r.Durability != wire.DurabilityMemory && r.Durability != wire.DurabilityMedia:
		return refuse(wire.StatusBadRequest, "durability class %d is not known", r.Durability)
	case have < least:
		return refuse(wire.StatusDurability, "the copy here promises %v and target.toml asks for %v: move its parts off tmpfs, "+
			"or set durability = %q in target.toml", have, least, have)
	case uint32(have) < r.Durability:
		return refuse(wire.StatusDurability, "the copy here promises %v and the initiator asks for %v: move its parts off tmpfs, "+
			"or set durability = %q in pmemfs.toml", have, config.Durability(r.Durability), have)
	}
	return nil
}
