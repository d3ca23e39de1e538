package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// Test is one line of a measurement.
type Test struct {
	Name string // WriteLatency, ...
	Size int    // bytes of one work request: a multiple of 8, MinSize to MaxSize
}

// Names of tests.
const (
	WriteLatency     = "write_lat"
	ReadLatency      = "read_lat"
	WriteReadLatency = "write_read_lat"
	WriteBandwidth   = "write_bw"
	ReadBandwidth    = "read_bw"
)

// Names are all of them.
func Names() []string {
	return []string{WriteLatency, ReadLatency, WriteReadLatency, WriteBandwidth, ReadBandwidth}
}

// Sizes are those that say most about a test; nil for one that does not exist.
func Sizes(name string) []int {
	switch name {
	case WriteLatency, ReadLatency, WriteReadLatency:
		return []int{8, 4096}
	case WriteBandwidth, ReadBandwidth:
		return []int{64 << 10, 1 << 20}
	}
	return nil
}

// Options of a measurement.
type Options struct {
	Iterations int           // round trips of a latency test
	Time       time.Duration // of a bandwidth test
	Window     int           // work requests in flight in a bandwidth test
	Busy       bool          // both sides poll without ever sleeping, as perftest's do; a transfer sleeps all the same
}

// Check refuses options and tests that Run cannot carry out.
func (o *Options) Check(tests []Test) error {
	switch {
	case o.Iterations < 1 || o.Iterations > 1<<24:
		return fmt.Errorf("%d round trips: want 1 to %d", o.Iterations, 1<<24)
	case o.Time <= 0:
		return errors.New("the time of a transfer must be positive")
	case o.Window < 1 || o.Window > depth-1:
		return fmt.Errorf("a window of %d work requests: want 1 to %d", o.Window, depth-1)
	}
	for _, t := range tests {
		if Sizes(t.Name) == nil {
			return fmt.Errorf("%q: there is no such test: the tests are %q", t.Name, Names())
		}
		if t.Size < MinSize || t.Size > MaxSize || t.Size%8 != 0 {
			return fmt.Errorf("%s of %d bytes: want a multiple of 8, %d to %d", t.Name, t.Size, MinSize, MaxSize)
		}
	}
	return nil
}

// Result is one line. The values are percentiles: seconds for latencies, of which a small one is good, bytes per second for bandwidths.
type Result struct {
	Test
	P10, P50, P99 float64
}

// Latency tells whether the values are times.
func (r *Result) Latency() bool { return r.Name != WriteBandwidth && r.Name != ReadBandwidth }

// Run measures over a connection to a server at addr. Each result is handed to done when it is there.
func Run(ctx context.Context, dev verbs.Device, addr string, o Options, tests []Test, done func(Result)) error {
	if err := o.Check(tests); err != nil {
		return err
	}
	s, err := newSide(dev)
	if err != nil {
		return err
	}
	defer s.close()
	s.busy = o.Busy
	dial, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	private, err := dev.Connect(dial, s.qp, addr, s.hello())
	if err != nil {
		return fmt.Errorf("%w: the other side has to run already, with the same provider: pmemfs bench fabric --listen %s", err, addr)
	}
	if err := s.meet(private); err != nil {
		return err
	}
	m := &measurement{side: s, opt: o, next: 1}
	for _, t := range tests {
		r, err := m.run(ctx, t)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", t.Name, t.Size, err)
		}
		done(r)
	}
	return nil
}

type measurement struct {
	*side
	opt  Options
	next uint64 // sequence number of the next WRITE of an exchange
}

func (m *measurement) run(ctx context.Context, t Test) (Result, error) {
	var values []float64
	var err error
	switch t.Name {
	case WriteLatency:
		values, err = m.writeLatency(ctx, t.Size)
	case ReadLatency:
		m.wrs[0] = m.read(t.Size)
		values, err = m.readLatency(ctx, 1)
	case WriteReadLatency:
		m.wrs[0], m.wrs[1] = m.write(t.Size), m.read(MinSize)
		values, err = m.readLatency(ctx, 2)
	case WriteBandwidth:
		values, err = m.bandwidth(ctx, verbs.OpWrite, t.Size)
	default: // ReadBandwidth
		values, err = m.bandwidth(ctx, verbs.OpRead, t.Size)
	}
	if err != nil {
		return Result{}, err
	}
	slices.Sort(values)
	at := func(p int) float64 { return values[(len(values)-1)*p/100] }
	return Result{t, at(10), at(50), at(99)}, nil
}

func (m *measurement) writeLatency(ctx context.Context, size int) ([]float64, error) {
	n := m.opt.Iterations + warmUp(m.opt.Iterations)
	e, err := m.startExchange(ctx, size, n, m.next, m.busy)
	if err != nil {
		return nil, err
	}
	m.next += uint64(n)
	values, err := m.latency(ctx, func() error { return e.trip(ctx) })
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] /= 2
	}
	return values, nil
}

// readLatency measures round trips of the first n work requests of wrs.
func (m *measurement) readLatency(ctx context.Context, n int) ([]float64, error) {
	if m.busy { // so is the server, although it has nothing to do: its processor stays awake
		if _, err := m.startExchange(ctx, MinSize, 0, m.next, true); err != nil {
			return nil, err
		}
	}
	return m.latency(ctx, func() error { return m.roundTrip(n) })
}

func (m *measurement) latency(ctx context.Context, loop func() error) ([]float64, error) {
	times := make([]time.Duration, m.opt.Iterations)
	if err := measure(ctx, times, loop); err != nil {
		return nil, err
	}
	values := make([]float64, len(times))
	for i, t := range times {
		values[i] = t.Seconds()
	}
	return values, nil
}

// RoundBytes is about what a round of a bandwidth test moves, by no more than roundMost work requests, and by no fewer than the window has.
const (
	RoundBytes = 32 << 20
	roundMost  = 4096
)

func (m *measurement) bandwidth(ctx context.Context, op verbs.Opcode, size int) ([]float64, error) {
	if _, err := m.startExchange(ctx, MinSize, 0, m.next, false); err != nil { // a server that polls takes a processor that a software device needs
		return nil, err
	}
	n := max(m.opt.Window, min(RoundBytes/size, roundMost))
	return m.newTransfer(op, size, m.opt.Window, n).rates(ctx, m.opt.Time)
}
