package volume

import (
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Flags of SetXattr, and limits of setxattr(2) and listxattr(2) in bytes.
const (
	XattrCreate  = 1
	XattrReplace = 2
	maxXattr     = 64 << 10
)

// checkXattr refuses names that are none (ERANGE, as Linux does) and name spaces that are not ours (EOPNOTSUPP).
func checkXattr(name string) error {
	if name == "" || len(name) > MaxName || strings.IndexByte(name, 0) >= 0 {
		return syscall.ERANGE
	}
	for _, space := range []string{"user.", "trusted.", "security."} {
		if rest, ok := strings.CutPrefix(name, space); ok {
			if rest == "" {
				return syscall.EINVAL
			}
			return nil
		}
	}
	return syscall.EOPNOTSUPP
}

func (v *Volume) xattrKey(ino Ino, name string) layout.Key {
	return layout.MakeKey(ino, layout.TypeXattr, layout.Hash56(v.super.HashKey, name))
}

// findXattr looks an attribute up. Its slices are views, valid until the next change.
func (v *Volume) findXattr(ino Ino, name string) (list []byte, x layout.Xattr, ok bool) {
	list, _ = v.tree.Get(v.xattrKey(ino, name))
	x, ok = layout.FindXattr(list, []byte(name))
	return list, x, ok
}

// GetXattr copies the value of an attribute to dst and returns its length; with an empty dst the length alone. Errors:
// ENODATA, ERANGE (dst is too short), EOPNOTSUPP, ESTALE, *pmem.FaultError.
func (v *Volume) GetXattr(ino Ino, name string, dst []byte) (n int, err error) {
	if err := checkXattr(name); err != nil {
		return 0, err
	}
	err = v.view(func() error {
		if _, err := v.inode(ino); err != nil {
			return err
		}
		_, x, ok := v.findXattr(ino, name)
		if !ok {
			return syscall.ENODATA
		}
		n = int(x.Vlen)
		if len(dst) == 0 {
			return nil
		}
		if n > len(dst) {
			return syscall.ERANGE
		}
		if r, ok := x.Run(); ok {
			copy(dst[:n], v.bytes[r.Pblk*layout.BlockSize:])
		} else {
			copy(dst, x.Data)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// SetXattr sets an attribute. Errors: E2BIG (more than 64 KiB), EEXIST with XattrCreate, ENODATA with XattrReplace,
// EINVAL (other flags), ENOSPC (the names would not fit into 64 KiB, or share a hash), EOPNOTSUPP, ERANGE, ESTALE,
// ErrShort, *pmem.FaultError.
func (v *Volume) SetXattr(ino Ino, name string, value []byte, flags uint32) error {
	if err := checkXattr(name); err != nil {
		return err
	}
	if flags&^(XattrCreate|XattrReplace) != 0 {
		return syscall.EINVAL
	}
	if len(value) > maxXattr {
		return syscall.E2BIG
	}
	return v.change(func() error { return v.setXattr(ino, name, value, flags) })
}

func (v *Volume) setXattr(ino Ino, name string, value []byte, flags uint32) error {
	if _, err := v.inode(ino); err != nil {
		return err
	}
	list, old, exists := v.findXattr(ino, name)
	switch {
	case exists && flags&XattrCreate != 0:
		return syscall.EEXIST
	case !exists && flags&XattrReplace != 0:
		return syscall.ENODATA
	case !exists && v.xattrNames(ino)+len(name)+1 > maxXattr:
		return syscall.ENOSPC
	}
	left := len(layout.RemoveXattr(v.value[:0], list, []byte(name)))
	entry := layout.XattrHeader + len(name)
	inline := len(value) <= layout.MaxXattrInline && left+entry+len(value) <= v.limits.value
	if !inline && left+entry+layout.XattrRunSize > v.limits.value {
		return syscall.ENOSPC
	}
	if err := v.admit(cost{2, opPut + v.limits.value + inodeBytes}, false); err != nil {
		return err
	}
	x := layout.Xattr{Name: []byte(name), Vlen: uint32(len(value)), Data: value}
	var data [layout.XattrRunSize]byte
	var blocks uint64
	if !inline {
		run, err := v.storeXattr(value)
		if err != nil {
			return err
		}
		run.Encode(data[:])
		x.Form, x.Data, blocks = layout.XattrBlocks, data[:], uint64(run.N)
	}
	list, old, _ = v.findXattr(ino, name) // admit may have moved the nodes
	blocks -= v.freeXattr(&old)
	v.value = layout.PutXattr(v.value[:0], list, x)
	v.put(v.xattrKey(ino, name), v.value)
	v.xattrChanged(ino, blocks)
	return nil
}

// storeXattr stores a large value in a run of blocks of its own, which becomes durable with the group.
func (v *Volume) storeXattr(value []byte) (layout.XattrRun, error) {
	n := blocksOf(uint64(len(value)))
	blk, ok := v.allocRun(n)
	if !ok {
		return layout.XattrRun{}, ErrShort
	}
	r, err := v.store(mapping{state: hole, pblk: blk, n: n}, 0, value)
	if err == nil && !v.nodesFor(2, false) {
		err = ErrShort
	}
	if err != nil {
		v.freeUnlogged(blk, n)
		return layout.XattrRun{}, err
	}
	v.group.ranges = append(v.group.ranges, r)
	return layout.XattrRun{Pblk: blk, N: uint32(n)}, nil
}

// runTries is how many shorter runs allocRun passes over.
const runTries = 32

// allocRun takes n blocks in one run.
func (v *Volume) allocRun(n uint64) (blk uint64, ok bool) {
	var short [runTries]run
	tries := 0
	for ; tries < runTries && !ok; tries++ {
		var got uint64
		blk, got = v.allocData(0, n)
		if ok = got == n; ok || got == 0 {
			break
		}
		short[tries] = run{blk, got}
	}
	for _, s := range short[:tries] {
		v.space.FreeData(s.blk, s.n)
	}
	return blk, ok
}

// run is n blocks from blk on.
type run struct{ blk, n uint64 }

// freeXattr gives up the blocks of an attribute and tells how many there were.
func (v *Volume) freeXattr(x *layout.Xattr) uint64 {
	r, ok := x.Run()
	if !ok {
		return 0
	}
	v.free(r.Pblk, uint64(r.N))
	return uint64(r.N)
}

// xattrChanged counts the blocks, modulo 2^64, and sets the change time.
func (v *Volume) xattrChanged(ino Ino, blocks uint64) {
	now := v.now()
	v.update(ino, func(ind *layout.Inode) {
		ind.Blocks += blocks
		ind.Ctime = now
	})
}

// RemoveXattr removes an attribute. Errors: ENODATA, EOPNOTSUPP, ERANGE, ESTALE, ErrShort.
func (v *Volume) RemoveXattr(ino Ino, name string) error {
	if err := checkXattr(name); err != nil {
		return err
	}
	return v.change(func() error {
		if _, err := v.inode(ino); err != nil {
			return err
		}
		if _, _, ok := v.findXattr(ino, name); !ok {
			return syscall.ENODATA
		}
		if err := v.admit(cost{2, opPut + v.limits.value + inodeBytes}, true); err != nil {
			return err
		}
		list, x, _ := v.findXattr(ino, name)
		blocks := v.freeXattr(&x)
		v.value = layout.RemoveXattr(v.value[:0], list, []byte(name))
		if len(v.value) > 0 {
			v.put(v.xattrKey(ino, name), v.value)
		} else {
			v.remove(v.xattrKey(ino, name))
		}
		v.xattrChanged(ino, -blocks)
		return nil
	})
}

// ListXattr copies the names, each with a NUL behind it, to dst and returns their length; with an empty dst the length
// alone. Errors: ERANGE, ESTALE.
func (v *Volume) ListXattr(ino Ino, dst []byte) (n int, err error) {
	err = v.view(func() error {
		if _, err := v.inode(ino); err != nil {
			return err
		}
		n = v.xattrNames(ino)
		if len(dst) == 0 {
			return nil
		}
		if n > len(dst) {
			return syscall.ERANGE
		}
		at := dst
		v.eachXattr(ino, func(x layout.Xattr) bool {
			at = at[copy(at, x.Name):]
			at[0] = 0
			at = at[1:]
			return true
		})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// xattrNames is the length of the list of names.
func (v *Volume) xattrNames(ino Ino) (n int) {
	v.eachXattr(ino, func(x layout.Xattr) bool {
		n += len(x.Name) + 1
		return true
	})
	return n
}

func (v *Volume) eachXattr(ino Ino, fn func(x layout.Xattr) bool) {
	v.tree.Ascend(layout.MakeKey(ino, layout.TypeXattr, 0), layout.MakeKey(ino, layout.TypeSymlink, 0),
		func(_ layout.Key, list []byte) bool { return layout.EachXattr(list, fn) == nil })
}
