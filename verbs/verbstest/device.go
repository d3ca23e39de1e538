package verbstest

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/internal/cq"
)

// device implements verbs.Device.
type device struct {
	fabric *Fabric
	name   string
	refs   int // protection domains and listeners
}

// Device adds a device to the fabric.
func (f *Fabric) Device(name string) verbs.Device {
	return &device{fabric: f, name: name}
}

func (d *device) Name() string { return d.name }

func (d *device) Caps() verbs.Caps { return d.fabric.caps }

func (d *device) AllocPD() (verbs.PD, error) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.refs++
	return &pd{dev: d, regions: make(map[uint32]*mr)}, nil
}

func (d *device) CreateCQ(depth int) (verbs.CQ, error) { return cq.New(depth) }

func (d *device) Close() error {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	if d.refs != 0 {
		return fmt.Errorf("verbstest: close device: %d protection domains or listeners are still open", d.refs)
	}
	return nil
}

// pd implements verbs.PD.
type pd struct {
	dev     *device
	regions map[uint32]*mr
	refs    int // regions and queue pairs
	closed  bool
}

func (p *pd) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if len(b) == 0 {
		return nil, errors.New("verbstest: register no bytes: a region has at least 1")
	}
	f := p.dev.fabric
	if a&verbs.RemoteFlush != 0 && !f.caps.Flush || a&verbs.OnDemand != 0 && !f.caps.OnDemand {
		return nil, fmt.Errorf("verbstest: register with the rights %#x: %w", uint8(a), verbs.ErrUnsupported)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys++
	// The base differs from region to region, so that an offset taken for an address is refused.
	m := &mr{pd: p, mem: b, access: a, key: f.keys, base: uint64(f.keys) << 38 & (1<<62 - 1)}
	p.regions[m.key] = m
	p.refs++
	return m, nil
}

func (p *pd) CreateQP(attr verbs.QPAttr) (verbs.QP, error) {
	sq, ok1 := attr.SendCQ.(*cq.Queue)
	rq, ok2 := attr.RecvCQ.(*cq.Queue)
	if !ok1 || !ok2 {
		return nil, errors.New("verbstest: create queue pair: the completion queues are of another provider")
	}
	if attr.SendDepth < 1 || attr.RecvDepth < 0 {
		return nil, fmt.Errorf("verbstest: create queue pair: depths %d and %d make no sense", attr.SendDepth, attr.RecvDepth)
	}
	sends, err := sq.Open(attr.SendDepth)
	if err != nil {
		return nil, fmt.Errorf("verbstest: create queue pair: %w", err)
	}
	recvs, err := rq.Open(attr.RecvDepth)
	if err != nil {
		sends.Close()
		return nil, fmt.Errorf("verbstest: create queue pair: %w", err)
	}
	p.dev.fabric.mu.Lock()
	defer p.dev.fabric.mu.Unlock()
	p.refs++
	return &qp{pd: p, sends: sends, recvs: recvs}, nil
}

func (p *pd) Close() error {
	p.dev.fabric.mu.Lock()
	defer p.dev.fabric.mu.Unlock()
	if p.refs != 0 {
		return fmt.Errorf("verbstest: close protection domain: %d regions or queue pairs are still open", p.refs)
	}
	if !p.closed {
		p.closed = true
		p.dev.refs--
	}
	return nil
}

// mr implements verbs.MR.
type mr struct {
	pd     *pd
	mem    []byte
	access verbs.Access
	key    uint32
	base   uint64
	dead   bool
}

func (m *mr) Bytes() []byte { return m.mem }
func (m *mr) Addr() uint64  { return m.base }
func (m *mr) RKey() uint32  { return m.key }

func (m *mr) Deregister() error {
	m.pd.dev.fabric.mu.Lock()
	defer m.pd.dev.fabric.mu.Unlock()
	if m.dead {
		return fmt.Errorf("verbstest: deregister region %#x: %w", m.key, verbs.ErrClosed)
	}
	m.dead = true
	delete(m.pd.regions, m.key)
	m.pd.refs--
	return nil
}

// checkLocal checks a piece of local memory for use by a queue pair of p.
func (p *pd) checkLocal(s verbs.SGE, need verbs.Access) error {
	if s.Len > verbs.MaxMessage {
		return fmt.Errorf("%d bytes are more than one work request can move (%d)", s.Len, verbs.MaxMessage)
	}
	if s.MR == nil && s.Len == 0 {
		return nil
	}
	m, ok := s.MR.(*mr)
	switch {
	case !ok || m.pd != p:
		return errors.New("the memory region is missing or of another protection domain")
	case m.dead:
		return errors.New("the memory region was deregistered")
	case m.access&need != need:
		return fmt.Errorf("region %#x was registered without local write access", m.key)
	case s.Off > uint64(len(m.mem)) || s.Len > uint64(len(m.mem))-s.Off:
		return fmt.Errorf("bytes %d+%d are outside region %#x of %d bytes", s.Off, s.Len, m.key, len(m.mem))
	}
	return nil
}

// bytesOf returns the bytes of a piece that checkLocal has accepted, unless its region is gone since.
func bytesOf(s verbs.SGE) ([]byte, error) {
	if s.Len == 0 {
		return nil, nil
	}
	m := s.MR.(*mr)
	if m.dead {
		return nil, fmt.Errorf("verbstest: region %#x was deregistered while a work request used it", m.key)
	}
	return m.mem[s.Off : s.Off+s.Len], nil
}
