package fs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl passes arg, which is long enough for what the request reads and stores, to a request that package unix has no call
// for. The conversion stands in the argument list, as package unsafe wants it, so that arg stays alive and in place.
func ioctl(fd int, request uintptr, arg []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&arg[0]))); errno != 0 {
		return errno
	}
	return nil
}

// setThreadGroups sets the supplementary groups of the calling thread alone, which setgroups(2) does when it is called without
// the C library or the Go runtime.
func setThreadGroups(groups []int) error {
	list := make([]uint32, len(groups)+1) // one more, so that there is a first element
	for i, g := range groups {
		list[i] = uint32(g)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return errno
	}
	return nil
}
