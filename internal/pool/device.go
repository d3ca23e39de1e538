package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// clearStep is how many bytes of a device are looked at in one piece.
const clearStep = 2 << 20

// devicePath is what the kernel calls a Device DAX. A part of that name is never made as a file: it would be one in the memory of /dev.
var devicePath = regexp.MustCompile(`^/dev/dax[0-9]+\.[0-9]+$`)

// withDevices is set with the sizes of its Device DAX parts, which are always taken whole.
func withDevices(set *poolset.Set) (*poolset.Set, error) {
	sized := *set
	sized.Parts = nil
	for _, p := range set.Parts {
		d, ok, err := pmem.DeviceAt(p.Path)
		switch absent := errors.Is(err, fs.ErrNotExist); {
		case absent && devicePath.MatchString(p.Path):
			return nil, fmt.Errorf("pool %s, line %d: part: there is no Device DAX %s: ndctl list shows those of this machine, ndctl create-namespace -m devdax makes one: %w",
				set.File, p.Line, p.Path, fs.ErrNotExist)
		case err != nil && !absent:
			return nil, fmt.Errorf("pool %s, line %d: part: %w", set.File, p.Line, err)
		}
		if ok {
			if err := checkWhole(set, p, d.Size); err != nil {
				return nil, err
			}
			p.Size, p.Auto = d.Size, false
		}
		sized.Parts = append(sized.Parts, p)
	}
	return &sized, nil
}

// checkWhole refuses a part that is not all of its device: what is left over could be used by nobody else.
func checkWhole(set *poolset.Set, p poolset.Part, size uint64) error {
	if p.Auto || p.Size == size {
		return nil
	}
	return fmt.Errorf("pool %s, line %d: part %s is a Device DAX of %d bytes, the line says %d: write AUTO, which takes all of it", set.File, p.Line, p.Path, size, p.Size)
}

// SizeOf is the size in bytes of the pool that Create would make of set.
func SizeOf(set *poolset.Set) (uint64, error) {
	sized, err := withDevices(set)
	if err != nil {
		return 0, err
	}
	return sized.Size(), nil
}

// isDevice tells whether a part is a Device DAX; one that cannot be examined is none.
func isDevice(path string) bool {
	_, ok, err := pmem.DeviceAt(path)
	return err == nil && ok
}

// addDevice makes a part of a Device DAX for a pool that grows: one that holds data is refused.
func addDevice(set *poolset.Set, p poolset.Part) (undo func() error, err error) {
	r, err := pmem.OpenFiles([]pmem.Part{{Path: p.Path, Size: p.Size}}, pmem.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("pool %s, line %d: create part: %w", set.File, p.Line, err)
	}
	if err := errors.Join(checkZeros(set, p, r.Bytes()), r.Close()); err != nil {
		return nil, err
	}
	return func() error { return clearDevice(p.Path) }, nil
}

// checkZeros refuses a part whose bytes b hold data.
func checkZeros(set *poolset.Set, p poolset.Part, b []byte) error {
	off, data, err := firstData(b, 0)
	if err == nil && data {
		err = fmt.Errorf("%s holds data, the first of it at byte %d: %w: if nobody needs it, erase the device with pmemfs rmpool --force, or with mkpool --force where the pool is made", p.Path, off, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("pool %s, line %d: create part: %w", set.File, p.Line, err)
	}
	return nil
}

// eachDevice calls do with each part of set that is a Device DAX, and with where it lies in the pool.
func eachDevice(set *poolset.Set, do func(poolset.Part, pmem.Range) error) error {
	off := uint64(0)
	for _, p := range set.Parts {
		if isDevice(p.Path) {
			if err := do(p, pmem.Range{Off: off, Len: p.Size}); err != nil {
				return err
			}
		}
		off += p.Size
	}
	return nil
}

// checkDevices refuses devices that hold data. r is mapped from the parts of set.
func checkDevices(set *poolset.Set, r pmem.Region) error {
	return eachDevice(set, func(p poolset.Part, at pmem.Range) error { return checkZeros(set, p, r.Bytes()[at.Off:][:at.Len]) })
}

// clearDevices makes all bytes of the devices zero and persistent.
func clearDevices(set *poolset.Set, r pmem.Region) error {
	return eachDevice(set, func(p poolset.Part, at pmem.Range) error {
		if err := clearRange(r, at); err != nil {
			return fmt.Errorf("pool %s, line %d: erase %s: %w", set.File, p.Line, p.Path, err)
		}
		return nil
	})
}

// clearDevice makes all bytes of a Device DAX zero and persistent.
func clearDevice(path string) error {
	d, ok, err := pmem.DeviceAt(path)
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("%s is not a Device DAX, or not any more: nothing of it was changed", path))
	}
	r, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: d.Size}}, pmem.Options{})
	if err != nil {
		return err
	}
	return errors.Join(clearRange(r, pmem.Range{Len: d.Size}), r.Close())
}

// clearRange makes the bytes of r in at zero and persistent, from the start on: a pool loses its header first. What is zero already is only read.
func clearRange(r pmem.Region, at pmem.Range) error {
	for done := uint64(0); done < at.Len; done += clearStep {
		piece := pmem.Range{Off: at.Off + done, Len: min(clearStep, at.Len-done)}
		b := r.Bytes()[piece.Off:][:piece.Len]
		zero, err := isZero(b)
		if err == nil && !zero {
			err = pmem.Zero(b)
		}
		if err == nil {
			err = pmem.Drain(r, []pmem.Range{piece}, pmem.Seal{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firstData finds the first byte of b from off on that is not zero.
func firstData(b []byte, off uint64) (at uint64, found bool, err error) {
	for ; off < uint64(len(b)); off += clearStep {
		piece := b[off:min(off+clearStep, uint64(len(b)))]
		zero, err := isZero(piece)
		if err != nil {
			return 0, false, err
		}
		if !zero {
			err := pmem.Guard(func() { at = off + uint64(slices.IndexFunc(piece, func(b byte) bool { return b != 0 })) })
			return at, true, err
		}
	}
	return 0, false, nil
}

var zeros [clearStep]byte

func isZero(b []byte) (zero bool, err error) {
	err = pmem.Guard(func() { zero = bytes.Equal(b, zeros[:len(b)]) })
	return zero, err
}

// deviceZeros tells whether a Device DAX holds nothing but zeros from off on.
func deviceZeros(path string, size, off uint64) (bool, error) {
	r, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: size}}, pmem.Options{ReadOnly: true})
	if err != nil {
		return false, err
	}
	_, data, err := firstData(r.Bytes(), off)
	return !data, errors.Join(err, r.Close())
}
