//go:build sabotage_drain

package commit

import (
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// lag is the time between two drains that a liar sends: longer than a drain takes, so that the target falls behind.
const lag = 20 * time.Millisecond

// wrap puts a liar in front of each target: it reports a drain as done at once, and sends it when it gets round to it. Its
// goroutines live as long as the process.
func (c *Committer) wrap(targets []Copy) []Copy {
	out := make([]Copy, len(targets))
	for i, t := range targets {
		jobs := make(chan drain, 1<<20)
		go func() {
			for d := range jobs {
				t.Drain(d.seq, d.ranges, d.seal)
				time.Sleep(lag)
			}
		}()
		out[i] = liar{jobs, func(seq uint64) { c.Drained(i+1, seq, nil) }}
	}
	return out
}

type drain struct {
	seq    uint64
	ranges []pmem.Range
	seal   pmem.Seal
}

type liar struct {
	jobs   chan<- drain
	report func(seq uint64)
}

func (l liar) Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal) {
	l.jobs <- drain{seq, append([]pmem.Range(nil), ranges...), seal}
	go l.report(seq)
}
