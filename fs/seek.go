package fs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Lseek answers LSEEK, sent for SEEK_DATA and SEEK_HOLE alone. The kernel holds the lock of the inode, so that nobody writes
// but through a mapping.
func (s *Server) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	s.counts.add(in.Opcode)
	if in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE {
		return fuse.EINVAL
	}
	var err error
	out.Offset, err = s.seek(in.NodeId, in.Offset, in.Whence == unix.SEEK_DATA)
	return s.status(err)
}

// seek finds the first byte from off on that is data or not. The end of a file counts as a hole.
func (s *Server) seek(ino volume.Ino, off uint64, wantData bool) (uint64, error) {
	for first := true; ; first = false {
		data, end, err := s.vol.Span(ino, off)
		if err == nil && !data {
			s.fetchStores(ino, off, end-off)
			data, end, err = s.vol.Span(ino, off)
		}
		if err == syscall.ENXIO && !wantData && !first {
			return off, nil
		}
		if err != nil || data == wantData {
			return off, err
		}
		off = end
	}
}

// fetchStores makes the kernel give up its pages of a hole. It writes back those that were stored to through a mapping,
// which the server has not heard of: they are data.
func (s *Server) fetchStores(ino volume.Ino, off, n uint64) {
	if s.kernel != nil {
		s.kernel.InodeNotify(ino, int64(off), int64(n))
	}
}
