package pmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/nvdimm"
)

// A Device DAX knows open, close and mmap of multiples of its alignment, shared alone; there is no read, write, truncate or msync.

// alignmentOf is what the address of a region of these parts must be a multiple of, in bytes. It refuses a Device DAX that would not begin at
// a multiple of its alignment. Parts that cannot be examined are left to who opens them.
func alignmentOf(parts []Part) (uint64, error) {
	align, off := uint64(hugeLen), uint64(0)
	for _, p := range parts {
		d, ok, err := DeviceAt(p.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("pmem: part %s: %w", p.Path, err)
		}
		if ok {
			if err := checkAligned(p, d, off); err != nil {
				return 0, err
			}
			align = max(align, d.Align)
		}
		off += p.Size
	}
	return align, nil
}

// DeviceAt returns the Device DAX that path names; ok is false if it names something else.
func DeviceAt(path string) (d nvdimm.Device, ok bool, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nvdimm.Device{}, false, err
	}
	return nvdimm.Kernel.Device(fi)
}

// checkAligned tests whether all of a Device DAX that stands at off can be mapped.
func checkAligned(p Part, d nvdimm.Device, off uint64) error {
	switch {
	case p.Size%d.Align != 0:
		return fmt.Errorf("pmem: part %s: %d bytes are not a multiple of %d, the alignment of the device: write AUTO, which takes all of it", p.Path, p.Size, d.Align)
	case off%d.Align != 0:
		return fmt.Errorf("pmem: part %s begins at byte %d of the pool, which is not a multiple of %d, the alignment of the device: "+
			"name it first, or change the sizes of the parts before it", p.Path, off, d.Align)
	}
	return nil
}

// mapDevice maps a Device DAX over b, whose alignment alignmentOf has seen to, from at on. A private mapping does not exist: what stands in for it is mapped for reading, see overlay.
func mapDevice(f *os.File, p Part, d nvdimm.Device, at uint64, b []byte, opt Options) (placed, error) {
	if !canFlush {
		return placed{}, fmt.Errorf("pmem: part %s is a Device DAX, which is not supported on %s", p.Path, runtime.GOARCH)
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if opt.ReadOnly || opt.Private {
		prot = unix.PROT_READ
	}
	if err := mapFile(int(f.Fd()), int64(at), b, prot, unix.MAP_SHARED); err != nil {
		return placed{}, fmt.Errorf("pmem: map part %s, a Device DAX of %d bytes with an alignment of %d: %w", p.Path, d.Size, d.Align, err)
	}
	promise := Volatile
	if d.Persistent && !opt.Private {
		promise = Persistent
	}
	return placed{p, DeviceDAX, promise, d.Align}, nil
}

func (m *mapping) hasDevice() bool {
	for _, p := range *m.parts.Load() {
		if p.kind == DeviceDAX {
			return true
		}
	}
	return false
}
