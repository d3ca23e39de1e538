package fs

import (
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Of the extended attributes only user.* are kept. security.* are never there, and the answer costs no look into the tree:
// the kernel asks for security.capability at each execve. Everything else is refused, POSIX ACLs included, so that tools
// that copy them can tell.
const (
	xattrUser     = "user."
	xattrSecurity = "security."
)

// GetXAttr answers GETXATTR. An empty dest asks for the size.
func (s *Server) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	switch {
	case strings.HasPrefix(name, xattrUser):
		n, err := s.vol.GetXattr(in.NodeId, name, dest)
		return uint32(n), s.status(err)
	case strings.HasPrefix(name, xattrSecurity):
		return 0, fuse.ENODATA
	}
	return 0, eopnotsupp
}

// ListXAttr answers LISTXATTR: names, each followed by a zero byte. An empty dest asks for the size.
func (s *Server) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	s.counts.add(in.Opcode)
	n, err := s.vol.ListXattr(in.NodeId, dest)
	return uint32(n), s.status(err)
}

// SetXAttr answers SETXATTR.
func (s *Server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	s.counts.add(in.Opcode)
	if !strings.HasPrefix(name, xattrUser) {
		return eopnotsupp
	}
	return s.changed(in.NodeId, s.change(func() error { return s.vol.SetXattr(in.NodeId, name, value, in.Flags) }))
}

// RemoveXAttr answers REMOVEXATTR.
func (s *Server) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	s.counts.add(in.Opcode)
	if !strings.HasPrefix(name, xattrUser) {
		return eopnotsupp
	}
	return s.changed(in.NodeId, s.change(func() error { return s.vol.RemoveXattr(in.NodeId, name) }))
}
