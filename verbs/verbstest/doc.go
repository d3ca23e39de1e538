// Package verbstest is a verbs provider in memory, for tests, and the suite that every provider must pass (TestProvider).
//
// All devices of a Fabric reach each other. A work request is executed as a whole, at one moment: its bytes are placed,
// its receive is taken, and its completions are there. With Auto that moment is PostSend itself. Without, posted work
// waits until Step executes the oldest one of the whole fabric, or StepQP the oldest of one queue pair. So a test that uses one goroutine
// is deterministic, and can look at, break or close anything between two work requests.
//
// Options of a fabric, set before its first device is made: Hardware devices place bytes without a CPU; Native ones have FLUSH and ATOMIC_WRITE; Reorder and Overtake carry out work requests in
// the orders that package verbs allows, Persist says when placed bytes outlive a loss of power. As issued, all is done in the order posted.
//
// The fabric has no goroutine. One mutex protects it all, and all memory is accessed with it held. Connections are made
// with Listen, Connect and Accept from two goroutines, or with Link from one.
package verbstest
