package target

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/replicate/wire"
)

const (
	// strangerTimeout is how long a control connection that claimed no pool may say nothing.
	strangerTimeout = 30 * time.Second
	// writeTimeout bounds the sending of one frame.
	writeTimeout = 5 * time.Second
)

// keepAlive finds the silent death of an initiator's machine within half a minute. A session itself may be quiet for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// conn is a control connection. Its goroutine reads requests one after the other, each after the answer to the one before.
type conn struct {
	id  ConnID
	srv *Server
	nc  *net.TCPConn

	request wire.Frame // being answered; belongs to the goroutine of the connection, as does pool
	pool    *served    // of the last claim

	wmu sync.Mutex // writing
}

// serve answers requests until the connection ends.
func (c *conn) serve() {
	defer c.nc.Close()
	err := c.loop()
	if c.pool != nil {
		c.pool.step(Lost{c.id})
	}
	log := c.srv.log.WithField("initiator", c.nc.RemoteAddr())
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		log.Debug("control connection closed")
		return
	}
	log.Warnf("control connection ended: %v", err)
}

func (c *conn) loop() error {
	if err := c.nc.SetKeepAliveConfig(keepAlive); err != nil {
		return err
	}
	for {
		deadline := time.Time{}
		if c.pool == nil {
			deadline = time.Now().Add(c.srv.stranger)
		}
		if err := c.nc.SetReadDeadline(deadline); err != nil {
			return err
		}
		f, err := wire.ReadFrame(c.nc)
		if err != nil {
			return errors.Join(err, c.answerBroken(f, err))
		}
		c.request = f
		if err := c.dispatch(f); err != nil {
			return err
		}
	}
}

// answerBroken tells a peer of another version which one is spoken here. Other broken bytes have no answer.
func (c *conn) answerBroken(f wire.Frame, err error) error {
	if _, ok := errors.AsType[*wire.VersionError](err); !ok {
		return nil
	}
	text := fmt.Sprintf("the target speaks control protocol version %d", wire.Version)
	return c.write(wire.Frame{Type: f.Type | wire.Answer, ID: f.ID, Status: wire.StatusVersion, Body: wire.AppendRefusal(nil, text, nil)})
}

// dispatch hands a request to its pool, which answers it.
func (c *conn) dispatch(f wire.Frame) error {
	if f.Type == wire.TypePing {
		if len(f.Body) > 0 {
			return c.refuse(refuse(wire.StatusBadRequest, "PING has no body"))
		}
		return c.reply(wire.StatusOK, nil)
	}
	body, name, err := decode(f)
	if err != nil {
		return c.refuse(err)
	}
	p, err := c.poolFor(f.Type, name)
	if err != nil {
		return c.refuse(err)
	}
	p.step(Request{c.id, body})
	return nil
}

// decode decodes the body of a request; name is the pool that it names, if it names one.
func decode(f wire.Frame) (body any, name string, err error) {
	var m interface{ Decode([]byte) error }
	switch f.Type {
	case wire.TypeHello:
		m = new(wire.Hello)
	case wire.TypeCreate:
		m = new(wire.Create)
	case wire.TypeClaim:
		m = new(wire.Claim)
	case wire.TypeSetState:
		m = new(wire.SetState)
	case wire.TypeSetAttr:
		m = new(wire.SetAttr)
	case wire.TypeClose:
		m = new(wire.Close)
	case wire.TypeRemove:
		m = new(wire.Remove)
	case wire.TypeGrow:
		m = new(wire.Grow)
	default:
		return nil, "", refuse(wire.StatusBadRequest, "%v is no request", f.Type)
	}
	if err := m.Decode(f.Body); err != nil {
		return nil, "", refuse(wire.StatusBadRequest, "%v", err)
	}
	switch m := m.(type) {
	case *wire.Hello:
		name = m.Pool
	case *wire.Create:
		name = m.Pool
	case *wire.Claim:
		name = m.Pool
	case *wire.Remove:
		name = m.Pool
	}
	return m, name, nil
}

// poolFor is the pool of a request: the one named, or for a request of a session the one claimed. A connection claims one pool only.
func (c *conn) poolFor(t wire.Type, name string) (*served, error) {
	switch t {
	case wire.TypeSetState, wire.TypeSetAttr, wire.TypeClose, wire.TypeGrow:
		if c.pool == nil {
			return nil, refuse(wire.StatusNoSession, "this connection has claimed no pool")
		}
		return c.pool, nil
	}
	p, err := c.srv.lookup(name)
	if err != nil || t != wire.TypeClaim {
		return p, err
	}
	if c.pool != nil && c.pool != p {
		return nil, refuse(wire.StatusBadRequest, "this connection has claimed pool %s: use a connection for each pool", c.pool.name)
	}
	c.pool = p
	return p, nil
}

func (c *conn) refuse(err error) error {
	r := asRefusal(err)
	return c.reply(r.Status, wire.AppendRefusal(nil, r.Text, r.State))
}

// reply answers the request under way.
func (c *conn) reply(s wire.Status, body []byte) error {
	return c.write(wire.Frame{Type: c.request.Type | wire.Answer, ID: c.request.ID, Status: s, Body: body})
}

func (c *conn) write(f wire.Frame) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return wire.WriteFrame(c.nc, f)
}
