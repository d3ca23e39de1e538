package volume

import (
	"errors"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Ino is an inode number. It doubles as the FUSE node id.
type Ino = uint64

// Root is the root directory.
const Root Ino = 1

// MaxName is the longest name in bytes; MaxSymlink the longest symlink target.
const (
	MaxName    = 255
	MaxSymlink = 4095
	MaxLink    = 65000
	MaxSize    = layout.MaxFile
)

// Errors that callers decide by. All others are syscall.Errno values (POSIX conditions) or wrap *pmem.FaultError.
var (
	// ErrShort: run a checkpoint and try again; see the package documentation.
	ErrShort = errors.New("volume: short of space until a checkpoint")
	// ErrStopped: the volume takes no more changes; Volume.Stop gave the cause, which is wrapped too.
	ErrStopped = errors.New("volume: stopped: changes are refused until the pool is mounted anew")
	// ErrCorrupt is wrapped by everything that finds wrong bytes in a pool; the text names offset, expected and found.
	ErrCorrupt = layout.ErrCorrupt
)

// Time is a point in time as an inode stores it.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Attr is what stat(2) shows, and the flags of the inode. Blocks counts 512-byte units.
type Attr struct {
	Ino                        Ino
	Mode, Nlink, UID, GID      uint32
	Rdev, Flags                uint32
	Size, Blocks               uint64
	Atime, Mtime, Ctime, Btime Time
}

// Valid bits of SetAttr.
const (
	SetMode = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetCtime
	SetAtimeNow
	SetMtimeNow
	// KillPriv clears set-user-id, and set-group-id if group-executable, as POSIX asks for with a change of size or
	// owner.
	KillPriv
)

// SetAttr is a change of attributes; only the fields named by Valid count.
type SetAttr struct {
	Valid               uint32
	Mode, UID, GID      uint32
	Size                uint64
	Atime, Mtime, Ctime Time
}

// Make describes a new inode. Mode carries the type. UID and GID are the caller's; a set-group-id parent overrides GID.
// Umask is taken off the permission bits, unless the parent has a default ACL.
type Make struct {
	Mode, UID, GID, Rdev uint32
	Umask                uint32
	Target               string // symlinks only
}

// DirEnt is one entry of a directory. Cookie is where the next entry starts.
type DirEnt struct {
	Ino    Ino
	Mode   uint32 // type bits only
	Name   string
	Cookie uint64
}

// Stat is what statfs(2) shows, in blocks of 4096 bytes.
type Stat struct{ Blocks, Free, Avail, Inodes uint64 }

// Params are chosen by mkpool and kept in the superblock. Zero means the default for the size of the pool.
type Params struct {
	PoolUUID [16]byte
	HashKey  [16]byte
	NodeSize uint32 // 1024, 2048 or 4096 (default)
	Chunk    uint32 // bytes of a node chunk, default 2 MiB, smaller for pools below 256 MiB
	LogLen   uint64 // bytes of the log ring, default 64 MiB, at most 1/8 of the pool
	Reserve  uint32 // node chunks held back, default max(64 MiB, 2 %) of the pool, at most 1/8 of it
	UID, GID uint32 // owner of the root directory
	Mode     uint32 // permission bits of the root directory, default 0755
	Now      Time   // times of the root directory
}

// Options of Open.
type Options struct {
	PoolUUID [16]byte
	Term     uint64 // term of the records that this mount will write
	Now      func() Time
	// A read moves the access time when it is not newer than the other times, or a day old (relatime); with NoAtime it
	// never does, with StrictAtime always.
	NoAtime, StrictAtime bool
	// Where the tree has at most so many bytes of nodes, Open checks every node, although a snapshot of the allocator would spare
	// that. In a larger tree a damaged node is met when it is first needed, or by Check.
	WalkUpTo uint64
	// ForCheck leaves an ORPHAN key without an inode to Check and Repair, instead of refusing the pool.
	ForCheck bool
}

// Recovered says what Open found.
type Recovered struct {
	Epoch    uint64
	LSN      uint64 // last sealed record
	LSNSeal  uint64
	Term     uint64 // term of that record
	PoolSize uint64 // bytes of the pool, which may be less than its copies have
	Replayed int    // records applied
	Orphans  int    // inodes to be reclaimed
	Snapshot bool   // the tree was not walked: the allocator is that of a snapshot
	// Slot says why the other super slot does not count, nil if it holds a valid older state. A crash during a
	// checkpoint leaves it torn, so alone it is no reason to refuse the pool.
	Slot error
	// Misled says what did not fit the snapshot of the allocator that the super has, nil if all did. The tree was walked then.
	Misled error
}

// Job is one drain that every copy executes: Ranges persistent first, then Seal stored and persistent. Jobs are
// executed on each copy in the order in which NextJob returns them. The volume owns the slices again after Sealed.
type Job struct {
	Seq    uint64 // 1, 2, 3 ... over groups and supers
	LSN    uint64 // the group's number; of a super: the last group that its tree holds
	Super  bool
	Ranges []pmem.Range // sorted, disjoint, never containing a seal word
	Seal   pmem.Seal
	// private to the volume
	frees []pmem.Range // in blocks: free when the job is sealed
}
