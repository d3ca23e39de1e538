//go:build mutants

package mutant

import (
	"os"
	"sync/atomic"
)

// Enabled: this build has the faults.
const Enabled = true

var active atomic.Value

func init() { Set(Name(os.Getenv("PMEMFS_MUTANT"))) }

// Set switches one fault on and all others off; the empty name switches all off. The environment variable PMEMFS_MUTANT does so at the start.
func Set(n Name) { active.Store(n) }

// On tells whether this fault is switched on.
func On(n Name) bool { return active.Load() == n }
