// Package pauses tells how long the Go runtime has stopped this process, for a collection of garbage or anything else.
package pauses

import (
	"cmp"
	"math"
	"runtime/metrics"
	"slices"
)

// Bucket counts pauses that took no longer than Most, and longer than the Most of the bucket before it.
type Bucket struct {
	Most  float64 `json:"most_seconds"`
	Count uint64  `json:"count"`
}

// Histogram is a number of pauses, in buckets with some in them, the short ones first.
type Histogram []Bucket

// Read returns all pauses since the process began. Source: package runtime/metrics.
func Read() Histogram {
	samples := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/pauses/total/other:seconds"}}
	metrics.Read(samples)
	var h Histogram
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindFloat64Histogram {
			h = h.Plus(buckets(s.Value.Float64Histogram()))
		}
	}
	return h
}

func buckets(m *metrics.Float64Histogram) (h Histogram) {
	for i, n := range m.Counts {
		if n > 0 {
			h = append(h, Bucket{min(m.Buckets[i+1], math.MaxFloat64), n}) // JSON knows no infinity
		}
	}
	return h
}

// Plus returns the pauses of both.
func (h Histogram) Plus(other Histogram) Histogram {
	return h.merge(other, func(a, b uint64) uint64 { return a + b })
}

// Since returns those that an earlier Read of the same process did not have.
func (h Histogram) Since(earlier Histogram) Histogram {
	return h.merge(earlier, func(now, then uint64) uint64 { return now - then })
}

func (h Histogram) merge(other Histogram, count func(a, b uint64) uint64) (merged Histogram) {
	all := slices.SortedFunc(slices.Values(slices.Concat(h, other)), func(a, b Bucket) int { return cmp.Compare(a.Most, b.Most) })
	for _, b := range slices.CompactFunc(all, func(a, b Bucket) bool { return a.Most == b.Most }) {
		if n := count(h.at(b.Most), other.at(b.Most)); n > 0 {
			merged = append(merged, Bucket{b.Most, n})
		}
	}
	return merged
}

func (h Histogram) at(most float64) uint64 {
	for _, b := range h {
		if b.Most == most {
			return b.Count
		}
	}
	return 0
}

// Count is how many there are.
func (h Histogram) Count() (n uint64) {
	for _, b := range h {
		n += b.Count
	}
	return n
}

// P99 is the time in seconds that at least 99 % of them did not exceed, as exact as the buckets are; 0 if there is none.
func (h Histogram) P99() float64 {
	total, n := h.Count(), uint64(0)
	for _, b := range h {
		if n += b.Count; n*100 >= total*99 {
			return b.Most
		}
	}
	return 0
}
