package fs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// handle is the number that the kernel repeats in each request on an open file. It is not an index of anything.
type handle = uint64

const (
	handleCached handle = 0
	handleDirect handle = 1 // opened with FOPEN_DIRECT_IO: no FSYNC follows an O_DSYNC write
)

// fsyncDataOnly is FUSE_FSYNC_FDATASYNC of FsyncIn.FsyncFlags.
const fsyncDataOnly = 1

// openFile decides how the kernel treats an open file.
//
// A handle for O_DSYNC or O_SYNC writes is direct I/O, so that a write is one request, and so is each handle where all reads
// count. Others keep the page cache. Shared mappings work on both (CAP_DIRECT_IO_ALLOW_MMAP). A handle that cannot write has
// nothing to report at close.
func (s *Server) openFile(flags uint32, out *fuse.OpenOut) {
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	readOnly := flags&syscall.O_ACCMODE == syscall.O_RDONLY
	if readOnly {
		out.OpenFlags |= fuse.FOPEN_NOFLUSH
	}
	if s.allReads || !readOnly && flags&syscall.O_DSYNC != 0 {
		out.Fh = handleDirect
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	}
}

// Open answers OPEN. It does not truncate: without ATOMIC_O_TRUNC the kernel sends a SETATTR for O_TRUNC.
func (s *Server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.counts.add(in.Opcode)
	if err := s.mayOpen(in.NodeId, in.Flags); err != nil {
		return s.status(err)
	}
	s.openFile(in.Flags, out)
	return fuse.OK
}

// Release answers RELEASE: the last descriptor of an open file is gone.
func (s *Server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { s.counts.add(in.Opcode) }

// Read answers READ.
func (s *Server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.counts.add(in.Opcode)
	if len(buf) >= lendMin {
		if l := s.lend(in, len(buf)); l != nil {
			return l, fuse.OK
		}
	}
	n, err := s.vol.Read(in.NodeId, in.Offset, buf)
	if err != nil {
		return nil, s.status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write answers WRITE. It allocates nothing.
func (s *Server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	// The kernel sets the flag for every unprivileged writer, whether there is anything to clear or not.
	kill := in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 && s.hasPriv(in.NodeId)
	dsync := in.Flags&syscall.O_DSYNC != 0
	var n int
	err := s.dropCapability(in)
	if err == nil {
		n, err = s.store(in.NodeId, in.Offset, data, kill)
	}
	if n == 0 && err != nil {
		return 0, s.writeStatus(err, dsync || in.WriteFlags&fuse.WRITE_CACHE != 0)
	}
	if kill {
		s.forgetMode(in.NodeId)
	}
	if dsync && in.Fh == handleDirect {
		if err := s.commit.Fsync(in.NodeId, true); err != nil {
			return 0, s.durability(err)
		}
	}
	return uint32(n), fuse.OK
}

// dropCapability takes the capabilities of a program away from a file before a direct write to it. Before any other change of
// content the kernel does so itself.
func (s *Server) dropCapability(in *fuse.WriteIn) error {
	const name = "security.capability"
	if in.Fh != handleDirect && in.Flags&syscall.O_DIRECT == 0 {
		return nil
	}
	if _, err := s.vol.GetXattr(in.NodeId, name, nil); err != nil {
		return nil // ENODATA, or what the write will meet as well
	}
	return s.change(func() error { return s.vol.RemoveXattr(in.NodeId, name) })
}

// store writes all of data unless an error stops it on the way. The volume may take a part when space runs out, and the rest
// after a checkpoint: a program that does not expect short writes sees one only if the pool is full.
func (s *Server) store(ino volume.Ino, off uint64, data []byte, killPriv bool) (n int, err error) {
	for n < len(data) && err == nil {
		err = s.change(func() error {
			k, err := s.vol.Write(ino, off+uint64(n), data[n:], killPriv)
			n += k
			return err
		})
	}
	return n, err
}

// writeStatus maps an error of a write. A write that is part of a promise fails on a stopped volume as the promise does:
// an O_DSYNC write, and the write-back of a mapping, whose error the kernel keeps for the next msync or fsync.
func (s *Server) writeStatus(err error, promised bool) fuse.Status {
	if promised && errors.Is(err, volume.ErrStopped) {
		return s.durability(err)
	}
	return s.status(err)
}

// Fsync answers FSYNC: fsync, fdatasync, msync, and the second half of an O_DSYNC write through the page cache. It allocates
// nothing.
func (s *Server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	s.counts.add(in.Opcode)
	return s.durability(s.commit.Fsync(in.NodeId, in.FsyncFlags&fsyncDataOnly != 0))
}

// Flush answers FLUSH, sent at each close of a descriptor that can write. A close promises no durability, but it must not
// stay silent about content that can no longer become durable.
func (s *Server) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	s.counts.add(in.Opcode)
	err := s.commit.Err()
	if err == nil || !s.vol.Dirty(in.NodeId) {
		return fuse.OK
	}
	return s.durability(err)
}

// Fallocate answers FALLOCATE. The request has no flag for set-user-id, so user 0 stands for CAP_FSETID.
func (s *Server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	s.counts.add(in.Opcode)
	err := s.change(func() error { return s.fallocate(in) })
	if err == nil && in.Uid != 0 && s.hasPriv(in.NodeId) {
		err = s.killPriv(in.NodeId)
	}
	return s.changed(in.NodeId, err)
}

func (s *Server) fallocate(in *fuse.FallocateIn) error {
	switch in.Mode {
	case 0:
		return s.vol.Fallocate(in.NodeId, in.Offset, in.Length)
	case unix.FALLOC_FL_KEEP_SIZE:
		return s.vol.Preallocate(in.NodeId, in.Offset, in.Length)
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
		return s.vol.PunchHole(in.NodeId, in.Offset, in.Length)
	case unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		return s.vol.ZeroRange(in.NodeId, in.Offset, in.Length, in.Mode&unix.FALLOC_FL_KEEP_SIZE != 0)
	}
	return syscall.EOPNOTSUPP
}

func (s *Server) killPriv(ino volume.Ino) error {
	err := s.change(func() error {
		_, err := s.vol.SetAttr(ino, volume.SetAttr{Valid: volume.KillPriv})
		return err
	})
	if err == nil {
		s.forgetMode(ino)
	}
	return err
}
