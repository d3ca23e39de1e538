package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows how far a file is: one line that is written over on a terminal, else a plain line now and then.
type progress struct {
	out      io.Writer
	terminal bool
	name     string
	size     uint64
	start    time.Time
	from     uint64 // bytes that were there at start
	done     uint64
	shown    time.Time
}

const (
	barWidth     = 30
	barInterval  = 100 * time.Millisecond
	lineInterval = 2 * time.Second
)

// begin starts the clock of the rate: n bytes are there already.
func (p *progress) begin(n uint64) {
	p.start, p.from, p.done = time.Now(), n, n
	p.shown = p.start
}

// update says that n bytes have arrived.
func (p *progress) update(n uint64) {
	p.done = n
	interval := lineInterval
	if p.terminal {
		interval = barInterval
	}
	if now := time.Now(); now.Sub(p.shown) >= interval {
		p.shown = now
		p.print()
	}
}

func (p *progress) print() {
	part := 1.0
	if p.size > 0 {
		part = float64(p.done) / float64(p.size)
	}
	text := fmt.Sprintf("%s %3.0f %%  %s of %s  %s/s", p.name, 100*part, inUnits(p.done), inUnits(p.size), inUnits(p.rate()))
	if p.terminal {
		n := int(part * barWidth)
		fmt.Fprintf(p.out, "\r[%s%s] %s\x1b[K", strings.Repeat("#", n), strings.Repeat(".", barWidth-n), text)
		return
	}
	fmt.Fprintln(p.out, text)
}

func (p *progress) rate() uint64 {
	d := time.Since(p.start).Seconds()
	if p.start.IsZero() || d == 0 {
		return 0
	}
	return uint64(float64(p.done-p.from) / d)
}

// note prints a line of its own.
func (p *progress) note(format string, a ...any) {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "%s: %s\n", p.name, fmt.Sprintf(format, a...))
}

// end prints the last state, if there was one.
func (p *progress) end() {
	if p.start.IsZero() {
		return
	}
	p.print()
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

// inUnits writes n bytes with a binary prefix.
func inUnits(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprint(n, " B")
	}
	v, i := float64(n)/(1<<10), 0
	for ; v >= 1<<10 && i < 5; i++ {
		v /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[i])
}
