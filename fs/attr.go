package fs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

const (
	blockSize = 4096
	// validFor is how long the kernel may use names and attributes, in seconds. It is the only client, so they never
	// become wrong; the limit only bounds the damage of a mistake.
	validFor   = 3600
	generation = 1
	privBits   = syscall.S_ISUID | syscall.S_ISGID
)

func fillAttr(out *fuse.Attr, a *volume.Attr) {
	*out = fuse.Attr{
		Ino: a.Ino, Size: a.Size, Blocks: a.Blocks,
		Atime: uint64(a.Atime.Sec), Atimensec: a.Atime.Nsec,
		Mtime: uint64(a.Mtime.Sec), Mtimensec: a.Mtime.Nsec,
		Ctime: uint64(a.Ctime.Sec), Ctimensec: a.Ctime.Nsec,
		Mode: a.Mode, Nlink: a.Nlink, Owner: fuse.Owner{Uid: a.UID, Gid: a.GID},
		Rdev: a.Rdev, Blksize: blockSize,
	}
}

// entry fills a reply that gives the kernel one more reference to an inode, and counts it.
//
// The inode cannot be reclaimed between the volume's answer and Hold: that takes removing the name just answered, and the
// kernel holds the lock of its directory until the reply.
func (s *Server) entry(out *fuse.EntryOut, a *volume.Attr) {
	s.vol.Hold(a.Ino)
	fillEntry(out, a)
}

// fillEntry fills the reply for a reference that is counted already.
func fillEntry(out *fuse.EntryOut, a *volume.Attr) {
	out.NodeId, out.Generation = a.Ino, generation
	out.EntryValid, out.AttrValid = validFor, validFor
	fillAttr(&out.Attr, a)
}

// GetAttr answers GETATTR.
func (s *Server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.counts.add(in.Opcode)
	a, err := s.vol.GetAttr(in.NodeId)
	if err != nil {
		return s.status(err)
	}
	out.AttrValid = validFor
	fillAttr(&out.Attr, &a)
	return fuse.OK
}

// Statx answers STATX, which the kernel sends where the birth time is asked for.
func (s *Server) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	s.counts.add(in.Opcode)
	a, err := s.vol.GetAttr(in.NodeId)
	if err != nil {
		return s.status(err)
	}
	out.AttrValid = validFor
	x := &out.Statx
	x.Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	x.Blksize, x.Nlink = blockSize, a.Nlink
	x.Uid, x.Gid, x.Mode = a.UID, a.GID, uint16(a.Mode)
	x.Ino, x.Size, x.Blocks = a.Ino, a.Size, a.Blocks
	x.Atime, x.Btime = sxTime(a.Atime), sxTime(a.Btime)
	x.Ctime, x.Mtime = sxTime(a.Ctime), sxTime(a.Mtime)
	x.RdevMajor, x.RdevMinor = rdevMajor(a.Rdev), rdevMinor(a.Rdev)
	return fuse.OK
}

func sxTime(t volume.Time) fuse.SxTime { return fuse.SxTime{Sec: uint64(t.Sec), Nsec: t.Nsec} }

// FUSE carries device numbers in the kernel's 32-bit form: minor bits 0..7, major bits 8..19, minor bits 20..31.
func rdevMajor(dev uint32) uint32 { return dev >> 8 & 0xfff }
func rdevMinor(dev uint32) uint32 { return dev&0xff | dev>>12&0xfff00 }

// SetAttr answers SETATTR: chmod, chown, truncate and utimensat. The kernel has checked the permissions.
func (s *Server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.counts.add(in.Opcode)
	want := setAttr(in)
	var a volume.Attr
	err := s.change(func() (err error) {
		a, err = s.vol.SetAttr(in.NodeId, want)
		return err
	})
	if st := s.changed(in.NodeId, err); !st.Ok() {
		return st
	}
	out.AttrValid = validFor
	fillAttr(&out.Attr, &a)
	return fuse.OK
}

// changed ends a change of ino's attributes: with sync it is made durable before the reply.
func (s *Server) changed(ino volume.Ino, err error) fuse.Status {
	if err != nil {
		return s.status(err)
	}
	if !s.syncAttrs {
		return fuse.OK
	}
	return s.durability(s.commit.Fsync(ino, false))
}

// setAttr translates a request. With HANDLE_KILLPRIV_V2 clearing set-user-id and set-group-id is the server's work; the kernel
// says when: at each chown of a file, and at a truncation by an unprivileged user.
func setAttr(in *fuse.SetAttrIn) volume.SetAttr {
	var valid uint32
	for _, v := range [...]struct{ fuse, volume uint32 }{
		{fuse.FATTR_MODE, volume.SetMode},
		{fuse.FATTR_UID, volume.SetUID},
		{fuse.FATTR_GID, volume.SetGID},
		{fuse.FATTR_SIZE, volume.SetSize},
		{fuse.FATTR_ATIME, volume.SetAtime},
		{fuse.FATTR_MTIME, volume.SetMtime},
		{fuse.FATTR_CTIME, volume.SetCtime},
		{fuse.FATTR_ATIME_NOW, volume.SetAtimeNow},
		{fuse.FATTR_MTIME_NOW, volume.SetMtimeNow},
		{fuse.FATTR_KILL_SUIDGID, volume.KillPriv},
	} {
		if in.Valid&v.fuse != 0 {
			valid |= v.volume
		}
	}
	return volume.SetAttr{
		Valid: valid, Mode: in.Mode & 07777, UID: in.Uid, GID: in.Gid, Size: in.Size,
		Atime: volume.Time{Sec: int64(in.Atime), Nsec: in.Atimensec},
		Mtime: volume.Time{Sec: int64(in.Mtime), Nsec: in.Mtimensec},
		Ctime: volume.Time{Sec: int64(in.Ctime), Nsec: in.Ctimensec},
	}
}

// hasPriv reports whether ino is a file with set-user-id or set-group-id, which an unprivileged change of content clears.
func (s *Server) hasPriv(ino volume.Ino) bool {
	a, err := s.vol.GetAttr(ino)
	return err == nil && a.Mode&syscall.S_IFMT == syscall.S_IFREG && a.Mode&privBits != 0
}

// forgetMode makes the kernel ask for the attributes of ino anew. After a WRITE or FALLOCATE it drops size and times by
// itself but would go on to use the old mode, and execve would honour a bit that has been cleared.
func (s *Server) forgetMode(ino volume.Ino) {
	const attributesOnly = -1
	if s.kernel != nil {
		s.kernel.InodeNotify(ino, attributesOnly, 0)
	}
}
