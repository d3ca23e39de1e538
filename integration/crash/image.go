package crash

import (
	"fmt"

	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// copyUnderTest is one copy of the pool.
type copyUnderTest struct {
	name   string
	id     poolset.UUID
	region *pmemtest.Region
	judge  judge
	// line is the history that the copy is on; nil in the middle of a full copy, when it must say that it is Inconsistent.
	line *line
	seen map[uint64]seen // images that were judged, by hash
	// marking: the state slot is being written that says whether the copy is Inconsistent.
	marking bool
}

// seen is what an image recovered to. An Inconsistent one has no line.
type seen struct {
	lsn, clock   uint64
	inconsistent bool
}

// follow puts c on a line.
func (c *copyUnderTest) follow(l *line) {
	if c.line != l {
		c.line, c.seen = l, make(map[uint64]seen)
	}
}

// watch judges the images of c at each event from now on.
func (w *World) watch(c *copyUnderTest) {
	c.judge = judge{dirs: rootDirs, now: fixedTime}
	c.seen = make(map[uint64]seen)
	c.region.OnEvent(func(e pmemtest.Event) { w.event(c, e) })
}

// event judges the crash images of c. Then others go on: while the committer drains the local copy, so do threads of the file system, the fabric and
// the target.
func (w *World) event(c *copyUnderTest, e pmemtest.Event) {
	w.counts.Events.Add(1)
	w.noteClosed()
	if c.name != w.cfg.Blind {
		c.region.Images(w.cfg.Effort, w.rnd, func(m *pmemtest.Image) bool {
			if err := w.examine(c, m); err != nil {
				w.failAt(fmt.Sprintf("%s at a %v, image: %v", c.name, e, m), err)
			}
			return true
		})
	}
	if c == w.primary.copyUnderTest {
		w.mishap()
		w.beside()
	}
}

// examine judges an image, unless an equal one was judged on the same line.
func (w *World) examine(c *copyUnderTest, m *pmemtest.Image) (err error) {
	s, ok := c.seen[m.Hash]
	if ok {
		w.counts.Same.Add(1)
		return c.judge.settled(s, c.line)
	}
	w.counts.Images.Add(1)
	m.Bytes(func(b []byte) {
		if w.cfg.Setup != Bare {
			s.inconsistent, err = c.header(b)
		}
		if err == nil && !s.inconsistent {
			s.lsn, s.clock, err = c.judge.image(b, c.line, w.flipping(), m.Hash%8 == 0)
		}
	})
	c.seen[m.Hash] = s
	return err
}

// header tests what stands in the pool header: whoever promotes or mounts decides by it.
func (c *copyUnderTest) header(b []byte) (inconsistent bool, err error) {
	info, err := pool.InspectBytes(&poolset.Set{File: "image"}, b)
	if err != nil {
		return false, err
	}
	inconsistent = info.State.Flags&poolset.Inconsistent != 0 || info.State.Gen == 0 || info.State.Writer.IsZero()
	switch {
	case c.marking:
	case inconsistent && c.line != nil:
		err = fmt.Errorf("the copy is marked Inconsistent, and no full copy is under way")
	case !inconsistent && c.line == nil:
		err = fmt.Errorf("a full copy is under way, and the copy is not marked Inconsistent")
	}
	return inconsistent, err
}
