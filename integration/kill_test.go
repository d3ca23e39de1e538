package integration

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// match is two machines, each with a target daemon and a copy of one pool. One of them has it mounted, with the other one
// as its target.
type match struct {
	*rig
	rnd     *rand.Rand
	pools   [2]*stage.Pool // the pool as each side mounts it
	primary int
	loops   []*workload // of all rounds
}

func newMatch(t *testing.T) *match {
	r := newBareStage(t, setup{})
	r.PoolSize = "16M"
	seed := rand.Uint64()
	t.Logf("seed: %d", seed)
	m := &match{rig: r, rnd: rand.New(rand.NewPCG(seed, 0))}
	for i := range m.pools {
		r.startTarget(fmt.Sprintf("t%d", i))
	}
	for i := range m.pools {
		var err error
		other := []stage.Replica{{Target: r.targets[1-i], Set: set}}
		m.pools[i], err = r.NewPool(fmt.Sprintf("p%d", i), r.replicaPart(i), other, `timeout = "30s"`, `commit_interval = "200ms"`)
		r.must(err)
	}
	r.must(m.pools[0].Make())
	return m
}

// mounted is the pool where it is mounted; target is the daemon of the other side.
func (m *match) mounted() *stage.Pool  { return m.pools[m.primary] }
func (m *match) target() *stage.Target { return m.targets[1-m.primary] }

// TestRandomKills: whoever is killed at whatever moment, every acknowledged record is there after a remount or a promotion,
// and both copies are clean.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	m := newMatch(t)
	m.must(m.mounted().Mount())
	for round := range 6 {
		var loops []*workload
		for i := range 3 {
			loops = append(loops, m.appendLoopIn(m.mounted(), fmt.Sprintf("round%d-%d", round, i)))
		}
		for _, l := range loops {
			l.waitFor(1 + m.rnd.IntN(20))
		}
		m.loops = append(m.loops, loops...)
		targetLives := m.kill(loops)
		for _, l := range loops {
			l.ended()
		}
		m.recover(targetLives)
		for _, l := range m.loops {
			l.check(m.mounted())
		}
		m.must(m.mounted().Umount())
		m.checkClean(m.mounted())
		m.checkClean(m.pools[1-m.primary])
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		m.must(m.mounted().Mount())
	}
}

// kill ends the initiator in any case, and perhaps the target before it or with it. It tells whether the target lives.
func (m *match) kill(loops []*workload) bool {
	m.t.Helper()
	time.Sleep(time.Duration(m.rnd.IntN(100)) * time.Millisecond)
	switch m.rnd.IntN(3) {
	case 0:
		m.t.Log("the initiator is killed")
		m.must(m.mounted().Kill())
		return true
	case 1:
		m.t.Log("the target is killed and comes back, then the initiator is killed")
		m.must(m.target().Kill())
		m.must(m.target().Start())
		if m.rnd.IntN(2) == 0 {
			loops[0].waitFor(5)
		}
		m.must(m.mounted().Kill())
		return true
	}
	m.t.Log("both are killed")
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = m.mounted().Kill() })
	wg.Go(func() { errs[1] = m.target().Kill() })
	wg.Wait()
	m.must(errs[0])
	m.must(errs[1])
	return false
}

// recover mounts the pool again where it was, or promotes the replica and mounts it with the old initiator as its target.
func (m *match) recover(targetLives bool) {
	m.t.Helper()
	promote := m.rnd.IntN(2) == 0
	before := !targetLives && m.rnd.IntN(2) == 0 // promote without a daemon
	m.t.Logf("recovery by promotion: %v; without a daemon: %v", promote, before)
	if promote && before {
		m.promote()
	}
	if !targetLives {
		m.must(m.targets[m.deadTarget(promote && before)].Start())
	}
	if promote && !before {
		m.promote()
	}
	m.must(m.mounted().Mount())
}

// deadTarget is the side whose target daemon was killed: the one that was no primary then.
func (m *match) deadTarget(promoted bool) int {
	if promoted {
		return m.primary
	}
	return 1 - m.primary
}

func (m *match) promote() {
	m.t.Helper()
	_, err := m.target().Promote(set)
	m.must(err)
	m.primary = 1 - m.primary
}
