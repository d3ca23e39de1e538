package iwarp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// readv and writev take iovecs that the caller keeps between calls; the wrappers of x/sys/unix build new ones each time.
// Both calls are safe as package unsafe asks for it: the pointers in iov are typed, so the garbage collector sees
// what they point to, and the pointer to iov itself is converted in the argument list of the call. Memory that faults gives EFAULT.

func readv(fd uintptr, iov []unix.Iovec) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_READV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	return int(n), e
}

func writev(fd uintptr, iov []unix.Iovec) (int, unix.Errno) {
	n, _, e := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	return int(n), e
}

// advance takes n bytes from the front of v. n is less than its length.
func advance(v *unix.Iovec, n int) {
	v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
	v.SetLen(int(v.Len) - n)
}

// vec is b as an iovec. b is not empty.
func vec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}
