// Package unixsock makes the sockets over which the commands of an administrator reach a daemon.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse: a daemon listens at the path.
var ErrInUse = errors.New("a running daemon uses this socket")

// dialTimeout bounds the question whether somebody listens.
const dialTimeout = time.Second

// Listen takes the socket at path, whose directory it makes if there is none. Only the owner of the process may connect. The
// socket of a daemon that is no more is replaced; anything else at path is an error, ErrInUse if a daemon listens there.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: private}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// private sets the mode that bind(2) gives to the name in the file system: after the bind it would be too late, since anyone
// could connect before.
func private(_, _ string, c syscall.RawConn) error {
	var chmod error
	err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(err, chmod)
}

func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is no socket: remove it, or name another path", path)
	}
	if c, err := net.DialTimeout("unix", path, dialTimeout); err == nil {
		c.Close()
		return fmt.Errorf("%s: %w", path, ErrInUse)
	}
	return os.Remove(path)
}
