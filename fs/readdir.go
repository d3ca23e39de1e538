package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// OpenDir answers OPENDIR. The position of a reader is the cookie alone, so there is nothing to keep.
func (s *Server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	s.counts.add(in.Opcode)
	return fuse.OK
}

// ReleaseDir answers RELEASEDIR.
func (s *Server) ReleaseDir(in *fuse.ReleaseIn) { s.counts.add(in.Opcode) }

// FsyncDir answers FSYNCDIR: all names are durable.
func (s *Server) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	s.counts.add(in.Opcode)
	return s.durability(s.commit.Fsync(in.NodeId, in.FsyncFlags&fsyncDataOnly != 0))
}

// ReadDir answers READDIR with the entries after the cookie in.Offset, as many as fit.
func (s *Server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, list *fuse.DirEntryList) fuse.Status {
	s.counts.add(in.Opcode)
	return s.status(s.vol.ReadDir(in.NodeId, in.Offset, func(e volume.DirEnt) bool {
		return list.AddDirEntry(dirEntry(&e))
	}))
}

// ReadDirPlus answers READDIRPLUS: entries with attributes, each but "." and ".." a reference as by LOOKUP.
//
// The attributes are filled in after the walk, because the volume is locked during it. The kernel holds the lock of the
// directory, so no entry can go in between. An entry whose attributes cannot be read keeps node id 0: the kernel shows the
// name, and a LOOKUP of it will say what is wrong.
func (s *Server) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, list *fuse.DirEntryList) fuse.Status {
	s.counts.add(in.Opcode)
	type slot struct {
		ino volume.Ino
		out *fuse.EntryOut // stands in the reply buffer
	}
	var slots []slot
	err := s.vol.ReadDir(in.NodeId, in.Offset, func(e volume.DirEnt) bool {
		out := list.AddDirLookupEntry(dirEntry(&e))
		if out != nil && e.Name != "." && e.Name != ".." {
			slots = append(slots, slot{e.Ino, out})
		}
		return out != nil
	})
	if err != nil {
		return s.status(err)
	}
	for _, sl := range slots {
		if a, err := s.vol.GetAttr(sl.ino); err == nil {
			s.entry(sl.out, &a)
		}
	}
	return fuse.OK
}

func dirEntry(e *volume.DirEnt) fuse.DirEntry {
	return fuse.DirEntry{Name: e.Name, Mode: e.Mode, Ino: e.Ino, Off: e.Cookie}
}
