package pauses

import (
	"encoding/json"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
)

func TestP99(t *testing.T) {
	for _, c := range []struct {
		h    Histogram
		want float64
	}{
		{nil, 0},
		{Histogram{{1, 99}, {2, 1}}, 1},
		{Histogram{{1, 98}, {2, 2}}, 2},
		{Histogram{{1, 990}, {2, 9}, {3, 1}}, 1},
		{Histogram{{1, 10}, {3, 1}}, 3},
	} {
		if got := c.h.P99(); got != c.want {
			t.Errorf("%v: %v, expected %v", c.h, got, c.want)
		}
	}
}

func TestPlusAndSince(t *testing.T) {
	a, b := Histogram{{1, 5}, {3, 2}}, Histogram{{1, 1}, {2, 4}, {3, 2}}
	sum := a.Plus(b)
	if want := (Histogram{{1, 6}, {2, 4}, {3, 4}}); !slices.Equal(sum, want) || sum.Count() != 14 {
		t.Errorf("%v, expected %v", sum, want)
	}
	if got := sum.Since(a); !slices.Equal(got, b) {
		t.Errorf("%v, expected %v", got, b)
	}
	if got := sum.Since(sum); got != nil {
		t.Errorf("%v, expected none", got)
	}
}

// A pause that no bucket bounds can be told in JSON.
func TestBuckets(t *testing.T) {
	h := buckets(&metrics.Float64Histogram{Counts: []uint64{2, 0, 1}, Buckets: []float64{math.Inf(-1), 1, 2, math.Inf(1)}})
	if want := (Histogram{{1, 2}, {math.MaxFloat64, 1}}); !slices.Equal(h, want) {
		t.Errorf("%v, expected %v", h, want)
	}
	var back Histogram
	text, err := json.Marshal(h)
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || !slices.Equal(back, h) {
		t.Errorf("%s: %v, %v", text, back, err)
	}
}

// The names of the metrics are those that the runtime has.
func TestRead(t *testing.T) {
	before := Read()
	runtime.GC()
	h := Read().Since(before)
	if n, p := h.Count(), h.P99(); n == 0 || n > 1000 || p <= 0 || p > 10 {
		t.Errorf("a collection made %d pauses, p99 %v s", n, p)
	}
}
