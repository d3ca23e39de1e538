//go:build linux && cgo

package ibverbs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// channel is a descriptor of libibverbs or librdmacm in the runtime's poller. It has a descriptor of its own for that, so the
// library closes its own when it likes. The library's must be non-blocking, which both then are.
type channel struct {
	file *os.File
	raw  syscall.RawConn
}

func newChannel(fd int, name string) (*channel, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup "+name, err)
	}
	f := os.NewFile(uintptr(own), name)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &channel{f, raw}, nil
}

// wait calls take until it returns true, and sleeps as long as nothing is there. It ends with an error at the deadline
// of the file and when that is closed.
func (c *channel) wait(take func(uintptr) bool) error { return c.raw.Read(take) }

// close ends a wait under way, and returns when it does not use the descriptor any more.
func (c *channel) close() error { return c.file.Close() }
