package crash

import (
	"flag"
	"testing"
	"time"
)

var from = flag.Uint64("from", 1, "")
var count = flag.Uint64("count", 20, "")
var length = flag.Int("length", 100, "")

func TestTry(t *testing.T) {
	var c Counts
	start := time.Now()
	for s := *from; s < *from+*count; s++ {
		if f := Run(pick(s), &c); f != nil {
			t.Logf("seed %d: %v", s, f)
			t.Fail()
		}
	}
	t.Log(c.Images.Load(), c.Same.Load(), c.Events.Load(), c.Acks.Load(), time.Since(start))
}

var setup = flag.String("setup", "bare", "")

func pick(s uint64) Config {
	c := Random(s, *length)
	switch *setup {
	case "mirror":
		c.Setup = Mirrored
	case "lives":
		c = Lives(s, *length)
	}
	return c
}
