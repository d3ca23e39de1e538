// Package pauses tells how long the Go runtime has stopped this process.
package pauses

import (
	"math"
	"runtime/metrics"
)

// P99 is the time in seconds that 99 % of the times for which this process was stopped as a whole did not exceed, 0 if it
// never was. Source: package runtime/metrics.
func P99() float64 {
	samples := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/pauses/total/other:seconds"}}
	metrics.Read(samples)
	var all []metrics.Float64Histogram
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindFloat64Histogram {
			all = append(all, *s.Value.Float64Histogram())
		}
	}
	return min(percentile99(all), math.MaxFloat64) // JSON knows no infinity
}

// percentile99 of histograms: the least bound of a bucket that at least 99 % of the values do not exceed.
func percentile99(hs []metrics.Float64Histogram) float64 {
	var total uint64
	for _, h := range hs {
		for _, n := range h.Counts {
			total += n
		}
	}
	if total == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, h := range hs {
		for _, bound := range h.Buckets {
			if bound < best && below(hs, bound)*100 >= total*99 {
				best = bound
			}
		}
	}
	return best
}

// below counts the values in buckets that end at bound or before.
func below(hs []metrics.Float64Histogram, bound float64) (n uint64) {
	for _, h := range hs {
		for i, count := range h.Counts {
			if h.Buckets[i+1] <= bound {
				n += count
			}
		}
	}
	return n
}
