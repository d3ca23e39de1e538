package inspect

import (
	"errors"
	"fmt"
	"io"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// pieceLen is how much of a file is read at a time.
const pieceLen = 1 << 20

// Cat writes the content of a file, holes as zeros.
func Cat(v *volume.Volume, path string, out io.Writer) error {
	a, err := Find(v, path)
	if err != nil {
		return err
	}
	buf := make([]byte, pieceLen)
	for off := uint64(0); off < a.Size || off == 0; {
		n, err := v.Read(a.Ino, off, buf)
		if err != nil {
			return fmt.Errorf("%s: at offset %d: %w", path, off, err)
		}
		if n == 0 {
			return nil
		}
		if _, err := out.Write(buf[:n]); err != nil {
			return err
		}
		off += uint64(n)
	}
	return nil
}

// copyContent writes the data of a file to the same offsets of out, and leaves the holes out. Pieces that cannot be read are left
// out too, and are part of the error.
func copyContent(v *volume.Volume, ino volume.Ino, size uint64, out io.WriterAt, buf []byte) error {
	var errs []error
	for off := uint64(0); off < size; {
		data, end, err := v.Span(ino, off)
		if err != nil { // what lies here is not known: try each piece by itself
			errs = append(errs, err)
			data, end = true, min(size, off+uint64(len(buf)))
		}
		if end <= off {
			return errors.Join(append(errs, fmt.Errorf("at offset %d: found an end of data at %d", off, end))...)
		}
		for ; data && off < end; off += uint64(len(buf)) {
			piece := buf[:min(uint64(len(buf)), end-off)]
			n, err := v.Read(ino, off, piece)
			if err != nil {
				errs = append(errs, fmt.Errorf("%d bytes at offset %d are left out: %w", len(piece), off, err))
				continue
			}
			if _, err := out.WriteAt(piece[:n], int64(off)); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
		off = end
	}
	return errors.Join(errs...)
}
