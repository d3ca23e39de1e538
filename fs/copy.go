package fs

import (
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	// copyChunk is how many bytes are under way at a time: they stay in a processor's cache between load and store.
	copyChunk = 256 << 10
	// maxCopy bounds one request, and so the time that the kernel holds the lock of the destination. The program goes on with the
	// rest.
	maxCopy = 64 << 20
)

var (
	copyBuffers = sync.Pool{New: func() any { return new([copyChunk]byte) }}
	pageSize    = uint64(os.Getpagesize())
)

// CopyFileRange answers COPY_FILE_RANGE, which copies from pool to pool; without it the kernel would read and write through its
// page cache.
//
// The kernel has written back what is dirty in both ranges, and holds the lock of the destination. After the reply it drops the
// destination's pages, whole ones, together with what was meanwhile stored through a mapping around the range. So only whole
// pages are copied here, and what reaches the end of the file. For the rest the answer is EOPNOTSUPP, upon which the kernel
// copies itself, this time.
func (s *Server) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	to, err := s.vol.GetAttr(in.NodeIdOut)
	if err != nil {
		return 0, s.status(err)
	}
	n := wholePages(in.OffOut, min(in.Len, maxCopy), to.Size)
	if n == 0 {
		return 0, eopnotsupp
	}
	// As with FALLOCATE, user 0 stands for CAP_FSETID.
	kill := in.Uid != 0 && s.hasPriv(in.NodeIdOut)
	done, err := s.copy(in, n, kill)
	if done == 0 && err != nil {
		return 0, s.status(err)
	}
	if kill {
		s.forgetMode(in.NodeIdOut)
	}
	if in.FhOut == handleDirect || s.syncAttrs { // no FSYNC follows
		if err := s.commit.Fsync(in.NodeIdOut, true); err != nil {
			return 0, s.durability(err)
		}
	}
	return uint32(done), fuse.OK
}

// wholePages is how many of the n bytes at off can be replaced without touching a page that holds others of a file of that size.
func wholePages(off, n, size uint64) uint64 {
	switch {
	case off%pageSize != 0:
		return 0
	case off >= size || n >= size-off:
		return n
	}
	return n - n%pageSize
}

// copy copies up to n bytes, fewer at the end of the source or when an error stops it on the way.
func (s *Server) copy(in *fuse.CopyFileRangeIn, n uint64, killPriv bool) (done uint64, err error) {
	buf := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(buf)
	for done < n {
		got, err := s.vol.Read(in.NodeId, in.OffIn+done, buf[:min(copyChunk, n-done)])
		if err != nil || got == 0 {
			return done, err
		}
		stored, err := s.store(in.NodeIdOut, in.OffOut+done, buf[:got], killPriv)
		done += uint64(stored)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
