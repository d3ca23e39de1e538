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
