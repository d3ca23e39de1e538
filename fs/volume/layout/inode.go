package layout

import (
	"encoding/binary"
	"syscall"
)

// Offsets in an inode value, for patches. A time is 12 bytes.
const (
	InodeSize = 128
	TimeSize  = 12

	ModeOff   = 0
	NlinkOff  = 4
	UIDOff    = 8
	GIDOff    = 12
	SizeOff   = 24
	BlocksOff = 32
	MtimeOff  = 40
	CtimeOff  = 52
	AtimeOff  = 64
	BtimeOff  = 76
	ParentOff = 88
)

const nsecPerSec = 1_000_000_000

// MaxFile is the largest size of a file in bytes.
const MaxFile = 16 << 40

// Time is a point in time: seconds since 1970 and nanoseconds below one second.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Encode writes the 12 bytes of t.
func (t Time) Encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(t.Sec))
	binary.LittleEndian.PutUint32(b[8:], t.Nsec)
}

func readTime(b []byte) Time {
	return Time{int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:])}
}

// Inode is the value of an INODE key. Blocks counts blocks of 4096 bytes. Parent is set in directories only.
type Inode struct {
	Mode, Nlink, UID, GID, Rdev, Flags uint32
	Size, Blocks                       uint64
	Mtime, Ctime, Atime, Btime         Time
	Parent                             uint64
}

// Encode writes the InodeSize bytes of i.
func (i *Inode) Encode(b []byte) {
	b = b[:InodeSize]
	le := binary.LittleEndian
	le.PutUint32(b[ModeOff:], i.Mode)
	le.PutUint32(b[NlinkOff:], i.Nlink)
	le.PutUint32(b[UIDOff:], i.UID)
	le.PutUint32(b[GIDOff:], i.GID)
	le.PutUint32(b[16:], i.Rdev)
	le.PutUint32(b[20:], i.Flags)
	le.PutUint64(b[SizeOff:], i.Size)
	le.PutUint64(b[BlocksOff:], i.Blocks)
	i.Mtime.Encode(b[MtimeOff:])
	i.Ctime.Encode(b[CtimeOff:])
	i.Atime.Encode(b[AtimeOff:])
	i.Btime.Encode(b[BtimeOff:])
	le.PutUint64(b[ParentOff:], i.Parent)
	clear(b[ParentOff+8:])
}

// DecodeInode reads an inode value. Its type and size are ones that an inode can have; the rest of its numbers are for
// the caller to judge.
func DecodeInode(b []byte) (Inode, error) {
	if len(b) != InodeSize {
		return Inode{}, corrupt("inode: found %d bytes, expected %d", len(b), InodeSize)
	}
	le := binary.LittleEndian
	i := Inode{
		Mode: le.Uint32(b[ModeOff:]), Nlink: le.Uint32(b[NlinkOff:]), UID: le.Uint32(b[UIDOff:]), GID: le.Uint32(b[GIDOff:]),
		Rdev: le.Uint32(b[16:]), Flags: le.Uint32(b[20:]),
		Size: le.Uint64(b[SizeOff:]), Blocks: le.Uint64(b[BlocksOff:]),
		Mtime: readTime(b[MtimeOff:]), Ctime: readTime(b[CtimeOff:]), Atime: readTime(b[AtimeOff:]), Btime: readTime(b[BtimeOff:]),
		Parent: le.Uint64(b[ParentOff:]),
	}
	if n := max(i.Mtime.Nsec, i.Ctime.Nsec, i.Atime.Nsec, i.Btime.Nsec); n >= nsecPerSec {
		return Inode{}, corrupt("inode: nanoseconds of a time: found %d, expected less than %d", n, nsecPerSec)
	}
	if i.Size > MaxFile {
		return Inode{}, corrupt("inode: size: found %d, expected at most %d", i.Size, MaxFile)
	}
	switch i.Mode &^ 07777 {
	case syscall.S_IFREG, syscall.S_IFDIR, syscall.S_IFLNK, syscall.S_IFCHR, syscall.S_IFBLK, syscall.S_IFIFO, syscall.S_IFSOCK:
		return i, nil
	}
	return Inode{}, corrupt("inode: mode: found %#o, expected a type of stat(2) and permission bits", i.Mode)
}
