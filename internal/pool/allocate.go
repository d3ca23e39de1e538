package pool

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DiskFullError: the file system has no room for a part. It wraps ENOSPC.
type DiskFullError struct {
	Path                string
	Required, Available uint64 // bytes
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("the file system of %s is too full: %d bytes are required, %d are available", e.Path, e.Required, e.Available)
}

func (e *DiskFullError) Unwrap() error { return unix.ENOSPC }

// allocate gives f its size, and with it the blocks from at on unless they are to be sparse.
func allocate(f *os.File, at, size uint64, sparse bool) error {
	if sparse {
		return f.Truncate(int64(size))
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("file system of %s: %w", f.Name(), err)
	}
	full := &DiskFullError{Path: f.Name(), Required: size - at, Available: st.Bavail * uint64(st.Bsize)}
	// What cannot fit is not tried: others would find the file system full meanwhile. A tmpfs without a limit has no blocks.
	if st.Blocks > 0 && st.Bfree < (size-at)/uint64(st.Bsize) {
		return full
	}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(f.Fd()), 0, int64(at), int64(size-at))
	}
	switch {
	case errors.Is(err, unix.ENOSPC):
		return full
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the file system of %s cannot preallocate: use another one, or create the pool sparse "+
			"and keep %d bytes free there", f.Name(), size-at)
	case err != nil:
		return fmt.Errorf("allocate %d bytes for %s: %w", size-at, f.Name(), err)
	}
	return nil
}
