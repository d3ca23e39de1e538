package main

import (
	"fmt"
	"time"
)

// runner executes the steps of the demo.
type runner struct {
	start time.Time
	step  int
}

// do prints a step with the time it took; the first error ends the demo.
func (r *runner) do(what string, fn func() error) error {
	r.step++
	fmt.Printf("%2d. %-66s ", r.step, what)
	begin := time.Now()
	err := fn()
	result := "ok"
	if err != nil {
		result = "FAILED"
	}
	fmt.Printf("%7.2f s  %s\n", time.Since(begin).Seconds(), result)
	return err
}
