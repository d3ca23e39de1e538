package fs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Lookup answers LOOKUP. A name that does not exist is cached too: every create passes through the same kernel.
func (s *Server) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.counts.add(in.Opcode)
	if name == "." {
		return s.lookupSelf(in.NodeId, out)
	}
	a, err := s.vol.Lookup(in.NodeId, name)
	if err == syscall.ENOENT {
		out.NodeId, out.EntryValid = 0, validFor
		return fuse.OK
	}
	if err != nil {
		return s.status(err)
	}
	s.entry(out, &a)
	return fuse.OK
}

// lookupSelf finds an inode of any type by its node id: open_by_handle_at(2) and NFS export. No directory lock protects
// the inode here, so the reference is taken before the look.
func (s *Server) lookupSelf(ino volume.Ino, out *fuse.EntryOut) fuse.Status {
	s.vol.Hold(ino)
	defer s.vol.Forget(ino, 1)
	a, err := s.vol.GetAttr(ino)
	if err == nil && a.Nlink == 0 {
		err = syscall.ESTALE
	}
	if err != nil {
		return s.status(err)
	}
	s.entry(out, &a)
	return fuse.OK
}

// Forget takes back n references of the kernel. An inode without names is reclaimed with its last one.
func (s *Server) Forget(ino, n uint64) {
	s.counts.add(uint32(OpForget))
	s.vol.Forget(ino, n)
}

// newInode creates an inode with a name and fills the reply.
func (s *Server) newInode(in *fuse.InHeader, name string, m volume.Make, out *fuse.EntryOut) fuse.Status {
	s.counts.add(in.Opcode)
	m.UID, m.GID = in.Uid, in.Gid
	var a volume.Attr
	err := s.change(func() (err error) {
		a, err = s.vol.Make(in.NodeId, name, m)
		return err
	})
	if st := s.named(in.NodeId, err); !st.Ok() {
		return st
	}
	s.entry(out, &a)
	return fuse.OK
}

// named ends a change of a name in dir: with sync or dirsync the change is made durable before the reply.
func (s *Server) named(dir volume.Ino, err error) fuse.Status {
	if err != nil {
		return s.status(err)
	}
	if !s.syncNames {
		return fuse.OK
	}
	return s.durability(s.commit.Fsync(dir, false))
}

// Create answers CREATE. The umask is the volume's work: a default ACL takes its place.
func (s *Server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	m := volume.Make{Mode: syscall.S_IFREG | in.Mode&07777, Umask: in.Umask}
	st := s.newInode(&in.InHeader, name, m, &out.EntryOut)
	if st.Ok() {
		s.openFile(in.Flags, &out.OpenOut)
	}
	return st
}

// Tmpfile answers TMPFILE: a file without a name. There is no name to make durable; its content is, with a drain of it. That
// only a file which never had a name gets one by linkat(2), and none that was opened with O_EXCL, the kernel sees to.
func (s *Server) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	s.counts.add(in.Opcode)
	m := volume.Make{Mode: syscall.S_IFREG | in.Mode&07777, Umask: in.Umask, UID: in.Uid, GID: in.Gid}
	var a volume.Attr
	err := s.change(func() (err error) {
		a, err = s.vol.Tmpfile(in.NodeId, m)
		return err
	})
	if err != nil {
		return s.status(err)
	}
	fillEntry(&out.EntryOut, &a)
	s.openFile(in.Flags, &out.OpenOut)
	return fuse.OK
}

// Mkdir answers MKDIR.
func (s *Server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.newInode(&in.InHeader, name, volume.Make{Mode: syscall.S_IFDIR | in.Mode&07777, Umask: in.Umask}, out)
}

// Mknod answers MKNOD: regular files, devices, pipes and sockets.
func (s *Server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.newInode(&in.InHeader, name, volume.Make{Mode: in.Mode, Umask: in.Umask, Rdev: in.Rdev}, out)
}

// Symlink answers SYMLINK.
func (s *Server) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return s.newInode(in, name, volume.Make{Mode: syscall.S_IFLNK | 0777, Target: target}, out)
}

// Readlink answers READLINK.
func (s *Server) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	s.counts.add(in.Opcode)
	target, err := s.vol.Readlink(in.NodeId)
	return []byte(target), s.status(err)
}

// Link answers LINK: a further name for an inode.
func (s *Server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	s.counts.add(in.Opcode)
	var a volume.Attr
	err := s.change(func() (err error) {
		a, err = s.vol.Link(in.Oldnodeid, in.NodeId, name)
		return err
	})
	if st := s.named(in.NodeId, err); !st.Ok() {
		return st
	}
	s.entry(out, &a)
	return fuse.OK
}

// Unlink answers UNLINK.
func (s *Server) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	s.counts.add(in.Opcode)
	return s.named(in.NodeId, s.change(func() error { return s.vol.Unlink(in.NodeId, name) }))
}

// Rmdir answers RMDIR.
func (s *Server) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	s.counts.add(in.Opcode)
	return s.named(in.NodeId, s.change(func() error { return s.vol.Rmdir(in.NodeId, name) }))
}

// Rename answers RENAME and RENAME2.
func (s *Server) Rename(_ <-chan struct{}, in *fuse.RenameIn, name, newName string) fuse.Status {
	s.counts.add(in.Opcode)
	return s.named(in.Newdir, s.change(func() error {
		if in.Flags&unix.RENAME_WHITEOUT != 0 {
			return s.vol.RenameWhiteout(in.NodeId, name, in.Newdir, newName, in.Flags&^unix.RENAME_WHITEOUT, in.Uid, in.Gid)
		}
		return s.vol.Rename(in.NodeId, name, in.Newdir, newName, in.Flags)
	}))
}
