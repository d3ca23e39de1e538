package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

var (
	// ErrNoDaemon: no daemon serves the mount point.
	ErrNoDaemon = errors.New("no pmemfs daemon answers for this mount point: if one died, unmount and mount again")
	// ErrNotAllowed: there may be a daemon, but only root may ask it.
	ErrNotAllowed = errors.New("only root may ask the daemon of a mount")
)

// retryPause is the time between two tries of a request.
const retryPause = 50 * time.Millisecond

// Call sends one request to the daemon of mountpoint and waits up to d for the reply. Requests may be repeated, and a
// connection that ends without a reply is: the daemon has too many clients at the moment, or it is dying, and then the
// next try finds nobody.
func Call(mountpoint string, req Request, d time.Duration) (Reply, error) {
	for end := time.Now().Add(d); ; time.Sleep(retryPause) {
		reply, err := try(mountpoint, req, time.Until(end))
		if !hungUp(err) || time.Until(end) <= retryPause {
			return reply, err
		}
	}
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func try(mountpoint string, req Request, d time.Duration) (Reply, error) {
	var reply Reply
	conn, err := net.DialTimeout("unix", SocketPath(mountpoint), d)
	if errors.Is(err, fs.ErrPermission) {
		return reply, fmt.Errorf("%s: %w", mountpoint, ErrNotAllowed)
	}
	if err != nil {
		return reply, fmt.Errorf("%s: %w (%w)", mountpoint, ErrNoDaemon, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d))
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return reply, fmt.Errorf("%s: ask the daemon: %w", mountpoint, err)
	}
	switch err := json.NewDecoder(conn).Decode(&reply); {
	case hungUp(err):
		return reply, fmt.Errorf("%s: the daemon ended the connection: %w", mountpoint, err)
	case err != nil:
		return reply, fmt.Errorf("%s: the daemon did not answer within %v: %w", mountpoint, d, err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("%s: %s", mountpoint, reply.Error)
	}
	return reply, nil
}
