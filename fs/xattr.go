package fs

import (
	"bytes"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Attributes of the name spaces user, trusted and security are kept alike, and ACLs with their rules; the volume refuses all
// others. The kernel checks who may read and write them. It does not do so for the list of names.

// GetXAttr answers GETXATTR. An empty dest asks for the size.
func (s *Server) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	n, err := s.vol.GetXattr(in.NodeId, name, dest)
	return uint32(n), s.status(err)
}

// ListXAttr answers LISTXATTR: names, each followed by a zero byte. An empty dest asks for the size. Names of trusted
// attributes are for CAP_SYS_ADMIN; the request has no capabilities, so user 0 stands for it.
func (s *Server) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	if in.Uid == 0 {
		n, err := s.vol.ListXattr(in.NodeId, dest)
		return uint32(n), s.status(err)
	}
	names, err := s.untrustedNames(in.NodeId)
	if err == nil && len(dest) > 0 && len(names) > len(dest) {
		return 0, fuse.ERANGE
	}
	copy(dest, names)
	return uint32(len(names)), s.status(err)
}

// untrustedNames is the list of names without those of trusted attributes.
func (s *Server) untrustedNames(ino volume.Ino) ([]byte, error) {
	n, err := s.vol.ListXattr(ino, nil)
	if n == 0 || err != nil {
		return nil, err
	}
	all := make([]byte, n)
	if n, err = s.vol.ListXattr(ino, all); err != nil {
		return nil, err
	}
	var names []byte
	for name := range bytes.SplitAfterSeq(all[:n], []byte{0}) {
		if !bytes.HasPrefix(name, []byte("trusted.")) {
			names = append(names, name...)
		}
	}
	return names, nil
}

// SetXAttr answers SETXATTR.
func (s *Server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	s.counts.add(in.Opcode)
	flags := in.Flags
	if s.xattrFlags && in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
		flags |= volume.XattrKillSGID
	}
	return s.changed(in.NodeId, s.change(func() error { return s.vol.SetXattr(in.NodeId, name, value, flags) }))
}

// RemoveXAttr answers REMOVEXATTR.
func (s *Server) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	s.counts.add(in.Opcode)
	return s.changed(in.NodeId, s.change(func() error { return s.vol.RemoveXattr(in.NodeId, name) }))
}
