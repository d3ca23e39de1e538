package crash

import (
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"
)

// Hunt runs workloads one after another until a time, and stops at the first failure.
type Hunt struct {
	Until  time.Time
	First  uint64 // seed of the first run of each kind
	Cursor uint64 // number of the first sequence of length 3
	Counts Counts

	mu     sync.Mutex // protects all below
	seed   uint64
	triple uint64
	next   func() ([]Op, bool)
	turn   int
	failed *Failure
	spec   Spec
}

// turns are the kinds that come between the sequences, each after sequencesBetween of them.
var turns = []string{"lives", "mirrored", "bare-lives", "full", "lives", "mirrored", "long-lives", "lives", "full-lives", "disks", "bounced", "repeats", "methods", "restarts", "refill"}

const sequencesBetween = 10

// Run hunts with one goroutine per processor. It returns nil if nothing was found.
func (h *Hunt) Run() (Spec, *Failure) {
	h.seed, h.triple = h.First, h.Cursor
	next, stop := iter.Pull(sequences(3, true))
	defer stop()
	for range h.Cursor {
		next()
	}
	h.next = next
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(h.work)
	}
	wg.Wait()
	return h.spec, h.failed
}

func (h *Hunt) work() {
	for {
		spec, cfg, ok := h.take()
		if !ok {
			return
		}
		if f := Run(cfg, &h.Counts); f != nil {
			h.mu.Lock()
			if h.failed == nil {
				h.spec, h.failed = spec, f
			}
			h.mu.Unlock()
		}
	}
}

// take is the next run.
func (h *Hunt) take() (s Spec, c Config, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil || time.Now().After(h.Until) {
		return s, c, false
	}
	h.turn++
	if h.turn%(sequencesBetween+1) > 0 {
		if ops, more := h.next(); more {
			s = Spec{"triple", h.triple}
			h.triple++
			return s, sequenceConfig(s.Seed, ops, Quick), true
		}
	}
	s = Spec{turns[h.seed%uint64(len(turns))], h.seed}
	h.seed++
	c, err := s.Config()
	return s, c, err == nil
}

// Summary says what was run so far.
func (h *Hunt) Summary(since time.Duration) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &h.Counts
	return fmt.Sprintf("%d images (%.0f per second), %d equal ones left out, %d events, %d runs with %d mounts and %d acknowledged fsyncs; seeds %d to %d, sequences of length 3 from %d to %d",
		c.Images.Load(), float64(c.Images.Load())/since.Seconds(), c.Same.Load(), c.Events.Load(), c.Sequences.Load(), c.Mounts.Load(), c.Acks.Load(),
		h.First, h.seed, h.Cursor, h.triple)
}
