package fs

import (
	"encoding/binary"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

const (
	// flagsSize is the size in bytes of the flags in an IOCTL request or reply. The numbers of the two ioctls say 8, and
	// Linux has passed 4 ever since (ioctl_iflags(2)).
	flagsSize = 4

	// fsGetXattr is FS_IOC_FSGETXATTR. The reply is a struct fsxattr (linux/fs.h), whose first word has the flags under
	// other values.
	fsGetXattr      = 0x801c581f
	fsXattrSize     = 28
	xflagsImmutable = 0x8
	xflagsAppend    = 0x10
)

// Ioctl answers IOCTL: the flags of an inode, and nothing else. ENOTTY, not ENOSYS, for what it does not know: see ioctl(2).
// The kernel has checked that the caller owns the inode, and CAP_LINUX_IMMUTABLE; for that it asks with FS_IOC_FSGETXATTR
// before it sets flags.
func (s *Server) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, arg []byte, _ *fuse.IoctlOut, reply []byte) fuse.Status {
	s.counts.add(in.Opcode)
	switch {
	case in.Cmd == unix.FS_IOC_GETFLAGS && len(reply) >= flagsSize:
		a, err := s.vol.GetAttr(in.NodeId)
		binary.NativeEndian.PutUint32(reply, a.Flags)
		return s.status(err)
	case in.Cmd == fsGetXattr && len(reply) >= fsXattrSize:
		a, err := s.vol.GetAttr(in.NodeId)
		clear(reply)
		binary.NativeEndian.PutUint32(reply, xflags(a.Flags))
		return s.status(err)
	case in.Cmd == unix.FS_IOC_SETFLAGS && len(arg) >= flagsSize:
		return s.setFlags(in.NodeId, binary.NativeEndian.Uint32(arg))
	}
	return enotty
}

func xflags(flags uint32) (x uint32) {
	if flags&volume.FlagImmutable != 0 {
		x |= xflagsImmutable
	}
	if flags&volume.FlagAppend != 0 {
		x |= xflagsAppend
	}
	return x
}

// setFlags first takes over what was stored through mappings so far: it must not come too late. The kernel learns of the new
// change time.
func (s *Server) setFlags(ino volume.Ino, flags uint32) fuse.Status {
	const toTheEnd = 0
	s.fetchStores(ino, 0, toTheEnd)
	err := s.change(func() error { return s.vol.SetFlags(ino, flags) })
	s.forgetMode(ino)
	return s.changed(ino, err)
}

// mayOpen tells whether the flags of an inode allow to open it like that. The kernel does not know of them.
func (s *Server) mayOpen(ino volume.Ino, flags uint32) error {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return nil
	}
	a, err := s.vol.GetAttr(ino)
	switch {
	case err != nil:
		return err
	case a.Flags&volume.FlagImmutable != 0, a.Flags&volume.FlagAppend != 0 && flags&syscall.O_APPEND == 0:
		return syscall.EPERM
	}
	return nil
}
