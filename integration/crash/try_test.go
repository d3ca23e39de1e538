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
		if f := Run(Random(s, *length), &c); f != nil {
			t.Logf("seed %d: %v", s, f)
			t.Fail()
		}
	}
	t.Log(c.Images.Load(), c.Same.Load(), c.Events.Load(), c.Acks.Load(), time.Since(start))
}
