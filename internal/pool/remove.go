package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Remove unlinks the parts that exist, or makes them zero where they are devices, and unlinks the lock file. If there is no part at all it returns an error that wraps
// fs.ErrNotExist; if a process has the pool, an *InUseError. The pool set file stays.
func Remove(set *poolset.Set) error {
	if err := anyPart(set); err != nil {
		return err
	}
	l, err := acquire(set, "remove", DefaultWait)
	if err != nil {
		return err
	}
	var errs error
	for _, p := range set.Parts {
		if err := removePart(p.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	if errs != nil {
		return fmt.Errorf("pool %s: remove: %w", set.File, errors.Join(errs, l.release()))
	}
	if err := errors.Join(l.remove(), syncDirs(set.Parts)); err != nil {
		return fmt.Errorf("pool %s: remove: %w", set.File, err)
	}
	return nil
}

// removePart never unlinks the node of a device, whatever it is.
func removePart(path string) error {
	if fi, err := os.Stat(path); err == nil && fi.Mode()&os.ModeDevice != 0 {
		return clearDevice(path)
	}
	return os.Remove(path)
}

// anyPart finds out whether there is something to remove, so that no lock file is made where there is not.
func anyPart(set *poolset.Set) error {
	var errs error
	for _, p := range set.Parts {
		_, err := os.Lstat(p.Path)
		if err == nil {
			return nil
		}
		errs = errors.Join(errs, err)
	}
	return fmt.Errorf("pool %s: remove: %w", set.File, errs)
}
