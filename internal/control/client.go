package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"
)

var (
	// ErrNoDaemon: no daemon serves the mount point.
	ErrNoDaemon = errors.New("no pmemfs daemon answers for this mount point: if one died, unmount and mount again")
	// ErrNotAllowed: there may be a daemon, but only root may ask it.
	ErrNotAllowed = errors.New("only root may ask the daemon of a mount")
)

// Call sends one request to the daemon of mountpoint and waits up to d for the reply.
func Call(mountpoint string, req Request, d time.Duration) (Reply, error) {
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
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return reply, fmt.Errorf("%s: the daemon did not answer within %v: %w", mountpoint, d, err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("%s: %s", mountpoint, reply.Error)
	}
	return reply, nil
}
