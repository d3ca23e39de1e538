package fsx

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// Match is a game on a real mount with a real target.
type Match struct {
	Stage *stage.Stage
	Seed  uint64
	Done  uint64 // operations

	pool   *stage.Pool
	target *stage.Target
	game   *Game
}

const set = "replica.set"

// Start starts the daemons and mounts a pool. The stage's owner closes it.
func Start(s *stage.Stage, seed uint64) (*Match, error) {
	m := &Match{Stage: s, Seed: seed}
	var err error
	if m.target, err = s.StartTarget("t"); err != nil {
		return nil, err
	}
	if _, err = m.target.AddSet(set, s.Path("t", "replica.pool")); err != nil {
		return nil, err
	}
	if m.pool, err = s.NewPool("a", s.Path("a.pool"), []stage.Replica{{Target: m.target, Set: set}}, `timeout = "30s"`); err != nil {
		return nil, err
	}
	if err = errors.Join(m.pool.Make(), m.pool.Mount()); err != nil {
		return nil, err
	}
	m.game, err = New(filepath.Join(m.pool.Mountpoint, "game"), seed)
	return m, err
}

// Play does operations as long as more says so. A failure is shortened within the time reduce, and the error tells how to repeat it.
func (m *Match) Play(more func() bool, reduce time.Duration) error {
	for more() {
		err := m.game.Play(m.Done)
		if err != nil {
			short := Reduce(m.pool.Mountpoint, m.Seed, m.Done, reduce)
			return fmt.Errorf("%w\nthese operations suffice: %v\nrepeat: go run ./integration/fsx/cmd -seed %d -ops %d", err, short, m.Seed, m.Done+1)
		}
		m.Done++
	}
	return m.game.Compare()
}

// Finish makes everything durable, kills the initiator, and compares the promoted replica with the model. Then pmemfs fsck
// must find it clean.
func (m *Match) Finish() error {
	if err := m.game.Sync(); err != nil {
		return err
	}
	if err := m.pool.KillDaemon(); err != nil {
		return err
	}
	_ = m.game.Close() // its descriptors are dead
	if _, err := m.target.Promote(set); err != nil {
		return err
	}
	replica, err := m.Stage.NewPool("r", m.Stage.Path("t", "replica.pool"), nil)
	if err != nil {
		return err
	}
	if err := replica.Mount(); err != nil {
		return err
	}
	if err := m.game.CompareIn(filepath.Join(replica.Mountpoint, "game")); err != nil {
		return fmt.Errorf("seed %d, on the replica after %d operations: %w", m.Seed, m.Done, err)
	}
	if err := replica.Umount(); err != nil {
		return err
	}
	if out, err := m.Stage.Pmemfs("fsck", replica.Config); err != nil || out != "clean" {
		return fmt.Errorf("pmemfs fsck of the replica: %q, %w", out, err)
	}
	return nil
}
