//go:build sabotage_drain

package commit

import (
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// wrap puts a liar in front of each target: it reports a drain as done at once and sends it two seconds later.
func (c *Committer) wrap(targets []Copy) []Copy {
	out := make([]Copy, len(targets))
	for i, t := range targets {
		out[i] = &liar{target: t, report: func(seq uint64) { c.Drained(i+1, seq, nil) }}
	}
	return out
}

type liar struct {
	target Copy
	report func(seq uint64)
}

func (l *liar) Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal) {
	ranges = append([]pmem.Range(nil), ranges...)
	go l.report(seq)
	time.AfterFunc(2*time.Second, func() { l.target.Drain(seq, ranges, seal) })
}
