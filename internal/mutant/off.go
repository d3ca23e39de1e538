//go:build !mutants

package mutant

// Enabled: this build has the faults.
const Enabled = false

// On is false.
func On(Name) bool { return false }
