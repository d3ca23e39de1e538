//go:build race

package crash

// share is the part of the runs that the race detector leaves time for: one in so many.
const share = 150
