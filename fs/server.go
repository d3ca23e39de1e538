package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Committer makes changes of the volume durable on every attached copy. Its methods are called from many goroutines, wait
// no longer than the committer's own deadline, and are never interrupted.
type Committer interface {
	// Fsync returns when the content of ino and all earlier changes of names and attributes are durable. With dataOnly,
	// times may be left out (fdatasync(2)).
	Fsync(ino volume.Ino, dataOnly bool) error
	// SyncAll returns when everything is durable.
	SyncAll() error
	// Checkpoint frees the space that deferred frees hold. The server calls it when the volume answers ErrShort.
	Checkpoint() error
	// Err is the sticky failure, nil while healthy.
	Err() error
}

// Config is what a mount needs. The caller keeps Volume and Committer until the mount has ended.
type Config struct {
	Volume    *volume.Volume
	Committer Committer
	Options   Options
	Log       logrus.FieldLogger // nil: the standard logger
	Debug     bool               // log every request
}

// Server answers the requests of one mount. It holds no lock of its own.
type Server struct {
	fuse.RawFileSystem // ENOSYS for what is left to the kernel; see the package documentation

	vol    *volume.Volume
	commit Committer
	log    limitedLog
	counts counters

	syncNames bool // drain after each change of a name
	syncAttrs bool // drain after each change of attributes
	allReads  bool // no read is answered by the page cache
	kernel    *fuse.Server

	xattrFlags bool // SETXATTR has its second word of flags
}

// NewServer returns a server that is not mounted. Mount does this and the rest; it is exported for other transports.
func NewServer(cfg Config) *Server {
	log := cfg.Log
	if log == nil {
		log = logrus.StandardLogger()
	}
	return &Server{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		vol:           cfg.Volume,
		commit:        cfg.Committer,
		log:           limitedLog{to: log},
		syncNames:     cfg.Options.Sync || cfg.Options.DirSync,
		syncAttrs:     cfg.Options.Sync,
		allReads:      cfg.Options.StrictAtime,
	}
}

// String names the file system to go-fuse.
func (s *Server) String() string { return Type }

// Init is called by go-fuse once the kernel has answered, before the first request.
func (s *Server) Init(kernel *fuse.Server) {
	s.kernel = kernel
	s.xattrFlags = kernel.KernelSettings().Flags64()&fuse.CAP_SETXATTR_EXT != 0
}

// StatFs shows blocks of 4096 bytes. Inodes are made from free blocks, so at least one inode per free block is left.
func (s *Server) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s.counts.add(in.Opcode)
	st := s.vol.StatFS()
	out.Bsize, out.Frsize = blockSize, blockSize
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Free, st.Avail
	out.Files, out.Ffree = st.Inodes+st.Avail, st.Avail
	out.NameLen = volume.MaxName
	return fuse.OK
}
