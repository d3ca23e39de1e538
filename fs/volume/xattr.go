package volume

import (
	"strings"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Flags of SetXattr. Create and replace are those of setxattr(2).
const (
	XattrCreate  = 1
	XattrReplace = 2
	// XattrKillSGID clears set-group-id with an access ACL: the caller neither is in the group of the file nor has
	// CAP_FSETID.
	XattrKillSGID = 1 << 16
)

// maxXattr is the limit of setxattr(2) for a value, and of listxattr(2) for all names, in bytes.
const maxXattr = 64 << 10

// checkXattr refuses names that are none (ERANGE, as Linux does) and name spaces that are not ours (EOPNOTSUPP).
func checkXattr(name string) error {
	if name == "" || len(name) > MaxName || strings.IndexByte(name, 0) >= 0 {
		return syscall.ERANGE
	}
	if isACL(name) {
		return nil
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

// SetXattr sets an attribute. An access ACL sets the permission bits of the mode too, and is not stored if they say it all.
// Errors: E2BIG (more than 64 KiB, an ACL of more than 4096 bytes), EEXIST with XattrCreate, ENODATA with XattrReplace,
// EINVAL (other flags, no valid ACL), EACCES (a default ACL of what is no directory), ENOSPC (the names would not fit into
// 64 KiB, or share a hash), EOPNOTSUPP, EPERM (see FlagImmutable), ERANGE, ESTALE, ErrShort, *pmem.FaultError.
func (v *Volume) SetXattr(ino Ino, name string, value []byte, flags uint32) error {
	if err := checkXattr(name); err != nil {
		return err
	}
	if flags&^(XattrCreate|XattrReplace|XattrKillSGID) != 0 {
		return syscall.EINVAL
	}
	if len(value) > maxXattr {
		return syscall.E2BIG
	}
	return v.change(func() error {
		ind, err := v.inode(ino)
		if err != nil {
			return err
		}
		if err := unprotected(&ind, FlagImmutable|FlagAppend); err != nil {
			return err
		}
		if isACL(name) {
			return v.setACL(ino, &ind, name, value, flags)
		}
		return v.setXattr(ino, name, value, flags, ind.Mode)
	})
}

// xattrCost is a change of one attribute: its list, and the inode.
func (v *Volume) xattrCost() cost { return cost{2, opPut + v.limits.value + inodeBytes} }

func (v *Volume) setXattr(ino Ino, name string, value []byte, flags, mode uint32) error {
	_, _, exists := v.findXattr(ino, name)
	switch {
	case exists && flags&XattrCreate != 0:
		return syscall.EEXIST
	case !exists && flags&XattrReplace != 0:
		return syscall.ENODATA
	case !exists && v.xattrNames(ino)+len(name)+1 > maxXattr:
		return syscall.ENOSPC
	}
	if err := v.admit(v.xattrCost(), false); err != nil {
		return err
	}
	var x newXattr
	if err := v.prepareXattr(&x, ino, name, value, v.xattrCost().edits); err != nil {
		return err
	}
	v.changeXattr(ino, name, &x, mode)
	return nil
}

// newXattr is a value on its way into the tree: as it will stand in its list, and where a large one was stored.
type newXattr struct {
	layout.Xattr
	data   [layout.XattrRunSize]byte
	blocks run
	stored pmem.Range
}

// prepareXattr makes a value ready to be put. One that does not fit into the list is stored in a run of blocks of its own,
// if that leaves nodes for so many edits. Errors: ENOSPC if not even the name fits into the list, ErrShort, *pmem.FaultError.
func (v *Volume) prepareXattr(x *newXattr, ino Ino, name string, value []byte, edits int) error {
	list, _, _ := v.findXattr(ino, name)
	room := v.limits.value - len(layout.RemoveXattr(v.value[:0], list, []byte(name))) - layout.XattrHeader - len(name)
	x.Xattr = layout.Xattr{Name: []byte(name), Vlen: uint32(len(value)), Data: value}
	if len(value) <= min(layout.MaxXattrInline, room) {
		return nil
	}
	if room < layout.XattrRunSize {
		return syscall.ENOSPC
	}
	n := blocksOf(uint64(len(value)))
	blk, ok := v.allocRun(n)
	if !ok {
		return ErrShort
	}
	x.blocks = run{blk, n}
	var err error
	x.stored, err = v.store(mapping{state: hole, pblk: blk, n: n}, 0, value)
	if err == nil && !v.nodesFor(edits, false) {
		err = ErrShort
	}
	if err != nil {
		v.abandonXattr(x)
		return err
	}
	layout.XattrRun{Pblk: blk, N: uint32(n)}.Encode(x.data[:])
	x.Form, x.Data = layout.XattrBlocks, x.data[:]
	return nil
}

// abandonXattr gives up what prepareXattr stored.
func (v *Volume) abandonXattr(x *newXattr) {
	if x.blocks.n > 0 {
		v.freeUnlogged(x.blocks.blk, x.blocks.n)
	}
}

// putXattr puts a prepared value, whose blocks become durable with the group, and returns how many blocks more the inode
// has, modulo 2^64.
func (v *Volume) putXattr(ino Ino, name string, x *newXattr) (blocks uint64) {
	list, old, _ := v.findXattr(ino, name)
	blocks = x.blocks.n - v.freeXattr(&old)
	if x.blocks.n > 0 {
		v.group.ranges = append(v.group.ranges, x.stored)
	}
	v.value = layout.PutXattr(v.value[:0], list, x.Xattr)
	v.put(v.xattrKey(ino, name), v.value)
	return blocks
}

// dropXattr removes an attribute and returns how many blocks it had.
func (v *Volume) dropXattr(ino Ino, name string) (blocks uint64) {
	list, old, _ := v.findXattr(ino, name)
	blocks = v.freeXattr(&old)
	v.value = layout.RemoveXattr(v.value[:0], list, []byte(name))
	if len(v.value) > 0 {
		v.put(v.xattrKey(ino, name), v.value)
	} else {
		v.remove(v.xattrKey(ino, name))
	}
	return blocks
}

// changeXattr puts a prepared value, or removes the attribute if x is nil, and sets mode and change time with it.
func (v *Volume) changeXattr(ino Ino, name string, x *newXattr, mode uint32) {
	var blocks uint64
	if x != nil {
		blocks = v.putXattr(ino, name, x)
	} else {
		blocks = -v.dropXattr(ino, name)
	}
	now := v.now()
	v.update(ino, func(ind *layout.Inode) {
		ind.Blocks += blocks
		ind.Mode, ind.Ctime = mode, now
	})
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

// RemoveXattr removes an attribute. To remove an ACL that is not there is no error. Errors: ENODATA, EOPNOTSUPP, EPERM
// (see FlagImmutable), ERANGE, ESTALE, ErrShort.
func (v *Volume) RemoveXattr(ino Ino, name string) error {
	if err := checkXattr(name); err != nil {
		return err
	}
	return v.change(func() error {
		ind, err := v.inode(ino)
		if err != nil {
			return err
		}
		if err := unprotected(&ind, FlagImmutable|FlagAppend); err != nil {
			return err
		}
		if _, _, ok := v.findXattr(ino, name); !ok {
			if isACL(name) {
				return nil
			}
			return syscall.ENODATA
		}
		if err := v.admit(v.xattrCost(), true); err != nil {
			return err
		}
		v.changeXattr(ino, name, nil, ind.Mode)
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
