package pool

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Info is what can be said of a pool without opening it.
type Info struct {
	Header poolset.Header
	// State as Open would give it: Inconsistent also where memory was lost with a reboot and nobody has noted that yet.
	State  poolset.State
	Holder *Holder // process that has the pool, nil if there is none

	stored poolset.State // as it stands in the pool
	slot   int           // slot of stored
	torn   bool          // the header copy was taken
}

// Inspect reads header and state without lock and mapping, also while another process has the pool. What it returns may
// be out of date at once. It takes pools of every signature.
func Inspect(set *poolset.Set) (Info, error) {
	info, err := readInfo(set)
	if err != nil {
		return Info{}, err
	}
	h, ok, err := holderOf(set)
	if err != nil {
		return Info{}, err
	}
	if ok {
		info.Holder = &h
	}
	return info, nil
}

// readInfo tries again when it finds something wrong, which may be a holder's write or growth under way.
func readInfo(set *poolset.Set) (info Info, err error) {
	const tries = 3
	for range tries {
		var parts []pmem.Part
		if parts, err = partsOf(set); err != nil {
			return Info{}, err
		}
		var block []byte
		if block, err = readHeader(parts[0].Path); err != nil {
			return Info{}, fmt.Errorf("pool %s: read header: %w", set.File, err)
		}
		if info, err = decode(set, block, totalSize(parts)); err == nil {
			return info, nil
		}
	}
	return Info{}, err
}

// readHeader reads block 0 from the first part.
func readHeader(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Mode()&os.ModeCharDevice != 0 {
		return readDeviceHeader(path)
	}
	block := make([]byte, poolset.BlockSize)
	if _, err := f.ReadAt(block, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return block, nil
}

// readDeviceHeader reads block 0 of a Device DAX, which has to be mapped for that.
func readDeviceHeader(path string) (block []byte, err error) {
	d, ok, err := pmem.DeviceAt(path)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s is not a Device DAX", path)
	}
	r, err := pmem.OpenFiles([]pmem.Part{{Path: path, Size: d.Align}}, pmem.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	block = make([]byte, poolset.BlockSize)
	err = pmem.CopyOut(block, r.Bytes()[:poolset.BlockSize])
	return block, errors.Join(err, r.Close())
}

// decode reads block 0 of a pool whose parts have size bytes together.
func decode(set *poolset.Set, block []byte, size uint64) (Info, error) {
	var info Info
	var err error
	if info.Header, info.torn, err = poolset.CurrentHeader(block); err != nil {
		return Info{}, fmt.Errorf("pool %s, part %s: %w", set.File, set.Parts[0].Path, notPool(block, err))
	}
	if info.Header.PoolSize != size {
		return Info{}, fmt.Errorf("pool %s: the header says %d bytes, the parts of the pool set have %d together: %w",
			set.File, info.Header.PoolSize, size, ErrPoolSet)
	}
	info.stored, info.slot, err = poolset.CurrentState(block, info.Header.PoolUUID)
	if err != nil {
		return Info{}, fmt.Errorf("pool %s, part %s: %w", set.File, set.Parts[0].Path, err)
	}
	info.State, err = afterBoot(info.stored)
	if err != nil {
		return Info{}, fmt.Errorf("pool %s: %w", set.File, err)
	}
	return info, nil
}

// notPool tells a file that never was a pool from a damaged one.
func notPool(block []byte, err error) error {
	if bytes.HasPrefix(block, poolset.Signature[:]) || bytes.HasPrefix(block[poolset.HeaderCopyOff:], poolset.Signature[:]) {
		return err
	}
	return fmt.Errorf("%w: expected signature %q at offset 0, found %q: %w", ErrNotPool, poolset.Signature, block[:8], err)
}

// afterBoot marks the state of a pool of class memory Inconsistent if the machine was booted since.
func afterBoot(s poolset.State) (poolset.State, error) {
	if s.Flags&poolset.Memory == 0 {
		return s, nil
	}
	boot, err := bootID()
	if err == nil && s.BootID != boot {
		s.Flags = s.Flags&^poolset.Clean | poolset.Inconsistent
		s.SyncGen, s.SyncID = 0, 0
	}
	return s, err
}
