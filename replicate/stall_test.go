package replicate

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs/iwarp"
)

// road forwards TCP connections to an address, until it is blocked: then it takes no byte more, as a network that drops everything.
type road struct {
	listener net.Listener
	to       string
	group    sync.WaitGroup

	mu     sync.Mutex
	change sync.Cond
	closed bool
	block  bool
	conns  []net.Conn
}

func newRoad(t testing.TB, to string) *road {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &road{listener: l, to: to}
	r.change.L = &r.mu
	r.group.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *road) set(blocked bool) {
	r.mu.Lock()
	r.block = blocked
	r.change.Broadcast()
	r.mu.Unlock()
}

func (r *road) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for _, c := range r.conns {
		c.Close()
	}
	r.change.Broadcast()
	r.mu.Unlock()
	r.group.Wait()
}

func (r *road) accept() {
	for {
		a, err := r.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", r.to)
		if err != nil {
			a.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, a, b)
		r.mu.Unlock()
		r.group.Go(func() { r.carry(a, b) })
		r.group.Go(func() { r.carry(b, a) })
	}
}

func (r *road) carry(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for r.block && !r.closed {
			r.change.Wait()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// stallPair is a pair with a road for each kind of connection.
func stallPair(t *testing.T, method wire.Method, timeout time.Duration) (p *pair, block func(bool)) {
	init := iwarp.New(iwarp.Options{WriteTimeout: timeout / 2})
	p = &pair{t: t, target: newFakeTarget(t, iwarp.New(iwarp.Options{}), "127.0.0.1:0", testSize), region: pmem.NewHeap(testSize), reported: make(chan reported, 64)}
	p.target.use(method)
	control, lane := newRoad(t, p.target.addr()), newRoad(t, p.target.fabric.Addr().String())
	p.target.lanesAt = lane.listener.Addr().String()
	id := testIdentity()
	id.Size = testSize
	r, err := Connect(t.Context(), Config{Name: "b", Pool: "p.set", Addr: control.listener.Addr().String(), Device: init, Timeout: timeout,
		Durability: wire.DurabilityMedia, Method: method, Log: silent(), OnDrained: func(seq uint64, err error) { p.reported <- reported{seq, err} }}, p.region, id)
	must(t, err)
	p.Replica = r
	t.Cleanup(func() { r.Close(t.Context()) })
	return p, func(b bool) { control.set(b); lane.set(b) }
}

// Drains larger than what the sockets hold find the network dead: the write itself blocks.
func TestReplica_NetworkDies(t *testing.T) {
	const timeout = 500 * time.Millisecond
	p, block := stallPair(t, wire.GPSPM, timeout)
	p.attach()
	block(true)
	begin := time.Now()
	for seq := range uint64(MaxInFlight) {
		p.Drain(seq, []pmem.Range{{Off: 16384, Len: testSize - 16384}}, pmem.Seal{Off: testSeal, Val: seq + 1})
	}
	for seq := range uint64(MaxInFlight) {
		if err := p.expect(seq); !errors.Is(err, ErrTimeout) {
			t.Errorf("drain %d: %v", seq, err)
		}
	}
	if d := time.Since(begin); d > 2*timeout+3*time.Second {
		t.Errorf("failed after %v", d)
	}
}

// A network that is dead for less than the timeout costs time, not drains.
func TestReplica_NetworkPauses(t *testing.T) {
	const timeout = 3 * time.Second
	p, block := stallPair(t, wire.GPSPM, timeout)
	p.attach()
	for round := range uint64(3) {
		block(true)
		for i := range uint64(4) {
			p.Drain(4*round+i, []pmem.Range{{Off: 16384, Len: 1 << 20}}, pmem.Seal{Off: testSeal, Val: 4*round + i + 1})
		}
		time.Sleep(100 * time.Millisecond)
		block(false)
		for i := range uint64(4) {
			must(t, p.expect(4*round+i))
		}
	}
}

// The committer holds OnDrained up while it drains the local copy, and a slow disk may take longer for it than the target may
// take for an answer. What the target has answered by then is not late.
func TestReplica_SlowOnDrainedIsNoLoss(t *testing.T) {
	const timeout = 400 * time.Millisecond
	providers(t, func(t *testing.T, rig rig) {
		p := newPair(t, rig, timeout)
		p.attach()
		p.reported = make(chan reported) // holds OnDrained up until expect
		for seq := range uint64(4) {
			p.Drain(seq+1, nil, pmem.Seal{Off: testSeal, Val: seq + 1})
			<-p.target.seals
			time.Sleep(timeout / 8)
		}
		time.Sleep(2 * timeout)
		for seq := range uint64(4) {
			if err := p.expect(seq + 1); err != nil {
				t.Errorf("drain %d: %v", seq+1, err)
			}
		}
		if st := p.Status(); st.State != InSync {
			t.Errorf("state %v: %v", st.State, st.Err)
		}
	})
}
