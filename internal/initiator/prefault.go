package initiator

import (
	"sync"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// prefaultStep is how much of a pool is made present between two looks at the stop sign.
const prefaultStep = 16 << 20

// prefaulter makes the rest of a pool present in the background, so that no write pays for the first touch of a page.
type prefaulter struct {
	stop chan struct{}
	done sync.WaitGroup
}

// prefault makes the super slots and the log present before the first commit needs them, and starts a prefaulter for all that follows.
//
// It does nothing for an ordinary file: there the pages would become dirty, and the first msync would write them all. It leaves
// the rest of a sparse pool alone, whose holes it would fill.
func (m *Mounted) prefault() error {
	region := m.pool.Region()
	if region.Promise() == pmem.PageCache {
		return nil
	}
	head := pmem.Range{Off: layout.SuperOff0, Len: m.vol.LogEnd() - layout.SuperOff0}
	if err := region.Prefault(head); err != nil {
		return err
	}
	m.prefaultRest(m.vol.LogEnd())
	return nil
}

// prefaultRest makes the pool present from off on, in the background, where prefault would.
func (m *Mounted) prefaultRest(off uint64) {
	region := m.pool.Region()
	if region.Promise() == pmem.PageCache || m.pool.Sparse() {
		return
	}
	if m.prefaulter == nil {
		m.prefaulter = &prefaulter{stop: make(chan struct{})}
	}
	p, size := m.prefaulter, m.vol.Size()
	p.done.Go(func() {
		for ; off < size; off += prefaultStep {
			select {
			case <-p.stop:
				return
			default:
			}
			if err := region.Prefault(pmem.Range{Off: off, Len: min(prefaultStep, size-off)}); err != nil {
				m.Log.WithError(err).Warn("cannot make the pool present ahead of use; the first writes will be slower, or meet the same fault")
				return
			}
		}
	})
}

func (p *prefaulter) close() {
	close(p.stop)
	p.done.Wait()
}
