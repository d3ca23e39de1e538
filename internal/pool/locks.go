package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// locks are those of a pool: of its first part, and of each Device DAX among the others. A file behind the first part needs none, since a pool is
// made of empty files alone; a device that holds zeros may be a part of a pool all the same. A pool without locks has none to free.
type locks []*lock

// deviceLocks is the directory of the lock files of devices: a device may have several names in several directories, and nothing else of it can be
// locked so that all of them are.
const deviceLocks = "/run/pmemfs"

// lockPath is the lock file of a part.
func lockPath(p poolset.Part) string {
	if d, ok, err := pmem.DeviceAt(p.Path); ok && err == nil {
		return filepath.Join(deviceLocks, d.Name+".lock")
	}
	return p.Path + ".lock"
}

// acquire takes the locks of a pool and waits up to wait for each until an earlier holder is gone for good.
func acquire(set *poolset.Set, role string, wait time.Duration) (locks, error) {
	var all locks
	for i, p := range set.Parts {
		device := isDevice(p.Path)
		if i > 0 && !device {
			continue
		}
		if device {
			if err := os.MkdirAll(deviceLocks, 0o755); err != nil {
				return nil, fmt.Errorf("pool %s: lock: %w", set.File, errors.Join(err, all.abandon()))
			}
		}
		l, err := acquireFile(set, lockPath(p), role, wait)
		if err != nil {
			return nil, errors.Join(err, all.abandon())
		}
		all = append(all, l)
	}
	return all, nil
}

// each applies f to all locks, also after an error.
func (all locks) each(f func(*lock) error) error {
	var errs error
	for _, l := range all {
		errs = errors.Join(errs, f(l))
	}
	return errs
}

// leave changes the role in the lock files.
func (all locks) leave() error { return all.each((*lock).leave) }

// release empties the records, so that nobody waits for a process that has let go, and frees the locks.
func (all locks) release() error { return all.each((*lock).release) }

// abandon is release for an opener that failed: lock files that it made go too.
func (all locks) abandon() error { return all.each((*lock).abandon) }

// remove unlinks the lock files and frees the locks.
func (all locks) remove() error { return all.each((*lock).remove) }

// holderOf returns the process that the lock file of the pool names, if it still exists.
func holderOf(set *poolset.Set) (Holder, bool, error) {
	f, err := os.Open(lockPath(set.Parts[0]))
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, fmt.Errorf("pool %s: lock: %w", set.File, err)
	}
	defer f.Close()
	h, ok := readHolder(f)
	return h, ok && h.alive(), nil
}
