//go:build mutants

package mutant

import "sync/atomic"

// Enabled: this build has the faults.
const Enabled = true

var active atomic.Value

// Set switches one fault on and all others off; the empty name switches all off.
func Set(n Name) { active.Store(n) }

// On tells whether this fault is switched on.
func On(n Name) bool { return active.Load() == n }
