//go:build linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// #cgo LDFLAGS: -lrdmacm -libverbs
// #include "shim.h"
import "C"

// Options of a device.
type Options struct {
	Device string // name, or empty: that of the route to Addr, else the first with an active port
	Addr   string // where it will connect to or listen, "host:port"; used only if Device is empty
	GID    int    // on Ethernet: index of the local GID, or AnyGID
}

// Capability flags (ib_user_verbs.h of the kernel, IB_UVERBS_DEVICE_*). Headers before rdma-core 45 lack the first three.
const (
	flagFlushVisible    = 1 << 38
	flagFlushPersistent = 1 << 39
	flagAtomicWrite     = 1 << 40
)

// Vendor numbers of the software devices (rxe_param.h, siw.h of the kernel).
const (
	vendorRXE = 0xffffff
	vendorSIW = 0x626d74
)

// What a pair of queue pairs may have outstanding in Reads at most.
const maxReads = 16

// inlines are the sizes of inline data tried, in bytes. More would make every place of a send queue large.
var inlines = []int{256, 128, 64, 32, 16}

// resolveTimeout bounds the choice of a device by its route.
const resolveTimeout = 10 * time.Second

// device implements verbs.Device.
type device struct {
	name     string
	context  *C.struct_ibv_context
	cm       *manager
	async    *asyncEvents
	caps     verbs.Caps
	access   C.uint32_t // of the peer to a queue pair
	port     int
	iwarp    bool
	siw      bool
	ethernet bool
	gid      int // index asked for, or AnyGID
	chosen   gid // source address of connections; invalid if the route decides
	depth    int // Reads outstanding
	maxCQE   int
	refs     atomic.Int64 // protection domains, completion queues, listeners
	closing  sync.Once
	late     sync.WaitGroup // queue pairs that are being freed

	// By handle. Replaced under mu and never changed, so that a completion finds its queue pair without a lock.
	qps atomic.Pointer[map[uint32]*qp]

	mu     sync.RWMutex                // protects the following
	cqs    map[uint64]*completionQueue // by number
	handle uint32
}

func sys() sysfs { return sysfs{os.DirFS("/sys/class/infiniband")} }

// library prepares libibverbs, before its first use. Unless told so (since rdma-core 23), it keeps what it has of an object whose device is gone, memory and
// descriptors, for ever: it fears for a user who goes on using it, and here nobody does once Close has begun. ibv_fork_init makes
// registered memory survive a fork of this process, on kernels that do not see to that themselves.
var library = sync.OnceValue(func() error {
	if err := os.Setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1"); err != nil {
		return err
	}
	return failed("ibv_fork_init", C.ibv_fork_init())
})

func newDevice() *device {
	d := &device{cqs: make(map[uint64]*completionQueue)}
	d.qps.Store(&map[uint32]*qp{})
	return d
}

// Open opens an RDMA device.
func Open(o Options) (verbs.Device, error) {
	if _, err := sys().devices(); err != nil {
		return nil, fmt.Errorf("ibverbs: %w", err)
	}
	if err := library(); err != nil {
		return nil, fmt.Errorf("ibverbs: %w", err)
	}
	d := newDevice()
	d.gid = o.GID
	var err error
	if d.cm, err = newManager(); err != nil {
		return nil, fmt.Errorf("ibverbs: %w: the module rdma_ucm must be loaded and /dev/infiniband/rdma_cm accessible", err)
	}
	if err := d.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("ibverbs: %w", err), d.release())
	}
	return d, nil
}

func (d *device) open(o Options) (err error) {
	if d.name, err = d.cm.choose(o); err != nil {
		return err
	}
	d.cm.mu.Lock()
	d.cm.dev = d.name
	d.cm.mu.Unlock()
	if err := sys().check(d.name); err != nil {
		return err
	}
	if d.port, err = sys().activePort(d.name); err != nil {
		return err
	}
	name := C.CString(d.name)
	defer freeString(name)
	r := C.shim_open(name)
	if err := failed("open RDMA device "+d.name, r.err); err != nil {
		return fmt.Errorf("%w: /dev/infiniband/uverbs* must be accessible, and the package ibverbs-providers installed", err)
	}
	d.context = contextOf(r)
	if d.async, err = newAsyncEvents(d); err != nil {
		return err
	}
	if err := d.query(); err != nil {
		return err
	}
	return d.chooseSource(o)
}

// query finds out what the device can do.
func (d *device) query() error {
	var c C.struct_shim_caps
	if err := failed("query RDMA device "+d.name, C.shim_query(d.context, &c)); err != nil {
		return err
	}
	var active, ethernet C.int
	if err := failed("query port of RDMA device "+d.name, C.shim_port(d.context, C.int(d.port), &active, &ethernet)); err != nil {
		return err
	}
	d.iwarp = d.context.device.transport_type == C.IBV_TRANSPORT_IWARP
	d.siw = d.iwarp && c.vendor == vendorSIW
	d.ethernet = ethernet != 0 && !d.iwarp
	d.depth = max(1, min(maxReads, int(c.max_qp_rd_atom), int(c.max_qp_init_rd_atom)))
	if c.max_qp_init_rd_atom == 0 { // some drivers leave it out
		d.depth = max(1, min(maxReads, int(c.max_qp_rd_atom)))
	}
	d.maxCQE = int(c.max_cqe)
	const paging = C.IBV_ODP_SUPPORT_SEND | C.IBV_ODP_SUPPORT_RECV | C.IBV_ODP_SUPPORT_WRITE | C.IBV_ODP_SUPPORT_READ
	d.caps = verbs.Caps{
		Flush:        c.flags&flagFlushVisible != 0 && c.flags&flagFlushPersistent != 0,
		AtomicWrite:  c.flags&flagAtomicWrite != 0,
		OnDemand:     c.odp&C.IBV_ODP_SUPPORT != 0 && c.odp_rc&paging == paging,
		MaxRegion:    uint64(c.max_mr_size),
		OrderedPlace: d.ordered(),
		// A device without hardware stores by CPU. One on top of hardware, such as rxe on a network card, shows only by its vendor.
		CPUPlaced: sys().software(d.name) || c.vendor == vendorRXE || c.vendor == vendorSIW,
	}
	if d.caps.OnDemand && c.vendor == vendorRXE {
		if err := d.provePaging(); err != nil {
			return err
		}
	}
	d.access = C.IBV_ACCESS_LOCAL_WRITE | C.IBV_ACCESS_REMOTE_WRITE | C.IBV_ACCESS_REMOTE_READ
	if d.caps.Flush {
		d.access |= accessFlushVisible | accessFlushPersistent
	}
	return d.probe()
}

// ordered tells whether overlapping Writes are placed in order: on InfiniBand and RoCE, as relaxed ordering is never asked for, and by siw. An iWARP
// adapter may place a segment that overtook another one: RFC 5041 orders delivery, not placement.
func (d *device) ordered() bool { return !d.iwarp || d.siw }

// probe creates queue pairs until one works: that a device has FLUSH does not say that its library has it, and how much inline data
// a queue pair can have shows only there.
func (d *device) probe() error {
	p, err := d.AllocPD()
	if err != nil {
		return err
	}
	defer p.Close()
	q, err := d.CreateCQ(2)
	if err != nil {
		return err
	}
	defer q.Close()
	native := d.caps
	for _, extended := range []bool{true, false} {
		d.caps.Flush, d.caps.AtomicWrite = native.Flush && extended, native.AtomicWrite && extended
		for _, n := range append(inlines, 0) {
			r := p.(*pd).create(verbs.QPAttr{SendDepth: 1, RecvDepth: 1}, q.(*completionQueue), q.(*completionQueue), n)
			if err = failed("create a queue pair on RDMA device "+d.name, r.err); err != nil {
				continue
			}
			probe := qpOf(r)
			d.caps.MaxInline = int(probe.max_inline)
			return destroyed("destroy queue pair", C.shim_qp_destroy(probe))
		}
	}
	return err
}

// chooseSource finds the local address of connections, where a GID or a device was named.
func (d *device) chooseSource(o Options) error {
	if !d.ethernet {
		if o.GID != AnyGID {
			return fmt.Errorf("RDMA device %s has no GID to choose: leave gid out", d.name)
		}
		return nil
	}
	if o.GID == AnyGID && o.Device == "" {
		return nil
	}
	table, err := d.gids()
	if err != nil {
		return err
	}
	g, ok := chooseGID(table, o.GID)
	switch {
	case ok:
		d.chosen = g
	case o.GID != AnyGID:
		return fmt.Errorf("RDMA device %s has no GID with index %d: %s", d.name, o.GID, listGIDs(table))
	}
	return nil
}

// gidFor is the index of the local GID of a connection for which the connection manager has chosen index.
func (d *device) gidFor(index int) int {
	if d.gid != AnyGID {
		return d.gid
	}
	table, err := d.gids()
	if err != nil {
		return index
	}
	return version2(table, index)
}

// gids is the GID table of the port, without empty entries.
func (d *device) gids() ([]gid, error) {
	const most = 1024
	raw := make([]C.struct_shim_gid, most)
	n := C.shim_gids(d.context, C.int(d.port), &raw[0], most)
	if n < 0 {
		return nil, failed("query the GID table of RDMA device "+d.name, n)
	}
	table := make([]gid, n)
	for i := range table {
		r := &raw[i]
		var a [16]byte
		for j := range a {
			a[j] = byte(r.addr[j])
		}
		table[i] = gid{int(r.index), netip.AddrFrom16(a).Unmap(), r.v2 != 0}
	}
	return table, nil
}

func (d *device) Name() string     { return d.name }
func (d *device) Caps() verbs.Caps { return d.caps }

// Close fails while anything on the device is open, or the kernel does not let go of a connection that was called off.
func (d *device) Close() error {
	if !d.settled() {
		return fmt.Errorf("ibverbs: close RDMA device %s: the kernel is still making a connection that was called off, which can take two minutes if nothing answers: close it then; "+
			"the end of the process frees it, too: %w", d.name, verbs.ErrTimeout)
	}
	if n := d.refs.Load(); n != 0 {
		return fmt.Errorf("ibverbs: close RDMA device %s: %d protection domains, completion queues or listeners are still open", d.name, n)
	}
	var err error
	d.closing.Do(func() { err = d.release() })
	return err
}

// settled waits until all queue pairs that were closed are freed.
func (d *device) settled() bool {
	done := make(chan struct{})
	go func() {
		d.late.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(closePatience):
		return false
	}
}

func (d *device) release() error {
	var errs []error
	if d.async != nil {
		errs = append(errs, d.async.close())
	}
	if d.context != nil {
		errs = append(errs, destroyed("close RDMA device "+d.name, C.ibv_close_device(d.context)))
	}
	return errors.Join(append(errs, d.cm.close())...)
}

// add gives a queue pair its handle.
func (d *device) add(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	qps := maps.Clone(*d.qps.Load())
	for ok := true; ok; _, ok = qps[d.handle] {
		d.handle = d.handle%maxHandle + 1
	}
	q.handle, q.qpn = d.handle, uint32(q.c.qp.qp_num)
	qps[q.handle] = q
	d.qps.Store(&qps)
}

func (d *device) remove(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	qps := maps.Clone(*d.qps.Load())
	delete(qps, q.handle)
	d.qps.Store(&qps)
}

func (d *device) find(handle uint32) *qp { return (*d.qps.Load())[handle] }

func (d *device) addCQ(q *completionQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cqs[q.number] = q
}

func (d *device) removeCQ(q *completionQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cqs, q.number)
}

var errQueue = errors.New("ibverbs: the completion queue failed: the device could not write a completion")

// failCQ fails the queue pairs of a completion queue in which the device completes nothing any more: what they have outstanding is completed
// here. One that is being connected fails when it is (qp.connected), and a later one is refused.
func (d *device) failCQ(number uint64) {
	d.mu.RLock()
	c := d.cqs[number]
	d.mu.RUnlock()
	if c == nil {
		return // destroyed since
	}
	c.broken.Store(true)
	d.failAll(verbs.StatusTransport, errQueue, func(q *qp) bool { return q.scq == c || q.rcq == c })
}

// lost ends all that waits for a device that does not come back. A device that failed need not have been removed, so its listeners, to
// which no connection will come any more, are told as well.
func (d *device) lost(cause error) {
	d.cm.failListeners(cause)
	d.failAll(verbs.StatusTransport, cause, func(*qp) bool { return true })
}

// failAll fails the queue pairs for which match is true.
func (d *device) failAll(status verbs.Status, cause error, match func(*qp) bool) {
	d.mu.RLock()
	var hit []*qp
	for _, q := range *d.qps.Load() {
		if match(q) {
			hit = append(hit, q)
		}
	}
	d.mu.RUnlock()
	for _, q := range hit {
		q.lose(status, cause)
	}
}

// resolve turns "host:port" into an address.
func resolve(ctx context.Context, addr string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return &net.TCPAddr{IP: net.IPv4zero, Port: number}, nil
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	return &net.TCPAddr{IP: ips[0].IP, Zone: ips[0].Zone, Port: number}, nil
}
