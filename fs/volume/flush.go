package volume

import "github.com/pmemfs/pmemfs/internal/mutant"

// FlushFile moves the pending content of an inode into the open group: extents, size and times in one record. It returns
// the group that must be sealed so that this, and every name and attribute changed before, is durable; 0 if all is. It
// never returns ErrShort.
func (v *Volume) FlushFile(ino Ino) (lsn uint64, err error) {
	err = v.change(func() error {
		if f := v.files[ino]; f != nil {
			v.flush(f)
		}
		lsn = v.toSeal()
		return nil
	})
	return lsn, err
}

// FlushAll does so for all inodes.
func (v *Volume) FlushAll() (lsn uint64, err error) {
	err = v.change(func() error {
		v.flushFiles()
		lsn = v.toSeal()
		return nil
	})
	return lsn, err
}

func (v *Volume) flushFiles() {
	for _, f := range v.unflushed {
		v.flush(f)
		f.listed = false
	}
	clear(v.unflushed)
	v.unflushed = v.unflushed[:0]
}

// flush moves what is pending of f into the group. The room for it is set aside: nodes, log and, since that never is
// more than half of a record, one group.
func (v *Volume) flush(f *file) {
	if !f.pending {
		return
	}
	v.groupFor(f.aside.bytes)
	was, err := v.stored(f.ino)
	if err != nil {
		v.stop(err)
		return
	}
	for _, p := range f.exts {
		v.mapExtent(f.ino, p.lblk, p.pblk, p.n, 0)
	}
	v.storeInode(f.ino, &was, &f.ind)
	if !mutant.On(mutant.SizeBeforeData) {
		v.group.ranges = append(v.group.ranges, f.dirty...)
	}
	f.exts, f.dirty = f.exts[:0], f.dirty[:0]
	if f.content {
		f.lsn = v.log.LSN() + 1
	}
	f.pending, f.content = false, false
	v.setAside(f)
	v.space.watch.Flushed(f.ino, f.ind.Size)
}
