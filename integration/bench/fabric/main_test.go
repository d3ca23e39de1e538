package main

import (
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/verbs/perf"
)

func TestParse(t *testing.T) {
	latency := "---\n Device         : rdma_b\n---\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n" +
		" 8       1000          21.10          310.55       25.05 \t       26.11       \t4.50\n"
	if v, err := parse(latency, perf.Test{Name: perf.WriteLatency, Size: 8}); err != nil || v != 25.05 {
		t.Errorf("latency %v, %v", v, err)
	}
	bandwidth := " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n 65536      500              75.11              74.02\t\t   0.001184\n"
	if v, err := parse(bandwidth, perf.Test{Name: perf.ReadBandwidth, Size: 65536}); err != nil || v != 74.02 {
		t.Errorf("bandwidth %v, %v", v, err)
	}
	if v, err := parse(bandwidth, perf.Test{Name: perf.ReadBandwidth, Size: 4096}); err == nil {
		t.Errorf("a size that is not there: %v", v)
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
