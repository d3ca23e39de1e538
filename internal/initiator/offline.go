package initiator

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// OpenPrivate opens a pool that nobody has mounted, to be looked at: under its lock, so that nobody mounts it meanwhile, and
// mapped copy-on-write, so that not one of its bytes changes. A copy that is marked Inconsistent is refused unless the caller
// asks for it.
func OpenPrivate(set *poolset.Set, role string, inconsistent bool) (*pool.Pool, error) {
	p, err := pool.Open(set, pool.OpenOptions{Role: role, Private: true, Wait: lockTimeout})
	if err != nil {
		return nil, err
	}
	if p.State().Flags&poolset.Inconsistent != 0 && !inconsistent {
		_ = p.Close() // nothing was changed
		return nil, fmt.Errorf("%s is marked Inconsistent: a copy to it did not finish, a write to it failed, or its memory was lost, so that it may hold bytes of "+
			"different moments; look at another copy, or at this one all the same with the option inconsistent", set.File)
	}
	return p, nil
}

// Fsck reports everything that is wrong with the file system in a pool that nobody has mounted. It changes nothing. An error means that
// nothing could be checked.
func Fsck(p *pool.Pool, report func(volume.Finding)) error {
	if p.State().Flags&poolset.Inconsistent != 0 {
		report(volume.Finding{Where: "state slot", What: "the copy is marked Inconsistent"})
	}
	if err := p.Flaws(); err != nil {
		report(volume.Finding{Where: "pool header", What: err.Error(), Note: true})
	}
	return volume.Examine(p.Region(), p.Header().PoolUUID, report)
}
