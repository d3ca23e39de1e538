package pmem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/nvdimm"
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

// OpenFiles maps parts one after another as one region. The weakest promise of a part is that of the region: Persistent for a Device
// DAX and where the file system grants MAP_SYNC (mmap(2)), Volatile on tmpfs, ramfs and hugetlbfs, and for either of the first two
// on memory that the kernel does not take for persistent, else PageCache. A Device DAX is joined only with parts that promise the same.
//
// A missing part gives an error that wraps fs.ErrNotExist, a short one a *SizeError.
func OpenFiles(parts []Part, opt Options) (Region, error) {
	m, err := openFiles(parts, opt, 0)
	if err != nil {
		return nil, err
	}
	if opt.Private && m.hasDevice() {
		return &overlay{mapping: m, owned: map[uint64]bool{}}, nil
	}
	return m, nil
}

// openFiles takes the promise from the parts, unless assume is not zero.
func openFiles(parts []Part, opt Options, assume Promise) (*mapping, error) {
	total, err := totalSize(parts)
	if err != nil {
		return nil, err
	}
	align, err := alignmentOf(parts)
	if err != nil {
		return nil, err
	}
	s, err := reserveRoom(total, align)
	if err != nil {
		return nil, fmt.Errorf("pmem: reserve %d bytes of address space for %s: %w", total, parts[0].Path, err)
	}
	m := &mapping{space: s, promise: Persistent, readOnly: opt.ReadOnly, private: opt.Private, eadr: opt.EADR}
	if err := m.place(parts, total, opt); err != nil {
		return nil, errors.Join(err, s.release())
	}
	switch {
	case assume != 0:
		m.promise = assume
	case opt.Private:
		m.promise = Volatile
	}
	mapped.add(m)
	return m, nil
}

// place maps the parts and publishes them.
func (m *mapping) place(parts []Part, total uint64, opt Options) error {
	all, off := make([]placed, 0, len(parts)), uint64(0)
	for _, p := range parts {
		placed, err := mapPart(p, 0, m.mem[off:off+p.Size], opt)
		if err != nil {
			return err
		}
		m.promise = min(m.promise, placed.promise)
		all, off = append(all, placed), off+p.Size
	}
	if err := checkMixed(all); err != nil {
		return err
	}
	m.publish(all, total)
	return nil
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

// mapPart maps one part, from at on, over b. The mapping outlives the descriptor.
func mapPart(p Part, at uint64, b []byte, opt Options) (placed, error) {
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
		return placed{}, fmt.Errorf("pmem: open part: %w", err)
	}
	defer f.Close()
	device, isDevice, err := checkFile(f, p)
	if err != nil {
		return placed{}, err
	}
	if isDevice {
		return mapDevice(f, p, device, at, b, opt)
	}
	mapIt := mapShared
	if opt.Private {
		mapIt = mapPrivate
	}
	kind, promise, err := mapIt(f, int64(at), b, prot)
	return placed{p, kind, promise, pageLen}, err
}

// mapPrivate reserves no memory for the pages that may be stored to: a pool is larger than the memory of its machine. The kernel replaces
// each of them at its first store, so that the kind is PageCacheFile wherever the file is.
func mapPrivate(f *os.File, at int64, b []byte, prot int) (Kind, Promise, error) {
	if err := mapFile(int(f.Fd()), at, b, prot, unix.MAP_PRIVATE|unix.MAP_NORESERVE); err != nil {
		return 0, 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	return PageCacheFile, Volatile, nil
}

// checkFile refuses what cannot be a part, and tells a Device DAX from a file.
func checkFile(f *os.File, p Part) (d nvdimm.Device, isDevice bool, err error) {
	fi, err := f.Stat()
	if err != nil {
		return d, false, fmt.Errorf("pmem: examine part: %w", err)
	}
	size := uint64(fi.Size())
	if !fi.Mode().IsRegular() {
		if d, isDevice, err = nvdimm.Kernel.Device(fi); err != nil {
			return d, false, fmt.Errorf("pmem: part %s: %w", p.Path, err)
		}
		if !isDevice {
			return d, false, fmt.Errorf("pmem: part %s is not a regular file, and no Device DAX (%v): use a file, on a DAX file system for persistent memory, or /dev/daxX.Y",
				p.Path, fi.Mode().Type())
		}
		size = d.Size
	}
	if size < p.Size {
		return d, false, &SizeError{Path: p.Path, Expected: p.Size, Found: size}
	}
	return d, isDevice, nil
}

// mapShared asks for MAP_SYNC first. File systems without DAX, tmpfs among them, refuse it with EOPNOTSUPP.
func mapShared(f *os.File, at int64, b []byte, prot int) (Kind, Promise, error) {
	fd := int(f.Fd())
	err := mapFile(fd, at, b, prot, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	if err == nil && !canFlush {
		return 0, 0, fmt.Errorf("pmem: part %s is on a DAX file system, which is not supported on %s: mount it without dax",
			f.Name(), runtime.GOARCH)
	}
	if err == nil {
		promise, err := promiseOf(f.Name())
		return FSDAX, promise, err
	}
	// EINVAL is the answer of a kernel before Linux 4.15.
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		return 0, 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	if err := mapFile(fd, at, b, prot, unix.MAP_SHARED); err != nil {
		return 0, 0, fmt.Errorf("pmem: map part %s: %w", f.Name(), err)
	}
	return kindOf(f)
}

// promiseOf is what a fence means for a DAX mapping of the file at path. The kernel grants MAP_SYNC also on a volatile region.
func promiseOf(path string) (Promise, error) {
	regions, err := nvdimm.Kernel.Regions(path)
	if err != nil {
		return 0, fmt.Errorf("pmem: %w", err)
	}
	for _, r := range regions {
		if !r.Persistent {
			return Volatile, nil
		}
	}
	return Persistent, nil
}

// kindOf tells file systems in memory from those on a device.
func kindOf(f *os.File) (Kind, Promise, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("pmem: file system of part %s: %w", f.Name(), err)
	}
	switch uint32(st.Type) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.HUGETLBFS_MAGIC:
		return Tmpfs, Volatile, nil
	}
	return PageCacheFile, PageCache, nil
}
