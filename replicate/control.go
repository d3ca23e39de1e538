package replicate

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

// writeTimeout bounds the write of a control frame: frames are small and at most two are unanswered, so the
// kernel takes them at once unless the connection is dead.
const writeTimeout = time.Second

// control is one control connection.
type control struct{ conn net.Conn }

func dialControl(ctx context.Context, addr string) (*control, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w: check that pmemfs-target listens at %s and that the network reaches it", err, addr)
	}
	return &control{conn}, nil
}

func (c *control) send(f wire.Frame) error {
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := wire.WriteFrame(c.conn, f); err != nil {
		return fmt.Errorf("control connection: sending %v: %w", f.Type, err)
	}
	return nil
}

// recv waits for the next frame until the connection is closed.
func (c *control) recv() (wire.Frame, error) {
	f, err := wire.ReadFrame(c.conn)
	if err != nil {
		return f, fmt.Errorf("control connection: %w", err)
	}
	return f, nil
}

// call sends a request and waits for its answer. A status other than OK is a *wire.RefusedError.
func (c *control) call(ctx context.Context, f wire.Frame) (wire.Frame, error) {
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(RequestTimeout); !ok || limit.Before(deadline) {
		deadline = limit
	}
	c.conn.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.send(f); err != nil {
		return wire.Frame{}, err
	}
	a, err := c.recv()
	switch {
	case err != nil:
		return a, err
	case a.Type == wire.TypeFenced:
		return a, fencedBy(&a)
	case a.Type != f.Type|wire.Answer || a.ID != f.ID:
		return a, fmt.Errorf("unexpected %v with number %d: %w", a.Type, a.ID, wire.ErrCorrupt)
	case a.Status != wire.StatusOK:
		return a, wire.Refusal(a)
	}
	return a, nil
}

func (c *control) close() { c.conn.Close() }

// laneAddr completes the fabric address of a grant with the host of the control connection.
func laneAddr(fabric, control string) (string, error) {
	host, port, err := net.SplitHostPort(fabric)
	if err != nil {
		return "", fmt.Errorf("the target's fabric address %q: %w: correct `fabric` in its configuration", fabric, err)
	}
	if host == "" {
		if host, _, err = net.SplitHostPort(control); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}
