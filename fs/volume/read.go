package volume

import (
	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// relatimeAge is the age in seconds from which an access time is brought up to date in any case.
const relatimeAge = 24 * 3600

// Read copies bytes of a file, up to its end, to dst and returns how many. Holes and unwritten blocks read as zeros.
// Errors: EISDIR, EINVAL (no file), ESTALE, *pmem.FaultError.
func (v *Volume) Read(ino Ino, off uint64, dst []byte) (n int, err error) {
	old := false
	err = v.view(func() error {
		ind, err := v.regular(ino)
		if err != nil {
			return err
		}
		if off < ind.Size {
			n = int(min(uint64(len(dst)), ind.Size-off))
			v.load(v.files[ino], ino, off, dst[:n])
		}
		old = v.oldAccess(&ind)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if old {
		v.accessed(ino)
	}
	return n, nil
}

// load fills dst with the content from off on, which ends within the file.
func (v *Volume) load(f *file, ino Ino, off uint64, dst []byte) {
	for len(dst) > 0 {
		m := v.mapBlock(f, ino, off/layout.BlockSize)
		at := off % layout.BlockSize
		n := min(uint64(len(dst)), m.n*layout.BlockSize-at)
		if m.state == written {
			copy(dst[:n], v.bytes[m.pblk*layout.BlockSize+at:])
		} else {
			clear(dst[:n])
		}
		dst, off = dst[n:], off+n
	}
}

// oldAccess tells whether the access time is due for an update: see Options.
func (v *Volume) oldAccess(ind *layout.Inode) bool {
	if v.opts.NoAtime || v.opts.StrictAtime {
		return !v.opts.NoAtime
	}
	return !after(ind.Atime, ind.Mtime) || !after(ind.Atime, ind.Ctime) || v.now().Sec-ind.Atime.Sec >= relatimeAge
}

func after(a, b layout.Time) bool { return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec }

// accessed sets the access time to now, pending like content. It is left undone when there is no room for it.
func (v *Volume) accessed(ino Ino) {
	_ = v.change(func() error {
		f, err := v.file(ino)
		if err != nil || v.roomToWrite(f) != nil {
			return nil
		}
		f.ind.Atime = v.now()
		v.changed(f)
		return nil
	})
}
