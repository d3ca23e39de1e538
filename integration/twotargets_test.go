package integration

import (
	"fmt"
	"syscall"
	"testing"
)

// TestTwoTargets: what was acknowledged is on both targets, whichever is lost and whichever is promoted; without one of them nothing more is acknowledged.
func TestTwoTargets(t *testing.T) {
	for _, c := range []struct {
		lost    []int
		promote int
	}{{[]int{0}, 1}, {[]int{1}, 0}, {[]int{0, 1}, 1}, {nil, 0}} {
		t.Run(fmt.Sprintf("lost %v, promoted %d", c.lost, c.promote), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{targets: 2})
			loop := r.appendLoop("loop")
			loop.waitFor(50)
			for _, i := range c.lost {
				r.must(r.targets[i].Kill())
			}
			if c.lost != nil {
				r.must(within(t, 6*soon, "end of the program that appends", func() error { _ = loop.cmd.Wait(); return nil }))
				err := within(t, soon, "fsync", func() error { return writeSync(r.path("late"), []byte("late")) })
				wantErrno(t, "a change without a target", err, syscall.EROFS)
			}
			r.must(r.pool.Kill())
			if c.lost == nil {
				loop.ended()
			}
			for _, i := range c.lost {
				if i == c.promote {
					r.must(r.targets[i].Start())
				}
			}
			p := r.promoted(c.promote)
			loop.check(p)
			r.must(p.Umount())
			r.checkClean(p)
		})
	}
}
