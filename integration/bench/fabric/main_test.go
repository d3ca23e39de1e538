package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/verbs/perf"
)

func TestParseTrips(t *testing.T) {
	out := "---\n Device         : rdma_b\n#, usec\n"
	for i := range 11 {
		out += fmt.Sprintf("%d, %d.5\n", i+1, 30-i)
	}
	out += " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 8       11          20.50          30.50       25.50 \t       25.50\n"
	if f, err := parseTrips(out); err != nil || f != (figure{21.5, 25.5}) {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := parseTrips("#, usec\n"); err == nil {
		t.Errorf("no times: %v", f)
	}
}

func TestParseRow(t *testing.T) {
	bandwidth := " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n 65536      500              75.11              74.02\t\t   0.001184\n"
	if f, err := parseRow(bandwidth, perf.Test{Name: perf.ReadBandwidth, Size: 65536}); err != nil || f.p50 != 74.02 {
		t.Errorf("bandwidth %v, %v", f, err)
	}
	if f, err := parseRow(bandwidth, perf.Test{Name: perf.ReadBandwidth, Size: 4096}); err == nil {
		t.Errorf("a size that is not there: %v", f)
	}
}

// TestPercentile: of few rounds the percentiles are different ones.
func TestPercentile(t *testing.T) {
	for p, want := range map[int]float64{0: 1, 10: 2, 50: 4, 90: 6, 100: 7} {
		if got := percentile([]float64{7, 3, 5, 1, 2, 6, 4}, p); got != want {
			t.Errorf("p%d is %v, want %v", p, got, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for out, want := range map[string]float64{
		"f 50 %  2.0 MiB of 4.0 MiB  9.9 MiB/s\nf 100 %  4.0 MiB of 4.0 MiB  7.1 MiB/s\n": 7.1,
		"f 100 %  4.0 MiB of 4.0 MiB  512.0 KiB/s\n":                                      0.5,
		"f 100 %  4.0 GiB of 4.0 GiB  2.0 GiB/s\n":                                        2048,
	} {
		if got, err := parseRate(out); err != nil || got != want {
			t.Errorf("%q: %v, %v", out, got, err)
		}
	}
	if v, err := parseRate("sendfile: lost"); err == nil {
		t.Errorf("a rate of %v", v)
	}
}

func TestJudge(t *testing.T) {
	o := options{latency: 1.5, bandwidth: 0.8}
	lat := &series{Test: perf.Test{Name: perf.ReadLatency, Size: 8}}
	bw := &series{Test: perf.Test{Name: perf.WriteBandwidth, Size: 8}}
	for range 4 { // noise in most rounds is no failure
		lat.add(10, 30)
		bw.add(100, 50)
	}
	if got := o.judge(lat); len(got) != 1 || !strings.Contains(got[0], "3.00 times") {
		t.Errorf("%q", got)
	}
	if got := o.judge(bw); len(got) != 1 || !strings.Contains(got[0], "0.50 of") {
		t.Errorf("%q", got)
	}
	for range 2 {
		lat.add(10, 11)
		bw.add(100, 95)
	}
	if got := append(o.judge(lat), o.judge(bw)...); len(got) != 0 {
		t.Errorf("%q", got)
	}
}
