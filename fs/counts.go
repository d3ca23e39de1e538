package fs

import "sync/atomic"

// Op is a FUSE opcode as the kernel numbers it (fuse(4), include/uapi/linux/fuse.h).
type Op uint32

// The opcodes that a status or a test asks for by name.
const (
	OpLookup      Op = 1
	OpForget      Op = 2 // inodes given back, by FORGET or BATCH_FORGET
	OpGetAttr     Op = 3
	OpSetAttr     Op = 4
	OpReadlink    Op = 5
	OpSymlink     Op = 6
	OpMknod       Op = 8
	OpMkdir       Op = 9
	OpUnlink      Op = 10
	OpRmdir       Op = 11
	OpRename      Op = 12
	OpLink        Op = 13
	OpOpen        Op = 14
	OpRead        Op = 15
	OpWrite       Op = 16
	OpStatFs      Op = 17
	OpRelease     Op = 18
	OpFsync       Op = 20
	OpSetXattr    Op = 21
	OpGetXattr    Op = 22
	OpListXattr   Op = 23
	OpRemoveXattr Op = 24
	OpFlush       Op = 25
	OpOpenDir     Op = 27
	OpReadDir     Op = 28
	OpReleaseDir  Op = 29
	OpFsyncDir    Op = 30
	OpCreate      Op = 35
	OpIoctl       Op = 39
	OpFallocate   Op = 43
	OpReadDirPlus Op = 44
	OpRename2     Op = 45
	OpLseek       Op = 46
	OpCopyRange   Op = 47
	OpTmpfile     Op = 51
	OpStatx       Op = 52

	numOps = 64
)

// Counts holds the number of requests answered so far, by opcode.
type Counts [numOps]uint64

type counters [numOps]atomic.Uint64

func (c *counters) add(op uint32) { c[op%numOps].Add(1) }

// Counts returns the requests answered so far. It allocates nothing.
func (s *Server) Counts() Counts {
	var out Counts
	for i := range s.counts {
		out[i] = s.counts[i].Load()
	}
	return out
}
