package pauses

import (
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestPercentile99(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		hs   []metrics.Float64Histogram
		want float64
	}{
		{nil, 0},
		{[]metrics.Float64Histogram{{Counts: []uint64{0, 0}, Buckets: []float64{0, 1, 2}}}, 0},
		{[]metrics.Float64Histogram{{Counts: []uint64{99, 1}, Buckets: []float64{0, 1, 2}}}, 1},
		{[]metrics.Float64Histogram{{Counts: []uint64{98, 2}, Buckets: []float64{0, 1, 2}}}, 2},
		{[]metrics.Float64Histogram{{Counts: []uint64{1, 1}, Buckets: []float64{0, 1, inf}}}, inf},
		{[]metrics.Float64Histogram{{Counts: []uint64{10}, Buckets: []float64{0, 1}}, {Counts: []uint64{1}, Buckets: []float64{2, 3}}}, 3},
		{[]metrics.Float64Histogram{{Counts: []uint64{990}, Buckets: []float64{0, 1}}, {Counts: []uint64{1}, Buckets: []float64{2, 3}}}, 1},
	} {
		if got := percentile99(c.hs); got != c.want {
			t.Errorf("%v: %v, expected %v", c.hs, got, c.want)
		}
	}
}

// The names of the metrics are those that the runtime has.
func TestPauseP99(t *testing.T) {
	runtime.GC()
	if p := P99(); p <= 0 || p > 10 {
		t.Errorf("after a collection: %v s", p)
	}
}
