package fs

var opNames = map[Op]string{
	OpLookup: "LOOKUP", OpForget: "FORGET", OpGetAttr: "GETATTR", OpSetAttr: "SETATTR", OpReadlink: "READLINK", OpSymlink: "SYMLINK",
	OpMknod: "MKNOD", OpMkdir: "MKDIR", OpUnlink: "UNLINK", OpRmdir: "RMDIR", OpRename: "RENAME", OpLink: "LINK", OpOpen: "OPEN",
	OpRead: "READ", OpWrite: "WRITE", OpStatFs: "STATFS", OpRelease: "RELEASE", OpFsync: "FSYNC", OpSetXattr: "SETXATTR",
	OpGetXattr: "GETXATTR", OpListXattr: "LISTXATTR", OpRemoveXattr: "REMOVEXATTR", OpFlush: "FLUSH", OpOpenDir: "OPENDIR",
	OpReadDir: "READDIR", OpReleaseDir: "RELEASEDIR", OpFsyncDir: "FSYNCDIR", OpCreate: "CREATE", OpIoctl: "IOCTL",
	OpFallocate: "FALLOCATE", OpReadDirPlus: "READDIRPLUS", OpRename2: "RENAME2", OpLseek: "LSEEK", OpCopyRange: "COPY_FILE_RANGE", OpTmpfile: "TMPFILE", OpStatx: "STATX",
}

// ByName returns the counts that are not zero under the kernel's names of the opcodes.
func (c Counts) ByName() map[string]uint64 {
	out := map[string]uint64{}
	for op, n := range c {
		if name := opNames[Op(op)]; n > 0 && name != "" {
			out[name] = n
		}
	}
	return out
}
