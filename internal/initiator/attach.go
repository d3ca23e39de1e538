package initiator

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

// Replica is what a mount needs of a target's copy: a *replicate.Replica, or the like in a simulation.
type Replica interface {
	commit.Copy
	Peer() wire.State
	Need() replicate.Need
	Claim(ctx context.Context, term uint64) error
	ReadAt(off uint64, b []byte) error
	FullSync(ctx context.Context, exclude []uint64, skip []pmem.Range, seals []pmem.Seal, progress func(done, total uint64)) error
	Adopt(ctx context.Context, gen uint64, history [8]uint64, peers []wire.UUID) error
	Clean(ctx context.Context, flags uint32) error
	Grow(ctx context.Context, size uint64) error
	Extend(region pmem.Region, size uint64) error
	Status() replicate.Status
	Close(ctx context.Context) error
}

// Identity is what the local copy says of itself to a target. size is that of the pool in bytes, which the copy may exceed.
func Identity(p *pool.Pool, size uint64) replicate.Identity {
	st, h := p.State(), p.Header()
	return replicate.Identity{PoolUUID: h.PoolUUID, CopyID: h.CopyID, Term: st.Term, Gen: st.Gen, History: st.History, Size: size}
}

// link is one target of this mount.
type link struct {
	remote  poolset.Replica
	conf    config.Replica
	device  verbs.Device // nil if the replica has none of its own
	replica Replica

	mu     sync.Mutex
	commit *commit.Committer // who hears of drains; set once the committer exists
	number int
}

// follow makes c hear of every drain as copy n.
func (l *link) follow(c *commit.Committer, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit, l.number = c, n
}

func (l *link) drained(seq uint64, err error) {
	l.mu.Lock()
	c, n := l.commit, l.number
	l.mu.Unlock()
	if c != nil {
		c.Drained(n, seq, err)
	}
}

// connect is step 2. Every target must answer: a mount without one of them could not acknowledge anything.
func (m *Mounted) connect(ctx context.Context) error {
	id := Identity(m.pool, m.found.PoolSize)
	for _, remote := range m.Set.Replicas {
		l := &link{remote: remote, conf: m.Config.Target(hostKey(remote))}
		if err := m.open(l); err != nil {
			return err
		}
		r, err := replicate.Connect(ctx, replicate.Config{
			Name: remote.Host, Pool: remote.Name, Addr: l.conf.Address, Device: l.device,
			Timeout: m.Config.Timeout, Durability: uint32(l.conf.Durability), Method: l.conf.Method, Bounce: uint64(m.Config.Bounce), Log: m.Log.WithField("target", remote.Host), OnDrained: l.drained,
		}, m.pool.Region(), id)
		if err != nil {
			return errors.Join(err, l.device.Close())
		}
		l.replica = r
		m.links = append(m.links, l)
	}
	return nil
}

// open opens the RDMA device that reaches the target.
func (m *Mounted) open(l *link) (err error) {
	opt := l.conf.Options(l.conf.Address)
	opt.WriteTimeout = writeTimeout(m.Config.Timeout)
	if l.device, err = provider.Open(opt); err != nil {
		return fmt.Errorf("target %s: %w", l.remote.Host, err)
	}
	return nil
}

// writeTimeout bounds one write to the network: posting happens inside the committer, and a network that takes nothing must
// not hold it up for longer than the loss timeout.
func writeTimeout(loss time.Duration) time.Duration {
	const longest = 2 * time.Second
	if loss == 0 {
		return longest
	}
	return min(loss/2, longest)
}

// claim is step 5.
func (m *Mounted) claim(ctx context.Context, term uint64) error {
	for _, l := range m.links {
		if err := l.replica.Claim(ctx, term); err != nil {
			return err
		}
	}
	return nil
}

// synchronise is steps 6 and 7. before is the local state as the mount found it.
//
// One target after the other is copied to and adopted: a crash in between leaves one at most with the mark Inconsistent,
// and all others can be promoted. Nothing is acknowledged before the last one is in sync.
func (m *Mounted) synchronise(ctx context.Context, before poolset.State) error {
	stale, err := m.stale(before)
	if err != nil {
		return err
	}
	if len(stale) > 0 && before.Flags&poolset.Clean == 0 {
		if err := m.flip(); err != nil {
			return err
		}
	}
	next, peers := m.nextState(before)
	// Durable order: the local copy first. If the mount ends here, the next one finds targets of an older generation and copies.
	// The mark Clean goes here, before the first byte of a clean pool changes: recovery has nothing to replay in one, and stores nothing. So a
	// mount that a target has refused leaves copies that are as equal as it found them.
	err = m.pool.SetState(func(s *poolset.State) {
		s.Gen, s.History, s.Peers = next.Gen, next.History, next.Peers
		s.Flags &^= poolset.Clean
	})
	if err != nil {
		return err
	}
	for _, l := range m.links {
		if slices.Contains(stale, l) {
			if err := m.fullSync(ctx, l); err != nil {
				return err
			}
		}
		if err := l.replica.Adopt(ctx, next.Gen, next.History, peers); err != nil {
			return err
		}
	}
	for _, l := range m.links { // a target may have been lost while others were copied to
		if st := l.replica.Status(); st.State == replicate.Failed || st.State == replicate.Refused {
			return fmt.Errorf("target %s: %w", l.remote.Host, st.Err)
		}
	}
	return nil
}

// stale lists the targets whose copy is not known to equal the local one. After an unclean end that is every target.
func (m *Mounted) stale(before poolset.State) ([]*link, error) {
	var stale []*link
	for _, l := range m.links {
		peer := l.replica.Peer()
		if l.replica.Need() == replicate.NeedFullCopy {
			stale = append(stale, l)
			continue
		}
		there, err := volume.Probe(l.replica.ReadAt, m.id.PoolUUID, m.pool.Header().PoolSize)
		if err != nil && !errors.Is(err, volume.ErrCorrupt) {
			return nil, err
		}
		if err == nil && ahead(there, m.found, before.Term) {
			return nil, fmt.Errorf("target %s is ahead of the local pool (group %d of term %d there, group %d of term %d here), which must have lost acknowledged changes: "+
				"promote the replica and attach this copy as its target", l.remote.Host, there.LSN, there.Term, m.found.LSN, m.found.Term)
		}
		clean := before.Flags&poolset.Clean != 0 && peer.Flags&wire.FlagClean != 0
		if err != nil || !clean || there != m.found {
			stale = append(stale, l)
		}
	}
	return stale, nil
}

// ahead says that a replica holds more than an unacknowledged surplus. The local copy is part of every acknowledgement, so
// a replica can lead it by the groups in flight at most, written under no higher term than the last one that the local copy
// took. That may be above the term of its last record: targets get a group before the local copy seals it, so a crash in the
// first groups of a mount leaves the first records of its term on a replica only.
func ahead(there, local volume.Recovered, taken uint64) bool {
	return there.Term > taken || there.LSN > local.LSN+commit.MaxInFlight
}

// flip makes what recovery replayed durable under a new root, on the local copy only: the others get it by the full copy.
func (m *Mounted) flip() error {
	if _, err := m.vol.CloseEpoch(); err != nil {
		return err
	}
	for job := m.vol.NextJob(); job != nil; job = m.vol.NextJob() {
		if err := pmem.Drain(m.pool.Region(), job.Ranges, job.Seal); err != nil {
			return fmt.Errorf("local pool: %w", err)
		}
		m.seq = job.Seq
		m.vol.Sealed(job)
	}
	return nil
}

// fullSync copies the shared area. The seal words are no part of the ranges: they follow when all they cover is durable, the
// newer one last.
func (m *Mounted) fullSync(ctx context.Context, l *link) error {
	words := m.sealWords()
	seals := []pmem.Seal{}
	for _, off := range words {
		seals = append(seals, pmem.Seal{Off: off, Val: binary.LittleEndian.Uint64(m.pool.Region().Bytes()[off:])})
	}
	m.Log.WithField("target", l.remote.Host).Info("full copy: the target's pool is not known to be equal")
	last := -1
	return l.replica.FullSync(ctx, words, m.vol.LocalAreas(), seals, func(done, total uint64) {
		if percent := int(done * 100 / max(total, 1)); percent/10 != last/10 || last < 0 {
			last = percent
			m.Progress(fmt.Sprintf("copying the pool to target %s: %d %%", l.remote.Host, percent))
		}
	})
}

// sealWords are the places of the two super seals, that of the newer super last.
func (m *Mounted) sealWords() []uint64 {
	epoch := func(off uint64) uint64 {
		s, err := layout.DecodeSuper(m.pool.Region().Bytes()[off:off+layout.BlockSize], m.id.PoolUUID)
		if err != nil {
			return 0 // never written, or damaged: older than any
		}
		return s.Epoch
	}
	words := volume.SealWords()
	if epoch(words[0]) > epoch(words[1]) {
		words[0], words[1] = words[1], words[0]
	}
	return words[:]
}

// nextState is the generation and the peers under which this mount goes on. A copy that was in sync when the pool was last
// mounted and is not attached now will lack what comes: so the generation changes, and it can be told from a copy that has everything.
func (m *Mounted) nextState(before poolset.State) (next poolset.State, peers []wire.UUID) {
	for _, l := range m.links {
		peers = append(peers, l.replica.Peer().Attr.CopyID)
	}
	next = before
	for _, old := range before.Peers {
		if !old.IsZero() && !slices.Contains(peers, old) {
			m.Log.WithField("copy", old).Warn("a copy that was in sync is not attached: it falls behind from now on and must not be promoted any more")
			next.Gen, next.History = m.newGeneration(before)
			break
		}
	}
	next.Peers = [8]poolset.UUID{}
	copy(next.Peers[:], peers)
	return next, peers
}

// newGeneration is a random generation whose history begins with the one before.
func (m *Mounted) newGeneration(s poolset.State) (gen uint64, history [8]uint64) {
	copy(history[1:], s.History[:len(s.History)-1])
	history[0] = s.Gen
	return m.generation(), history
}

func randomGeneration() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if g := binary.LittleEndian.Uint64(b[:]); g != 0 {
			return g
		}
	}
}

// A replica takes all the drains that the pipeline may start.
var _ [replicate.MaxInFlight - commit.Window]struct{}
