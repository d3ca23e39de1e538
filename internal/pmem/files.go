package pmem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Part is a file that holds a run of a pool. A longer file is fine: bytes beyond Size are not mapped.
type Part struct {
	Path string
	Size uint64 // bytes, a multiple of the page size
}

// Options of OpenFiles.
type Options struct {
	ReadOnly bool
	// Private maps the parts copy-on-write (MAP_PRIVATE, mmap(2)): the parts are opened for reading only, and what is stored
	// stays in the memory of this process until Close. Such a region is Volatile.
	Private bool
	// EADR: the administrator declares that what is in the CPU caches survives a loss of power. Then a Persistent region writes no cache
	// line back, and its Fence alone makes stores persistent: it waits until they have left the store buffers of the processor.
	EADR bool
}

// OpenFiles maps parts one after another as one region. The weakest promise of a part is that of the region:
// Persistent where the file system grants MAP_SYNC (mmap(2)), Volatile on tmpfs, ramfs and hugetlbfs, else PageCache.
//
// A missing part gives an error that wraps fs.ErrNotExist, a short one a *SizeError.
func OpenFiles(parts []Part, opt Options) (Region, error) {
	return openFiles(parts, opt, 0)
}

// openFiles takes the promise from the parts, unless assume is not zero.
func openFiles(parts []Part, opt Options, assume Promise) (*mapping, error) {
	total, err := totalSize(parts)
	if err != nil {
		return nil, err
	}
	s, err := reserveRoom(total)
	if err != nil {
		return nil, fmt.Errorf("pmem: reserve %d bytes of address space for %s: %w", total, parts[0].Path, err)
	}
	m := &mapping{space: s, promise: Persistent, readOnly: opt.ReadOnly, private: opt.Private, eadr: opt.EADR}
	var kind Kind
	for off, i := uint64(0), 0; i < len(parts); i++ {
		p := parts[i]
		k, err := mapPart(p, 0, s.mem[off:off+p.Size], opt)
		if err != nil {
			return nil, errors.Join(err, s.release())
		}
		kind, m.promise = max(kind, k), min(m.promise, k.promise())
		off += p.Size
	}
	m.publish(parts, total, kind)
	switch {
	case assume != 0:
		m.promise = assume
	case opt.Private:
		m.promise = Volatile
	}
	mapped.add(m)
	return m, nil
}

func totalSize(parts []Part) (uint64, error) {
	if len(parts) == 0 {
		return 0, errors.New("pmem: a region needs at least one part")
	}
	var total uint64
	for _, p := range parts {
		if p.Size == 0 || p.Size%pageLen != 0 {
			return 0, fmt.Errorf("pmem: part %s: size %d is not a multiple of the page size %d", p.Path, p.Size, pageLen)
		}
		if limit := uint64(math.MaxInt - hugeLen); p.Size > limit || total > limit-p.Size {
			return 0, fmt.Errorf("pmem: part %s: the pool exceeds the address space of this machine", p.Path)
		}
		total += p.Size
	}
	return total, nil
}

// mapPart maps one file, from at on, over b and returns its kind. The mapping outlives the descriptor.
func mapPart(p Part, at uint64, b []byte, opt Options) (Kind, error) {
	flags, prot := os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	switch {
	case opt.Private:
		flags = os.O_RDONLY
	case opt.ReadOnly:
		flags, prot = os.O_RDONLY, unix.PROT_READ
	}
	// O_NONBLOCK keeps a fifo from blocking before its type is checked.
	f, err := os.OpenFile(p.Path, flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("pmem: open part: %w", err)
	}
	defer f.Close()
	if err := checkFile(f, p); err != nil {
		return 0, err
	}
	if opt.Private {
		return mapPrivate(f, int64(at), b, prot)
	}
	return mapShared(f, int64(at), b, prot)
}

// mapPrivate reserves no memory for the pages that may be stored to: a pool is larger than the memory of its machine. The kernel replaces
// each of them at its first store, so that the kind is PageCacheFile wherever the file is.
func mapPrivate(f *os.File, at int64, b []byte, prot int) (Kind, error) {
	if err := mapFile(int(f.Fd()), at, b, prot, unix.MAP_PRIVATE|unix.MAP_NORESERVE); err != nil {
		return 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	return PageCacheFile, nil
}

func checkFile(f *os.File, p Part) error {
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pmem: examine part: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("pmem: part %s is not a regular file (%v): use a file, on a DAX file system for persistent memory",
			p.Path, fi.Mode().Type())
	}
	if size := uint64(fi.Size()); size < p.Size {
		return &SizeError{Path: p.Path, Expected: p.Size, Found: size}
	}
	return nil
}

// mapShared asks for MAP_SYNC first. File systems without DAX, tmpfs among them, refuse it with EOPNOTSUPP.
func mapShared(f *os.File, at int64, b []byte, prot int) (Kind, error) {
	fd := int(f.Fd())
	err := mapFile(fd, at, b, prot, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	if err == nil && !canFlush {
		return 0, fmt.Errorf("pmem: part %s is on a DAX file system, which is not supported on %s: mount it without dax",
			f.Name(), runtime.GOARCH)
	}
	if err == nil {
		return FSDAX, nil
	}
	// EINVAL is the answer of a kernel before Linux 4.15.
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		return 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	if err := mapFile(fd, at, b, prot, unix.MAP_SHARED); err != nil {
		return 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	return kindOf(f)
}

// kindOf tells file systems in memory from those on a device.
func kindOf(f *os.File) (Kind, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("pmem: file system of part %s: %w", f.Name(), err)
	}
	switch uint32(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return Tmpfs, nil
	}
	return PageCacheFile, nil
}
