package initiator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// GrowTimeout bounds a growth: each target, one after the other, and the local copy allocate what is new.
const GrowTimeout = 10 * time.Minute

// grow makes the pool as large as its pool set file says by now, while it is mounted, and returns the size in bytes.
//
// Order of durable steps: 1 each target in turn has the size; 2 the local copy has it; 3 the super with the size is sealed on every copy.
// Only then is new space used. An error in 1 or 2, or a crash, leaves copies that are larger than the pool, which changes nothing for the
// file system, and the growth can be repeated. An error in 3 is one of a drain, and sticky like any other.
func (m *Mounted) grow() (size uint64, err error) {
	if !m.growing.TryLock() {
		return 0, errors.New("the pool is growing already: wait for the other pmemfs grow")
	}
	defer m.growing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), GrowTimeout)
	defer cancel()
	set, size, err := m.growth()
	if err != nil {
		return 0, err
	}
	before := m.vol.Size()
	if size == before { // by a growth that ended, or that failed in 3
		return size, m.commit.Err()
	}
	if err := m.growCopies(ctx, set, size); err != nil {
		return 0, fmt.Errorf("%w; the file system has its old size, nothing on it has changed", err)
	}
	if err := m.commit.Grow(size); err != nil {
		return 0, err
	}
	m.Log.WithFields(logrus.Fields{"from": before, "to": size}).Info("pool grown")
	m.prefaultRest(before)
	return size, nil
}

// hintGrowth tells whoever edited a pool set file what is still to be done, and whoever interrupted a growth.
func (m *Mounted) hintGrowth() {
	if has, used := max(m.Set.Size(), m.pool.Header().PoolSize), m.found.PoolSize; has > used {
		m.Log.WithFields(logrus.Fields{"parts": has, "pool": used}).Info("the pool does not use all that its parts have: pmemfs grow lets it")
	}
}

// growth reads the pool set file anew, and checks that it asks for nothing but more space.
func (m *Mounted) growth() (set *poolset.Set, size uint64, err error) {
	if set, err = poolset.ParseFile(m.Set.File); err != nil {
		return nil, 0, err
	}
	if !sameReplicas(set.Replicas, m.Set.Replicas) {
		return nil, 0, fmt.Errorf("%s has other REPLICA lines than at the mount: a growth cannot change the targets; unmount and mount again for that", set.File)
	}
	if size, err = m.pool.SizeWith(set); err != nil {
		return nil, 0, err
	}
	if size < m.vol.Size() {
		return nil, 0, fmt.Errorf("%s has %d bytes, the pool has %d: a pool cannot shrink", set.File, size, m.vol.Size())
	}
	return set, size, nil
}

func sameReplicas(a, b []poolset.Replica) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if x.Line, y.Line = 0, 0; x != y {
			return false
		}
	}
	return true
}

// growCopies is steps 1 and 2. The targets come first: that one of them has no room is what fails most likely.
func (m *Mounted) growCopies(ctx context.Context, set *poolset.Set, size uint64) error {
	for _, l := range m.links {
		if err := l.replica.Grow(ctx, size); err != nil {
			return err
		}
	}
	if err := m.pool.Grow(set); err != nil {
		return fmt.Errorf("local copy: %w", err)
	}
	for _, l := range m.links {
		if err := l.replica.Extend(m.pool.Region(), size); err != nil {
			return err
		}
	}
	return nil
}
