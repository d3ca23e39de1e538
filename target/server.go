package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/platform"
	"github.com/pmemfs/pmemfs/internal/unixsock"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
)

const (
	// maxConns bounds the control connections, maxRequests the fabric connection requests that are being answered, maxAdmins
	// the clients of the admin socket.
	maxConns    = 256
	maxRequests = 64
	maxAdmins   = 64
	// acceptPause keeps a listener that fails, for want of descriptors for example, from spinning.
	acceptPause = 50 * time.Millisecond
)

// Server serves the pools of a directory.
type Server struct {
	cfg      config.Target
	log      logrus.FieldLogger
	platform *platform.Platform
	device   verbs.Device // nil in a server that only promotes
	persist  Persistency
	lockWait time.Duration // how long opening a pool waits for a daemon that is about to end
	stranger time.Duration // how long a control connection that claimed no pool may say nothing

	control *net.TCPListener
	fabric  verbs.Listener
	admin   *net.UnixListener
	wg      sync.WaitGroup // all goroutines but the flush handlers, which belong to their grants

	mu       sync.Mutex
	pools    map[string]*served // by name; every entry has a pool set file at the time it is made
	grants   map[uint64]*grant  // by session, those that admit lanes
	conns    map[ConnID]*conn
	admins   map[net.Conn]struct{} // clients of the admin socket
	lastConn ConnID
	stopping bool // no connection and no goroutine is added any more
}

// newServer makes a server that does not listen. It reads the platform file of cfg.
func newServer(cfg *config.Target, dev verbs.Device, log logrus.FieldLogger) (*Server, error) {
	machine, err := platform.Load(cfg.Platform)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: *cfg, log: log, platform: machine, device: dev, persist: Persistency{cfg.Methods, machine.InboundPersistent, uint64(cfg.Bounce)}, stranger: strangerTimeout,
		pools: map[string]*served{}, grants: map[uint64]*grant{}, conns: map[ConnID]*conn{}, admins: map[net.Conn]struct{}{}}, nil
}

// Listen takes the addresses and the socket of cfg, which Validate has found good. Nothing is served before Run.
func Listen(cfg *config.Target, dev verbs.Device, log logrus.FieldLogger) (*Server, error) {
	s, err := newServer(cfg, dev, log)
	if err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.closeListeners())
	}
	return s, nil
}

func (s *Server) listen() error {
	cfg := &s.cfg
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for control connections (listen = %q): %w", cfg.Listen, explain(err))
	}
	s.control = l.(*net.TCPListener)
	if s.fabric, err = s.device.Listen(cfg.Fabric); err != nil {
		return fmt.Errorf("listen for lanes (fabric = %q): %w", cfg.Fabric, explain(err))
	}
	s.admin, err = unixsock.Listen(cfg.Socket)
	if errors.Is(err, unixsock.ErrInUse) {
		err = fmt.Errorf("%w: end the other pmemfs-target, or name another path", err)
	}
	if err != nil {
		return fmt.Errorf("listen for administrators (socket = %q): %w", cfg.Socket, err)
	}
	return nil
}

// Addr is the address of the control connections, FabricAddr that of the lanes; both with the port that was taken.
func (s *Server) Addr() net.Addr       { return s.control.Addr() }
func (s *Server) FabricAddr() net.Addr { return s.fabric.Addr() }

// fabricAddr is where claimants connect their lanes. A listener on all addresses names no host: the claimant then takes the
// host of its control connection.
func (s *Server) fabricAddr() string {
	host, port, err := net.SplitHostPort(s.fabric.Addr().String())
	if err != nil {
		return s.fabric.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	return net.JoinHostPort(host, port)
}

// Run serves until ctx is done, or the device is gone, which is an error. Then it takes no more requests, finishes and answers the flushes
// under way, ends all sessions, closes the pools, and returns when every goroutine has ended.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.wg.Go(s.acceptControl)
	s.wg.Go(func() { s.acceptLanes(cancel) })
	s.wg.Go(s.acceptAdmin)
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, verbs.ErrDeviceGone) {
		return errors.Join(err, s.stop())
	}
	return s.stop()
}

// stop closes the control connections. The end of each one ends its session, which finishes the flushes under way.
func (s *Server) stop() error {
	err := s.closeListeners()
	s.mu.Lock()
	s.stopping = true
	for _, c := range s.conns {
		c.nc.Close()
	}
	for c := range s.admins {
		c.SetReadDeadline(time.Now())
	}
	pools := slices.Collect(maps.Values(s.pools))
	s.mu.Unlock()
	s.wg.Wait()
	for _, p := range pools {
		p.step(Stop{}) // a session that could not be ended when its connection was
	}
	return err
}

func (s *Server) closeListeners() error {
	var errs []error
	if s.control != nil {
		errs = append(errs, s.control.Close())
	}
	if s.fabric != nil {
		errs = append(errs, s.fabric.Close())
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close())
	}
	return errors.Join(errs...)
}

func (s *Server) acceptControl() {
	for {
		nc, err := s.control.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.log.Warnf("accept a control connection: %v", err)
			time.Sleep(acceptPause)
		case !s.startConn(nc):
			s.log.Warnf("control connection from %v refused: %d are open or the daemon ends", nc.RemoteAddr(), maxConns)
			nc.Close()
		}
	}
}

func (s *Server) startConn(nc *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || len(s.conns) >= maxConns {
		return false
	}
	s.lastConn++
	c := &conn{id: s.lastConn, srv: s, nc: nc}
	s.conns[c.id] = c
	s.wg.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.conns, c.id)
		s.mu.Unlock()
	})
	return true
}

// acceptLanes calls end when there can be no more lanes.
func (s *Server) acceptLanes(end func(cause error)) {
	slots := make(chan struct{}, maxRequests)
	for {
		req, err := s.fabric.Accept()
		switch {
		case errors.Is(err, verbs.ErrClosed):
			return
		case errors.Is(err, verbs.ErrDeviceGone):
			end(fmt.Errorf("no lane can be taken on %v any more: %w: start pmemfs-target again when the device is back", s.fabric.Addr(), err))
			return
		case err != nil:
			s.log.Warnf("accept a lane: %v", err)
			time.Sleep(acceptPause)
			continue
		}
		slots <- struct{}{}
		s.wg.Go(func() {
			if err := s.connectLane(req); err != nil {
				s.log.Warnf("lane from %v refused: %v", req.RemoteAddr(), err)
			}
			<-slots
		})
	}
}

func (s *Server) connectLane(req verbs.ConnRequest) error {
	var p wire.Private
	err := p.Decode(req.PrivateData())
	if err != nil {
		return errors.Join(err, reject(req, err))
	}
	s.mu.Lock()
	g := s.grants[p.Session]
	s.mu.Unlock()
	if g == nil {
		return errors.Join(wire.StatusNoSession, reject(req, wire.StatusNoSession))
	}
	return g.connect(s.device, req, p.Lane)
}

// reject refuses a lane; the peer gets as much of the reason as private data hold.
func reject(req verbs.ConnRequest, why error) error {
	text := why.Error()
	return req.Reject([]byte(text[:min(len(text), verbs.MaxReason)]))
}

func (s *Server) path(pool string) string { return filepath.Join(s.cfg.PoolDir, pool) }

func (s *Server) openCopy(pool string) (*localCopy, Replica, error) {
	return openCopy(s.path(pool), s.platform, s.cfg.Durability, s.lockWait)
}

func (s *Server) inspectCopy(pool string) (Replica, error) { return inspectCopy(s.path(pool)) }

func (s *Server) createCopy(pool string, a Create) (Replica, error) {
	return createCopy(s.path(pool), s.cfg.Durability, a)
}

func (s *Server) removeCopy(pool string) error { return removeCopy(s.path(pool)) }

func (s *Server) growCopy(pool string, c *localCopy, size uint64) error {
	return growCopy(s.path(pool), c, size)
}

func (s *Server) choice(c *localCopy, m wire.Methods) choice {
	return choiceOf(s.device, c.region(), m, s.persist)
}

// newGrant makes a grant whose lanes have goroutines of their own.
func (s *Server) newGrant(p *served, a Register) (*grant, error) {
	g, err := newGrant(s.device, p.copy.region(), randomID(), a, s.persist, p.log)
	if err == nil {
		g.report = func() { s.laneFailed(p, g.id) }
	}
	return g, err
}

func (s *Server) addGrant(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants[g.id] = g
}

func (s *Server) dropGrant(session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, session)
}

// laneFailed marks the copy of a failed session. The lane's handler does not wait for it, since whoever holds the pool may
// be waiting for the handler; when the daemon ends, the end of the session marks the copy.
func (s *Server) laneFailed(p *served, session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.wg.Go(func() { p.step(Failed{session}) })
	}
}

func (s *Server) conn(id ConnID) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// answer runs on the goroutine of the connection, which waits in dispatch.
func (s *Server) answer(a Answer) {
	if c := s.conn(a.Conn); c != nil {
		if err := c.reply(a.Status, a.Body); err != nil {
			c.nc.Close() // its goroutine finds out
		}
	}
}

// notice tells a connection that it is fenced and closes it, without waiting longer than a frame takes.
func (s *Server) notice(a Notice) {
	if c := s.conn(a.Conn); c != nil {
		if err := c.write(wire.Frame{Type: wire.TypeFenced, Body: a.Fenced.Append(nil)}); err != nil {
			s.log.Debugf("notice to %v: %v", c.nc.RemoteAddr(), err)
		}
		c.nc.Close()
	}
}

// explain adds what to do to the usual errors of listening.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another pmemfs-target or another program uses this address: end it, or choose another port", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: no interface of this machine has this address", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: ports below 1024 need root", err)
	}
	return err
}
