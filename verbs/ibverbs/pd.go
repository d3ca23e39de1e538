//go:build linux && cgo

package ibverbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// Rights of a region that headers before rdma-core 45 lack (enum ibv_access_flags).
const (
	accessFlushVisible    = 1 << 8
	accessFlushPersistent = 1 << 9
)

// pd implements verbs.PD.
type pd struct {
	dev    *device
	c      *C.struct_ibv_pd
	refs   atomic.Int64 // regions and queue pairs
	closed atomic.Bool

	mu    sync.Mutex // protects the following
	pairs int        // queue pairs that the device still has
	gone  bool       // c is freed
}

func (d *device) AllocPD() (verbs.PD, error) {
	if err := d.cm.present(); err != nil {
		return nil, fmt.Errorf("ibverbs: allocate a protection domain: %w", err)
	}
	r := C.shim_pd(d.context)
	if err := failed("ibverbs: allocate a protection domain of "+d.name, r.err); err != nil {
		return nil, err
	}
	d.refs.Add(1)
	return &pd{dev: d, c: pdOf(r)}, nil
}

// Close fails while regions or queue pairs are left. The device's protection domain goes with its last queue pair.
func (p *pd) Close() error {
	if n := p.refs.Load(); n != 0 {
		return fmt.Errorf("ibverbs: close protection domain: %d regions or queue pairs are still open", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed.Store(true)
	return p.destroy()
}

// hold and release count the queue pairs that the device has.
func (p *pd) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs++
}

func (p *pd) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs--
	return p.destroy()
}

// destroy frees the device's protection domain if nobody needs it. The lock is held.
func (p *pd) destroy() error {
	if !p.closed.Load() || p.pairs > 0 || p.gone {
		return nil
	}
	p.gone = true
	p.dev.refs.Add(-1)
	return destroyed("ibverbs: close protection domain", C.ibv_dealloc_pd(p.c))
}

// mr implements verbs.MR. mem keeps the memory reachable for the collector.
type mr struct {
	pd     *pd
	c      *C.struct_ibv_mr
	mem    []byte
	addr   uint64
	lkey   uint32
	rkey   uint32
	access verbs.Access
	gone   atomic.Bool
}

// RegisterMR pins b, or with OnDemand has its pages brought as they are needed.
func (p *pd) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	switch {
	case p.closed.Load():
		return nil, fmt.Errorf("ibverbs: register with a protection domain that is closed: %w", verbs.ErrClosed)
	case len(b) == 0:
		return nil, fmt.Errorf("ibverbs: register: a region of 0 bytes is of no use")
	case a&verbs.RemoteFlush != 0 && !p.dev.caps.Flush:
		return nil, fmt.Errorf("ibverbs: register for native FLUSH: RDMA device %s: %w", p.dev.name, verbs.ErrUnsupported)
	case a&verbs.OnDemand != 0 && !p.dev.caps.OnDemand:
		return nil, fmt.Errorf("ibverbs: register without pinning: RDMA device %s has no on-demand paging: %w", p.dev.name, verbs.ErrUnsupported)
	}
	m := &mr{pd: p, mem: b, addr: address(b), access: a}
	r := C.shim_reg(p.c, C.uintptr_t(m.addr), C.size_t(len(b)), C.int(p.dev.rights(a)))
	if err := failed("ibv_reg_mr", r.err); err != nil {
		return nil, explainRegister(err, p.dev.name, len(b), a)
	}
	m.c = mrOf(r)
	m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
	if a&verbs.OnDemand != 0 {
		_ = m.prefetch() // advice
	}
	p.refs.Add(1)
	return m, nil
}

// prefetch fetches the pages of a region on demand ahead, for writing if the device may write to them.
func (m *mr) prefetch() error {
	var write C.int
	if m.pd.dev.stores(m.access) {
		write = 1
	}
	return failed("ibv_advise_mr", C.shim_prefetch(m.pd.c, m.c, write))
}

// rights are the access flags for a. Without the right of local writing a device refuses that of remote writing. The sink of a
// Read over iWARP is written by the peer (RFC 5040, section 5.2), only siw does not need that said.
func (d *device) rights(a verbs.Access) int {
	flags := 0
	if a&(verbs.LocalWrite|verbs.RemoteWrite) != 0 {
		flags |= C.IBV_ACCESS_LOCAL_WRITE
	}
	if a&verbs.RemoteWrite != 0 || a&verbs.LocalWrite != 0 && d.iwarp && !d.siw {
		flags |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if a&verbs.RemoteRead != 0 {
		flags |= C.IBV_ACCESS_REMOTE_READ
	}
	if a&verbs.RemoteFlush != 0 {
		flags |= accessFlushVisible | accessFlushPersistent
	}
	if a&verbs.OnDemand != 0 {
		flags |= C.IBV_ACCESS_ON_DEMAND
	}
	return flags
}

// stores tells whether the device may store to a region with the rights a, its own work requests or those of a peer.
func (d *device) stores(a verbs.Access) bool { return d.rights(a)&C.IBV_ACCESS_LOCAL_WRITE != 0 }

func (m *mr) Bytes() []byte { return m.mem }
func (m *mr) Addr() uint64  { return m.addr }
func (m *mr) RKey() uint32  { return m.rkey }

func (m *mr) Deregister() error {
	if m.gone.Swap(true) {
		return fmt.Errorf("ibverbs: deregister region %#x: %w", m.rkey, verbs.ErrClosed)
	}
	if err := destroyed(fmt.Sprintf("ibverbs: deregister region %#x", m.rkey), C.ibv_dereg_mr(m.c)); err != nil {
		m.gone.Store(false) // the kernel keeps it: Deregister may be called again
		return err
	}
	m.pd.refs.Add(-1)
	return nil
}

// check reports a piece of the region that is not there, or may not be used so.
func (m *mr) check(p *pd, s *verbs.SGE, need verbs.Access) error {
	size := uint64(len(m.mem))
	switch {
	case m.pd != p:
		return fmt.Errorf("ibverbs: region %#x is of another protection domain", m.rkey)
	case m.gone.Load():
		return fmt.Errorf("ibverbs: region %#x is deregistered: %w", m.rkey, verbs.ErrClosed)
	case s.Off > size || s.Len > size-s.Off:
		return fmt.Errorf("ibverbs: bytes %d+%d are not within region %#x of %d bytes", s.Off, s.Len, m.rkey, size)
	case m.access&need != need:
		return fmt.Errorf("ibverbs: region %#x lacks the right of local writing", m.rkey)
	}
	return nil
}
