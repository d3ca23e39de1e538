package pool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// partsOf checks the parts of an existing pool and returns them with their sizes, AUTO replaced by that of the file.
func partsOf(set *poolset.Set) ([]pmem.Part, error) {
	var parts []pmem.Part
	for _, p := range set.Parts {
		fi, err := os.Stat(p.Path)
		if err != nil {
			return nil, fmt.Errorf("pool %s, line %d: part: %w; mount what holds it, or create the pool", set.File, p.Line, err)
		}
		if !fi.Mode().IsRegular() {
			return nil, notRegular(set, p, fi)
		}
		found := uint64(fi.Size())
		if p.Auto {
			p.Size = found - found%poolset.BlockSize
		}
		if found < p.Size || p.Size == 0 {
			return nil, fmt.Errorf("pool %s, line %d: %w", set.File, p.Line,
				&pmem.SizeError{Path: p.Path, Expected: max(p.Size, poolset.BlockSize), Found: found})
		}
		parts = append(parts, pmem.Part{Path: p.Path, Size: p.Size})
	}
	return parts, nil
}

func notRegular(set *poolset.Set, p poolset.Part, fi os.FileInfo) error {
	return fmt.Errorf("pool %s, line %d: part %s is not a regular file (%v): give the path of a file; "+
		"for persistent memory one on a file system mounted with dax", set.File, p.Line, p.Path, fi.Mode().Type())
}

func totalSize(parts []pmem.Part) uint64 {
	var n uint64
	for _, p := range parts {
		n += p.Size
	}
	return n
}

// syncDirs makes the names of the parts durable.
func syncDirs(set *poolset.Set) error {
	done := map[string]bool{}
	var errs error
	for _, p := range set.Parts {
		dir := filepath.Dir(p.Path)
		if done[dir] {
			continue
		}
		done[dir] = true
		errs = errors.Join(errs, syncDir(dir))
	}
	return errs
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
