package initiator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// RepairConfig is what a repair needs to know.
type RepairConfig struct {
	Config  *config.Mount
	Set     *poolset.Set
	From    *poolset.Set // another copy, to take nodes from; nil: the replicas
	Log     *logrus.Entry
	Say     func(f volume.Finding, action string) // before each change
	Refused func(f volume.Finding)                // what is left alone
}

// Repair puts right what can be proven in a pool that nobody has mounted. Only a primary is repaired: its replicas follow by the
// next mount.
//
//  1. Damaged nodes are stored anew from another copy. They are then what they were, so this changes no state.
//  2. What Check finds is repaired in memory, as ordinary operations.
//  3. If there is something to commit: persist term+1, that the copy is not Clean, and, if the operations changed something, a new
//     generation. So no replica passes for equal any more, and the next mount copies the pool to each.
//  4. Commit: the groups, then a checkpoint, which writes the older super slot anew.
//
// A crash before 4 leaves the pool as it was but for the nodes, a crash in 4 a part of the repairs.
func Repair(ctx context.Context, rc RepairConfig) (err error) {
	r := &repair{RepairConfig: rc, m: &Mounted{MountConfig: MountConfig{Config: rc.Config, Set: rc.Set, Log: rc.Log}, now: now, generation: randomGeneration}}
	defer func() { err = errors.Join(err, r.close()) }()
	return r.run(ctx)
}

type repair struct {
	RepairConfig
	m       *Mounted
	from    *pool.Pool
	before  poolset.State
	claimed []*link // they have the state of the local copy
}

func (r *repair) run(ctx context.Context) (err error) {
	m := r.m
	if m.pool, err = pool.Open(r.Set, pool.OpenOptions{Role: "fsck", Durability: pool.Durability(r.Config.Durability), Wait: lockTimeout}); err != nil {
		return err
	}
	if err := m.examine(); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	r.before = m.pool.State()
	sources := func() ([]volume.Source, error) { return r.sources(ctx) }
	if err := volume.RefetchNodes(m.pool.Region(), m.id.PoolUUID, sources, r.Say, r.Refused); err != nil {
		return fmt.Errorf("repair of nodes: %w", err)
	}
	return r.values(ctx)
}

// sources are the copies to take nodes from.
func (r *repair) sources(ctx context.Context) ([]volume.Source, error) {
	if r.From != nil {
		return r.fromSet()
	}
	if len(r.Set.Replicas) == 0 {
		return nil, nil
	}
	return r.fromReplicas(ctx)
}

// fromSet takes another copy that nobody has open. It must be of the same generation and group: only then do nodes of the same birth have
// the same bytes. A mount that ended before its full copy may have closed the same epoch once more, with other nodes; its term tells.
func (r *repair) fromSet() ([]volume.Source, error) {
	p, err := OpenPrivate(r.From, "fsck", false)
	if err != nil {
		return nil, err
	}
	r.from = p
	id, gen := p.Header().Attr, p.State().Gen
	switch {
	case id.PoolUUID != r.m.id.PoolUUID:
		return nil, fmt.Errorf("%s holds pool %v, not %v", r.From.File, id.PoolUUID, r.m.id.PoolUUID)
	case gen != r.before.Gen:
		return nil, fmt.Errorf("%s is of generation %016x, this copy of %016x: what it holds proves nothing", r.From.File, gen, r.before.Gen)
	}
	there, err := volume.Probe(p.ReadAt, id.PoolUUID, p.Header().PoolSize)
	switch here := r.m.found; {
	case err != nil:
		return nil, inParts(r.From, err)
	case !sameGroup(there, here):
		return nil, fmt.Errorf("%s is at group %d of term %d, this copy at group %d of term %d: what it holds proves nothing; use a copy of the same group, or promote one that is ahead",
			r.From.File, there.LSN, there.Term, here.LSN, here.Term)
	}
	return []volume.Source{{Name: r.From.File, ReadAt: p.ReadAt}}, nil
}

// fromReplicas claims the replicas that are in sync, as a mount would, to read from them. One of another group is left out, and said to be.
// One of the same group whose root is another serves too: where the newer super slot is lost, the older one has fewer nodes, and what
// both trees have, at the same place and of the same birth, is the same node.
func (r *repair) fromReplicas(ctx context.Context) (sources []volume.Source, err error) {
	m := r.m
	if err := m.connect(ctx); err != nil {
		return nil, fmt.Errorf("a replica to take nodes from: %w", err)
	}
	term, err := m.takeTerm(poolset.Clean)
	if err != nil {
		return nil, err
	}
	for _, l := range m.links {
		if l.replica.Need() != replicate.NeedNothing {
			r.leftOut(l, errors.New("it is not known to be equal to the local copy"))
			continue
		}
		if err := l.replica.Claim(ctx, term); err != nil {
			return nil, err
		}
		there, err := volume.Probe(l.replica.ReadAt, m.id.PoolUUID, m.pool.Header().PoolSize)
		switch {
		case err == nil && ahead(there, m.found, r.before.Term):
			return nil, fmt.Errorf("target %s is ahead of the local pool, which must have lost acknowledged changes: promote the replica instead of a repair", l.remote.Host)
		case err != nil:
			r.leftOut(l, err)
		case !sameGroup(there, m.found):
			r.leftOut(l, fmt.Errorf("it has group %d, the local copy %d", there.LSN, m.found.LSN))
		default:
			sources = append(sources, volume.Source{Name: "target " + l.remote.Host, ReadAt: l.replica.ReadAt, Lacks: func(err error) { r.unequal(l, err) }})
			if sameState(there, m.found) {
				r.claimed = append(r.claimed, l)
			}
		}
	}
	return sources, nil
}

func (r *repair) leftOut(l *link, why error) {
	r.Log.WithField("target", l.remote.Host).WithError(why).Warn("no node is taken from this target")
}

// unequal takes back that l has the state of the local copy: it lacks a node. So it is not given back as equal, and the next mount copies
// the pool to it.
func (r *repair) unequal(l *link, why error) {
	r.Log.WithField("target", l.remote.Host).WithError(why).Warn("the copy of this target is damaged too: the next mount copies the pool to it")
	r.claimed = slices.DeleteFunc(r.claimed, func(c *link) bool { return c == l })
}

// sameGroup tells whether two copies recover to the same group, whichever root it is reached from.
func sameGroup(a, b volume.Recovered) bool {
	return a.LSN == b.LSN && a.LSNSeal == b.LSNSeal && a.Term == b.Term
}

// sameState tells whether two copies recover to the same, whatever their older super slots are worth.
func sameState(a, b volume.Recovered) bool {
	a.Slot, b.Slot = nil, nil
	return a == b
}

// values is steps 2 to 4.
func (r *repair) values(ctx context.Context) (err error) {
	m := r.m
	if m.found.Slot != nil && len(r.Set.Replicas) > 0 && len(m.links) == 0 {
		// The lost slot may have been the newer one. A replica that is ahead tells, and is then the copy to go on with.
		if _, err := r.fromReplicas(ctx); err != nil {
			return fmt.Errorf("a super slot is lost (%w), and the replicas must be asked before it is written anew: %w", m.found.Slot, err)
		}
	}
	term := m.pool.State().Term + 1
	m.vol, m.found, err = volume.Open(m.pool.Region(), volume.Options{PoolUUID: m.id.PoolUUID, Term: term, Now: m.now, NoAtime: true, ForCheck: true, WalkUpTo: math.MaxUint64})
	if err != nil {
		return fmt.Errorf("nothing else can be repaired: %w", err)
	}
	changed := false
	say := func(f volume.Finding, action string) {
		changed = true
		r.Say(f, action)
	}
	if err := m.vol.Repair(say, r.Refused); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	if m.found.Slot != nil {
		r.Say(volume.Finding{Where: "super slot", What: m.found.Slot.Error()}, "write it anew with a checkpoint")
	}
	if !changed && m.found.Slot == nil {
		return r.unclaim(ctx)
	}
	before := m.pool.State()
	err = m.pool.SetState(func(s *poolset.State) {
		s.Term, s.Writer = term, m.id.CopyID
		s.Flags &^= poolset.Clean
		if changed {
			s.Gen, s.History = m.newGeneration(before)
			s.Peers = [8]poolset.UUID{}
		}
	})
	if err != nil {
		return err
	}
	return m.flip()
}

// unclaim gives the replicas back as they were, if all that was done is to read from them: equal, and clean.
func (r *repair) unclaim(ctx context.Context) error {
	if len(r.claimed) == 0 || len(r.claimed) < len(r.m.links) || r.before.Flags&poolset.Clean == 0 {
		return nil
	}
	var peers []wire.UUID
	for _, l := range r.claimed {
		if l.replica.Peer().Flags&wire.FlagClean == 0 {
			return nil
		}
		peers = append(peers, l.replica.Peer().Attr.CopyID)
	}
	for _, l := range r.claimed {
		if err := l.replica.Adopt(ctx, r.before.Gen, r.before.History, peers); err != nil {
			return err
		}
		if err := l.replica.Clean(ctx, wire.FlagClean); err != nil {
			return err
		}
	}
	return r.m.pool.SetState(func(s *poolset.State) { s.Flags |= poolset.Clean })
}

// close gives everything back.
func (r *repair) close() (err error) {
	if r.from != nil {
		err = r.from.Close()
	}
	r.m.release()
	return err
}
