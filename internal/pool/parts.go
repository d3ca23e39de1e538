package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/nvdimm"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// partsOf checks the parts of an existing pool and returns them with their sizes, AUTO replaced by that of the file. What the
// set has beyond the size in the header is a growth that has not happened: it is left out, and need not be there.
func partsOf(set *poolset.Set) ([]pmem.Part, error) {
	var parts []pmem.Part
	left := headerSize(set)
	for _, p := range set.Parts {
		if left == 0 {
			if err := checkUnused(set, p, 0); err != nil {
				return nil, err
			}
			continue
		}
		found, err := partSize(set, p)
		if err != nil {
			return nil, err
		}
		if p.Auto {
			p.Size = found - found%poolset.BlockSize
		} else if isDevice(p.Path) {
			if err := checkWhole(set, p, found); err != nil {
				return nil, err
			}
		}
		if p.Size > left {
			p.Size = left
			if err := checkUnused(set, p, left); err != nil {
				return nil, err
			}
		}
		left -= p.Size
		if found < p.Size || p.Size == 0 {
			return nil, fmt.Errorf("pool %s, line %d: %w", set.File, p.Line,
				&pmem.SizeError{Path: p.Path, Expected: max(p.Size, poolset.BlockSize), Found: found})
		}
		parts = append(parts, pmem.Part{Path: p.Path, Size: p.Size})
	}
	return parts, nil
}

// checkUnused tests that the file of a part holds nothing but zeros from the byte used on, if it is that long or there at all: a growth
// that has not happened, or was interrupted, leaves no more. Other bytes are those of a pool in which a part before the last was made longer
// since. The parts behind it would be cut off, or stand at the wrong offset, and what they hold be lost.
func checkUnused(set *poolset.Set, p poolset.Part, used uint64) error {
	f, err := os.OpenFile(p.Path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo must not block
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pool %s, line %d: part: %w", set.File, p.Line, err)
	}
	defer f.Close()
	zeros, err := unused(f, used)
	if err == nil && !zeros {
		err = fmt.Errorf("part %s holds data from byte %d on, where the parts up to there have all bytes of the pool: "+
			"give the parts before it the sizes that they had, or take out a part that never belonged to the pool", p.Path, used)
	}
	if err != nil {
		return fmt.Errorf("pool %s, line %d: %w", set.File, p.Line, err)
	}
	return nil
}

// unused tells whether f holds nothing but zeros from the byte used on, as far as it can be a part at all.
func unused(f *os.File, used uint64) (bool, error) {
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	if fi.Mode().IsRegular() {
		return onlyZeros(f, int64(used))
	}
	d, ok, err := nvdimm.Kernel.Device(fi)
	if err != nil || !ok {
		return true, err
	}
	return deviceZeros(f.Name(), d.Size, used)
}

// partSize is the size of the file or device of a part.
func partSize(set *poolset.Set, p poolset.Part) (uint64, error) {
	fi, err := os.Stat(p.Path)
	if err != nil {
		return 0, fmt.Errorf("pool %s, line %d: part: %w; mount what holds it, or make the pool with pmemfs mkpool", set.File, p.Line, err)
	}
	if fi.Mode().IsRegular() {
		return uint64(fi.Size()), nil
	}
	d, ok, err := nvdimm.Kernel.Device(fi)
	if err != nil {
		return 0, fmt.Errorf("pool %s, line %d: part: %w", set.File, p.Line, err)
	}
	if !ok {
		return 0, notRegular(set, p, fi)
	}
	return d.Size, nil
}

// headerSize is the size of the pool as its header says, in whole blocks. Without a valid header it is without bound: then all parts
// count, and whoever reads the header finds out what is wrong.
func headerSize(set *poolset.Set) uint64 {
	const unknown = math.MaxUint64
	block, err := readHeader(set.Parts[0].Path)
	if err != nil {
		return unknown
	}
	h, _, err := poolset.CurrentHeader(block)
	if err != nil || h.PoolSize == 0 || h.PoolSize%poolset.BlockSize != 0 {
		return unknown
	}
	return h.PoolSize
}

func notRegular(set *poolset.Set, p poolset.Part, fi os.FileInfo) error {
	return fmt.Errorf("pool %s, line %d: part %s is not a regular file, and no Device DAX (%v): give the path of a file; "+
		"for persistent memory one on a file system mounted with dax, or /dev/daxX.Y", set.File, p.Line, p.Path, fi.Mode().Type())
}

func totalSize(parts []pmem.Part) uint64 {
	var n uint64
	for _, p := range parts {
		n += p.Size
	}
	return n
}

// syncDirs makes the names of the parts durable.
func syncDirs(parts []poolset.Part) error {
	done := map[string]bool{}
	var errs error
	for _, p := range parts {
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
