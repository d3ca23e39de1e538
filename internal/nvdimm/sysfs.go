// Package nvdimm reads in sysfs what the kernel knows of persistent memory: in which region a file or a device lies, what
// survives a loss of power there, and the size and alignment of a Device DAX.
//
// Attributes and their values: Documentation/ABI/testing/sysfs-bus-nvdimm, sysfs-bus-dax and sysfs-bus-nfit of Linux.
package nvdimm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysfs is the directory at which sysfs is mounted.
type Sysfs string

// Kernel is that of the running kernel.
const Kernel Sysfs = "/sys"

// dir is the directory of a device, its symbolic links resolved; ok is false if the kernel does not show the device. kind is "char" or "block".
func (s Sysfs) dir(kind string, dev uint64) (path string, ok bool, err error) {
	link := filepath.Join(string(s), "dev", kind, fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)))
	path, err = filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return path, err == nil, err
}

// attr reads an attribute; "" if the kernel does not have it.
func attr(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// number reads an attribute that must be there.
func number(dir, name string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return n, nil
}
