//go:build race

package pmem

// raceEnabled turns the assembly copies off: the race detector does not see their stores.
const raceEnabled = true
