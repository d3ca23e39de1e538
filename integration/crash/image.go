package crash

import (
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/fs/volume/layout"
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
	floor   uint64         // group that is sealed for sure
	event   pmemtest.Event // the present one
	events  int            // so far
	term    uint64         // in the header for sure
	reach   reach
	// refused: an msync of it has failed, so it is not worth anything, and its mark may be lost too.
	refused bool
}

// seen is what an image recovered to. An Inconsistent one has no line.
type seen struct {
	lsn, clock   uint64
	inconsistent bool
}

// follow puts c on a line.
func (c *copyUnderTest) follow(l *line) {
	if c.line != l || c.refused {
		c.line, c.seen, c.refused = l, make(map[uint64]seen), false
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
	c.event = e
	c.events++
	if c.name != w.cfg.Blind && !c.refused {
		first := true // the image of what is durable for sure comes first
		c.region.Images(w.cfg.Effort, w.rnd, func(m *pmemtest.Image) bool {
			if err := w.examine(c, m, first); err != nil {
				w.failAt(fmt.Sprintf("%s at a %v, image: %v", c.name, e, m), err)
			}
			first = false
			return true
		})
		if err := w.ahead(c); err != nil {
			w.failAt(fmt.Sprintf("%s at a %v", c.name, e), err)
		}
	}
	if c == w.primary.copyUnderTest {
		w.mishap()
		w.explode()
		w.beside()
	}
}

// examine judges an image, unless an equal one was judged on the same line.
func (w *World) examine(c *copyUnderTest, m *pmemtest.Image, first bool) (err error) {
	s, ok := c.seen[m.Hash]
	if ok {
		if first {
			c.floor = s.lsn
		}
		w.observe(c, s)
		w.counts.Same.Add(1)
		return c.judge.settled(s, c.line)
	}
	w.counts.Images.Add(1)
	w.counts.Digest.Add(m.Hash)
	m.Bytes(func(b []byte) {
		if w.cfg.Setup != Bare {
			s.inconsistent, err = c.header(b, first)
		}
		if err == nil && !s.inconsistent {
			s.lsn, s.clock, err = c.judge.image(b, c.line, w.flipping(), m.Hash%8 == 0)
		}
	})
	c.seen[m.Hash] = s
	if first {
		c.floor = s.lsn
	}
	w.observe(c, s)
	return err
}

// ahead tests that no super of the target stands for a group that the local copy has not sealed for sure.
func (w *World) ahead(c *copyUnderTest) error {
	if !w.mounted || w.other == nil || c != w.other.copyUnderTest || c.line != w.line || w.cfg.Blind != "" {
		return nil
	}
	for _, off := range volume.SealWords() {
		s, err := layout.DecodeSuper(c.region.Bytes()[off:off+layout.BlockSize], poolUUID)
		if err == nil && s.LSN > w.primary.floor {
			return fmt.Errorf("the super of epoch %d stands for group %d, and the local copy has sealed group %d", s.Epoch, s.LSN, w.primary.floor)
		}
	}
	return nil
}

// header tests what stands in the pool header: whoever promotes or mounts decides by it.
func (c *copyUnderTest) header(b []byte, first bool) (inconsistent bool, err error) {
	info, err := pool.InspectBytes(setOf(c.name), b)
	if err != nil {
		return false, err
	}
	if info.State.Term < c.term {
		return false, fmt.Errorf("the copy had the term %d for sure, and has the term %d now", c.term, info.State.Term)
	}
	if first {
		c.term = info.State.Term
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
