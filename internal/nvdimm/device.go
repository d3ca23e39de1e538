package nvdimm

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Device is a Device DAX: persistent memory as a character device that knows mmap(2) and nothing else.
type Device struct {
	Name  string // "dax1.0"
	Size  uint64 // bytes
	Align uint64 // bytes; offset and length of a mapping are multiples of it
	// Persistent is false where the memory is not that of a persistent region: DRAM that the firmware set aside, HBM, volatile CXL memory.
	Persistent bool
}

// Device returns what fi describes if it is a Device DAX.
func (s Sysfs) Device(fi os.FileInfo) (d Device, ok bool, err error) {
	if fi.Mode()&os.ModeCharDevice == 0 {
		return Device{}, false, nil
	}
	dir, ok, err := s.dir("char", fi.Sys().(*syscall.Stat_t).Rdev)
	if err != nil || !ok {
		return Device{}, false, err
	}
	subsystem, err := filepath.EvalSymlinks(filepath.Join(dir, "subsystem"))
	if err != nil || filepath.Base(subsystem) != "dax" {
		return Device{}, false, nil
	}
	if d, err = s.device(dir); err != nil {
		return Device{}, false, fmt.Errorf("Device DAX %s: %w", filepath.Base(dir), err)
	}
	return d, true, nil
}

// device reads the attributes of the Device DAX in dir.
func (s Sysfs) device(dir string) (Device, error) {
	size, err := number(dir, "size")
	if err != nil {
		return Device{}, err
	}
	align, err := number(dir, "align")
	if err != nil {
		return Device{}, err
	}
	if align == 0 || align&(align-1) != 0 {
		return Device{}, fmt.Errorf("alignment of %d bytes is not a power of two", align)
	}
	region, ok, err := regionOf(dir)
	return Device{Name: filepath.Base(dir), Size: size, Align: align, Persistent: ok && region.Persistent}, err
}
