package rig

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// printResult prints one line, and what a failed run has said.
func printResult(w io.Writer, r result, verbose bool) {
	fmt.Fprintf(w, "%-44s %7.1f s  %s\n", r.task, r.seconds, outcome(r))
	if r.failure != "" || verbose {
		fmt.Fprint(w, r.output)
	}
}

func outcome(r result) string {
	switch {
	case r.missing != "":
		return "not run: " + r.missing
	case r.failure != "":
		return "FAILED: " + r.failure
	}
	return "ok"
}

// summary prints the table, and returns an error if a run has failed.
func summary(w io.Writer, results []result, took time.Duration) error {
	fmt.Fprintln(w)
	slices.SortStableFunc(results, func(a, b result) int { return strings.Compare(a.String(), b.String()) })
	failed := 0
	for _, r := range results {
		fmt.Fprintf(w, "%-44s %7.1f s  %s\n", r.task, r.seconds, outcome(r))
		if r.failure != "" {
			failed++
		}
	}
	fmt.Fprintf(w, "%-44s %7.1f s\n", "total", took.Seconds())
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed", failed, len(results))
	}
	return nil
}
