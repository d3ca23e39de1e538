package volume

import (
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// Span tells whether byte off of a file lies in data or in a hole, and where that ends, at the end of the file at the
// latest. Unwritten blocks are a hole. It answers lseek(2) with SEEK_DATA and SEEK_HOLE. Errors: ENXIO (off is at the end of
// the file or behind it), EISDIR, EINVAL (no file), ESTALE.
func (v *Volume) Span(ino Ino, off uint64) (data bool, end uint64, err error) {
	err = v.view(func() error {
		ind, err := v.regular(ino)
		switch {
		case err != nil:
			return err
		case off >= ind.Size:
			return syscall.ENXIO
		}
		data, end = v.span(v.files[ino], ino, off/layout.BlockSize, blocksOf(ind.Size))
		end = min(end*layout.BlockSize, ind.Size)
		return nil
	})
	return data, end, err
}

// span is Span in blocks.
func (v *Volume) span(f *file, ino Ino, lblk, size uint64) (data bool, end uint64) {
	m := v.mapBlock(f, ino, lblk)
	data = m.state == written
	for end = lblk + m.n; end < size; end += m.n {
		if m = v.mapBlock(f, ino, end); (m.state == written) != data {
			break
		}
	}
	return data, end
}
