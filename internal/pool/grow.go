package pool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// ErrGrowth: a pool set does not continue the parts of the pool.
var ErrGrowth = errors.New("a pool grows by a longer last part, or by more parts")

// roleGrowing is the role in the lock file of a device that was added to the pool of a running process.
const roleGrowing = "grow"

// SizeWith is the size in bytes that Grow would give the pool with set. It wraps ErrGrowth if set is anything else than the parts of the
// pool with a longer last one, or with more behind them.
func (p *Pool) SizeWith(set *poolset.Set) (uint64, error) {
	p.growing.Lock()
	defer p.growing.Unlock()
	parts, err := p.grown(set)
	return totalSize(parts), err
}

// Grow gives the pool the parts of set, whose sizes SizeWith accepts, and returns when its new size is persistent. The region stays where
// it is. New bytes are allocated, unless the pool is sparse, and zero. After an error in steps 1 and 2 the pool is as it was; after a
// later one it has the old size or the new one, and Grow can be repeated. A pool that has the size already stays as it is.
//
// Order of durable steps: 1 the parts have their sizes and blocks, and new ones their names; 2 mapped; 3 the size in the header
// copy; 4 in the header. A crash before 3 leaves a part that is longer than the header knows, or a new one that holds zeros: the next
// Grow takes both.
func (p *Pool) Grow(set *poolset.Set) error {
	p.growing.Lock()
	defer p.growing.Unlock()
	if err := p.writable(); err != nil {
		return err
	}
	parts, err := p.grown(set)
	if err != nil {
		return err
	}
	if err := p.extend(set, parts); err != nil {
		return fmt.Errorf("pool %s: grow: %w", set.File, err)
	}
	p.parts = parts
	return p.setSize(totalSize(parts))
}

func (p *Pool) writable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mayWrite()
}

func (p *Pool) setSize(size uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mayWrite(); err != nil {
		return err
	}
	next := p.header
	if next.PoolSize = size; next == p.header {
		return nil
	}
	return p.setHeader(next)
}

// grown is the parts of the pool after a growth to set.
func (p *Pool) grown(set *poolset.Set) ([]pmem.Part, error) {
	if p.parts == nil {
		return nil, fmt.Errorf("pool %s: its memory is not made of files: %w", set.File, ErrGrowth)
	}
	if len(set.Parts) < len(p.parts) {
		return nil, fmt.Errorf("pool %s has %d parts, the pool is made of %d: %w", set.File, len(set.Parts), len(p.parts), ErrGrowth)
	}
	set, err := withDevices(set)
	if err != nil {
		return nil, err
	}
	var parts []pmem.Part
	for i, part := range set.Parts {
		if i < len(p.parts) {
			part.Size, err = p.grownPart(set, i)
		} else {
			err = checkNew(set, part)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, pmem.Part{Path: part.Path, Size: part.Size})
	}
	return parts, nil
}

// grownPart is the size in bytes of a part that the pool has, as set wants it.
func (p *Pool) grownPart(set *poolset.Set, i int) (uint64, error) {
	part, have := set.Parts[i], p.parts[i]
	if part.Path != have.Path {
		return 0, fmt.Errorf("pool %s, line %d: part %s stands where %s is in use: %w", set.File, part.Line, part.Path, have.Path, ErrGrowth)
	}
	if part.Auto {
		found, err := partSize(set, part)
		if err != nil {
			return 0, err
		}
		part.Size = found - found%poolset.BlockSize
	}
	if part.Size < have.Size || part.Size > have.Size && i < len(p.parts)-1 {
		return 0, fmt.Errorf("pool %s, line %d: part %s has %d bytes, of which the pool has %d in use: %w", set.File, part.Line, part.Path, part.Size, have.Size, ErrGrowth)
	}
	return part.Size, nil
}

// checkNew checks a part that is to be made.
func checkNew(set *poolset.Set, part poolset.Part) error {
	switch {
	case part.Auto:
		return fmt.Errorf("pool %s, line %d: a new part needs a size, AUTO takes that of a part that is in use", set.File, part.Line)
	case part.Size < MinPart:
		return fmt.Errorf("pool %s, line %d: part %s of %d bytes is too small, a part has at least %d", set.File, part.Line, part.Path, part.Size, MinPart)
	}
	return nil
}

// extend is steps 1 and 2. After an error it takes back what it made.
func (p *Pool) extend(set *poolset.Set, parts []pmem.Part) error {
	region, ok := p.region.(pmem.Extender)
	if !ok {
		return ErrGrowth
	}
	sparse, err := p.sparse()
	if err != nil {
		return err
	}
	added, err := p.lockNew(set)
	if err != nil {
		return err
	}
	undo, err := p.allocate(set, parts, sparse)
	if err == nil {
		err = region.Extend(parts)
	}
	if err == nil {
		p.mu.Lock()
		p.locks = append(p.locks, added...)
		p.mu.Unlock()
		return nil
	}
	for _, f := range undo {
		err = errors.Join(err, f())
	}
	return errors.Join(err, added.abandon())
}

// lockNew locks the devices among the parts that a growth adds.
func (p *Pool) lockNew(set *poolset.Set) (locks, error) {
	devices := poolset.Set{File: set.File}
	for _, part := range set.Parts[len(p.parts):] {
		if isDevice(part.Path) && !p.holds(part) {
			devices.Parts = append(devices.Parts, part)
		}
	}
	return acquire(&devices, roleGrowing, DefaultWait)
}

// holds tells whether the pool has the lock of a part already: it was in the pool set when the pool was opened.
func (p *Pool) holds(part poolset.Part) bool {
	path := lockPath(part)
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.locks, func(l *lock) bool { return l.f.Name() == path })
}

// allocate is step 1. undo is to be run after an error, of this step or of the next.
func (p *Pool) allocate(set *poolset.Set, parts []pmem.Part, sparse bool) (undo []func() error, err error) {
	last := len(p.parts) - 1
	if parts[last].Size > p.parts[last].Size {
		back, err := lengthen(parts[last], p.parts[last].Size, sparse)
		if back != nil {
			undo = append(undo, back)
		}
		if err != nil {
			return undo, fmt.Errorf("line %d: %w", set.Parts[last].Line, err)
		}
	}
	sized, err := withDevices(set)
	if err != nil {
		return undo, err
	}
	for _, part := range sized.Parts[len(p.parts):] {
		if err := dropUnfinished(part.Path); err != nil {
			return undo, err
		}
		back, err := makePart(set, part, sparse)
		if back != nil {
			undo = append(undo, back)
		}
		if err != nil {
			return undo, err
		}
	}
	return undo, syncDirs(set.Parts)
}

func makePart(set *poolset.Set, part poolset.Part, sparse bool) (undo func() error, err error) {
	if isDevice(part.Path) {
		return addDevice(set, part)
	}
	return makeFile(set, part, sparse)
}

// lengthen gives the file of a part its new size. What stood behind the bytes in use is dropped, so that all that is new is zero.
func lengthen(part pmem.Part, used uint64, sparse bool) (undo func() error, err error) {
	if isDevice(part.Path) { // whose size somebody has changed
		zeros, err := deviceZeros(part.Path, part.Size, used)
		if err == nil && !zeros {
			err = fmt.Errorf("part %s holds data behind the %d bytes that are in use", part.Path, used)
		}
		return nil, err
	}
	f, err := os.OpenFile(part.Path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	undo = func() error { return os.Truncate(part.Path, fi.Size()) }
	err = f.Truncate(int64(used))
	if err == nil {
		err = allocate(f, used, part.Size, sparse)
	}
	if err == nil {
		err = f.Sync()
	}
	return undo, err
}

// dropUnfinished empties what an interrupted Grow left: a file that holds nothing but zeros. Anything else is left alone, and refused later.
func dropUnfinished(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return err
	}
	if zeros, err := onlyZeros(f, 0); err != nil || !zeros {
		return err
	}
	return f.Truncate(0)
}

// onlyZeros reads all of f from off on that is no hole.
func onlyZeros(f *os.File, off int64) (bool, error) {
	buf, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("find data in %s: %w", f.Name(), err)
		}
		n, err := f.ReadAt(buf, at)
		if string(buf[:n]) != string(zero[:n]) {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		off = at + int64(n)
	}
}

// Sparse tells whether a part has fewer blocks than bytes.
func (p *Pool) Sparse() bool {
	p.growing.Lock()
	defer p.growing.Unlock()
	sparse, err := p.sparse()
	return sparse || err != nil
}

func (p *Pool) sparse() (bool, error) {
	for _, part := range p.parts {
		var st syscall.Stat_t
		if err := syscall.Stat(part.Path, &st); err != nil {
			return false, fmt.Errorf("part %s: %w", part.Path, err)
		}
		if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
			continue // a device has all its bytes
		}
		if st.Blocks*512 < int64(part.Size) {
			return true, nil
		}
	}
	return false, nil
}
