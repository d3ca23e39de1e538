package target

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

const (
	// maxAdminLine bounds a request on the admin socket, in bytes.
	maxAdminLine = 64 << 10
	// adminIdle is how long a client of the admin socket may say nothing.
	adminIdle = 30 * time.Second
	// adminTimeout bounds the wait for an answer: longer than a promotion may wait for the handlers of a session.
	adminTimeout = 2 * time.Minute
)

// Operations on the admin socket, one JSON object per line, answered with one line each.
const (
	OpStatus  = "status"
	OpPromote = "promote"
)

// AdminRequest is a line to the daemon.
type AdminRequest struct {
	Op    string `json:"op"`
	Pool  string `json:"pool,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// AdminReply is its answer. Error is empty on success.
type AdminReply struct {
	Error  string      `json:"error,omitempty"`
	Status wire.Status `json:"status,omitempty"` // of the refusal
	Term   uint64      `json:"term,omitempty"`   // of a promotion
	Report *Status     `json:"report,omitempty"` // of OpStatus
}

// Status is what a target serves.
type Status struct {
	Listen string       `json:"listen"`
	Fabric string       `json:"fabric"`
	Dir    string       `json:"dir"`
	Pools  []PoolStatus `json:"pools"` // those asked for since the daemon began
}

// PoolStatus is one pool of a target.
type PoolStatus struct {
	Name   string `json:"name"`
	Served bool   `json:"served"` // an initiator holds a session
	Term   uint64 `json:"term,omitempty"`
	Gen    string `json:"gen,omitempty"` // 16 hexadecimal digits
	Flags  string `json:"flags,omitempty"`
	Class  string `json:"durability,omitempty"`
	Lanes  int    `json:"lanes,omitempty"`
	Method string `json:"method,omitempty"` // of persistency
	Bounce uint64 `json:"bounce,omitempty"` // bytes of the bounce buffers that the session goes through
	Failed bool   `json:"failed,omitempty"` // a flush of the session failed
	// Warnings are what an administrator should look at although nothing has failed.
	Warnings []string `json:"warnings,omitempty"`
}

func (s *Server) acceptAdmin() {
	slots := make(chan struct{}, maxAdmins)
	for {
		c, err := s.admin.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warnf("accept on the admin socket: %v", err)
			time.Sleep(acceptPause)
			continue
		}
		select {
		case slots <- struct{}{}:
			s.startAdmin(c, func() { <-slots })
		default:
			c.Close()
		}
	}
}

// startAdmin serves a client until it goes or the daemon ends, and then calls done.
func (s *Server) startAdmin(c net.Conn, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admins[c] = struct{}{}
	s.wg.Go(func() {
		defer done()
		s.serveAdmin(c)
		c.Close()
		s.mu.Lock()
		delete(s.admins, c)
		s.mu.Unlock()
	})
}

func (s *Server) serveAdmin(c net.Conn) {
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxAdminLine)
	for s.awaitAdmin(c) && in.Scan() {
		reply := s.handleAdmin(in.Bytes())
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return
		}
		if err := json.NewEncoder(c).Encode(reply); err != nil {
			return
		}
	}
}

// awaitAdmin gives a client time for its next line. When the daemon ends there is none: stop expires the deadlines of all clients
// under the same lock, so a request under way is still answered and no further one is read.
func (s *Server) awaitAdmin(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopping && c.SetReadDeadline(time.Now().Add(adminIdle)) == nil
}

func (s *Server) handleAdmin(line []byte) AdminReply {
	var req AdminRequest
	if err := json.Unmarshal(line, &req); err != nil {
		return AdminReply{Error: fmt.Sprintf("not a request: %v", err), Status: wire.StatusBadRequest}
	}
	switch req.Op {
	case OpStatus:
		return AdminReply{Report: s.status()}
	case OpPromote:
		term, err := s.promote(req.Pool, req.Force)
		if err != nil {
			r := asRefusal(err)
			return AdminReply{Error: r.Text, Status: r.Status}
		}
		return AdminReply{Term: term}
	}
	return AdminReply{Error: fmt.Sprintf("unknown operation %q", req.Op), Status: wire.StatusBadRequest}
}

func (s *Server) promote(name string, force bool) (term uint64, err error) {
	p, err := s.lookup(name)
	if err != nil {
		return 0, err
	}
	if term, err = p.promote(force); err == nil {
		p.log.WithField("term", term).Warn("promoted: this copy is the primary now, and is not served any more")
	}
	return term, err
}

func (s *Server) status() *Status {
	s.mu.Lock()
	pools := maps.Clone(s.pools)
	s.mu.Unlock()
	st := &Status{Listen: s.Addr().String(), Fabric: s.FabricAddr().String(), Dir: s.cfg.PoolDir, Pools: []PoolStatus{}}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		st.Pools = append(st.Pools, pools[name].status())
	}
	return st
}

func (p *served) status() PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PoolStatus{Name: p.name}
	if p.copy != nil {
		st.Warnings = p.copy.doubts
	}
	if p.grant == nil {
		return st
	}
	r := p.machine.Replica()
	st.Served, st.Term, st.Gen, st.Lanes = true, r.Term, fmt.Sprintf("%016x", r.Gen), p.grant.connected()
	st.Flags, st.Class = flagNames(r.Flags), config.Durability(r.Durability).String()
	st.Method = p.grant.method.String()
	st.Failed, st.Bounce = p.grant.failure.Load() != nil, p.grant.staged()
	return st
}

// call sends one request to the daemon at socket.
func call(socket string, req AdminRequest) (*AdminReply, error) {
	c, err := net.DialTimeout("unix", socket, 5*time.Second)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w (%w)", ErrNoDaemon, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reach pmemfs-target: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(adminTimeout)); err != nil {
		return nil, err
	}
	var reply AdminReply
	if err := json.NewEncoder(c).Encode(req); err != nil {
		return nil, fmt.Errorf("ask pmemfs-target at %s: %w", socket, err)
	}
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return nil, fmt.Errorf("answer of pmemfs-target at %s: %w", socket, err)
	}
	if reply.Error != "" {
		return nil, &Refusal{Status: reply.Status, Text: reply.Error}
	}
	return &reply, nil
}

// StatusVia asks the daemon at socket what it serves.
func StatusVia(socket string) (*Status, error) {
	reply, err := call(socket, AdminRequest{Op: OpStatus})
	if err != nil {
		return nil, err
	}
	return reply.Report, nil
}
