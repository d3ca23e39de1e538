package pool

import (
	"errors"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Distrust marks the copy Inconsistent if cause is a failed write-back and another copy was in sync with it. After a failed
// msync(2) the page cache shows pages that may not be on the device, and reports the failure only once: whoever opened the
// pool next would build on them. Without another copy there is nothing better to fall back on, so then it does nothing.
//
// The mark stands in the page cache too, and cannot be made persistent, since the region has failed. That is enough: it is lost
// only together with the pages that it warns of, and then the device holds what was acknowledged.
func (p *Pool) Distrust(cause error) {
	if _, ok := errors.AsType[*pmem.SyncError](cause); !ok || p.State().Peers == ([8]poolset.UUID{}) {
		return
	}
	_ = p.SetState(func(s *poolset.State) { s.Flags = s.Flags&^poolset.Clean | poolset.Inconsistent })
}
