package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pmemfs/pmemfs/internal/unixsock"
)

// requestTimeout bounds reading a request and writing its reply; the work between them is bounded by the daemon.
const requestTimeout = 5 * time.Second

// maxClients may be connected at once; more are refused.
const maxClients = 32

// Server answers requests for one mount.
type Server struct {
	listener *net.UnixListener
	handle   func(Request) Reply
	slots    chan struct{}
	wg       sync.WaitGroup // the accept loop and every client
}

// Listen starts to serve the socket at path. handle may be called from several goroutines; each call must be bounded.
func Listen(path string, handle func(Request) Reply) (*Server, error) {
	l, err := unixsock.Listen(path)
	if errors.Is(err, unixsock.ErrInUse) {
		err = fmt.Errorf("%w: unmount what it serves at this mount point first", err)
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{listener: l, handle: handle, slots: make(chan struct{}, maxClients)}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may come free
			continue
		}
		select {
		case s.slots <- struct{}{}:
			s.wg.Go(func() { s.serve(conn) })
		default:
			conn.Close()
		}
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() { <-s.slots }()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	var req Request
	if err := json.NewDecoder(conn).Decode(&req); err != nil {
		return
	}
	reply := s.handle(req)
	_ = conn.SetDeadline(time.Now().Add(requestTimeout))
	_ = json.NewEncoder(conn).Encode(reply)
}

// Close removes the socket and waits for the requests under way.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.wg.Wait()
	return err
}
