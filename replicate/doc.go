// Package replicate is the initiator's side of replication: it makes ranges of a local pool durable in the same place of a
// target's pool, over the lanes of a verbs device.
//
// # Promise
//
// A drain that was reported without error: the ranges and then the seal that it named are in the persistence domain of the target
// (Status.Durability says which), and so is all that was drained before it. Drains are reported in the order in which they were
// started, each exactly once. After the first error a replica is dead: every later drain is reported with that error, and
// a drain whose outcome is unknown counts as failed. A drain waits no longer than the timeout for the next sign of the target, a
// request no longer than RequestTimeout for its answer, and longer only to grow a pool or to claim a huge one.
//
// An fsync, and what counts as one (fdatasync, msync, O_SYNC and O_DSYNC), is acknowledged when such a drain was reported for its group. close and a rename-over
// drain nothing by themselves, and sync(2) and syncfs do not reach a FUSE server, so nothing of them is promised here.
//
// Not promised: order between WRITEs of a drain that was not reported, and anything about bytes never named by a drain.
//
// # Parts
//
// Machine is the state machine of one replica: handshake, generations, loss, full copy. It is a step function without goroutine,
// lock, clock, random source or I/O. Replica is the shell around it: sockets, timers, the verbs objects. lane is one
// verbs connection, and method (gpspm, apm, flush) is what it makes drains persistent by. Pool is librpmem's API on top of the same lanes, for programs that
// replicate their own memory.
//
// # Goroutines and locks of a Replica
//
//	reaper   waits for completions of the lane and makes every OnDrained call, for the life of the Replica
//	clock    takes completions and steps the machine when its next deadline has come, for the life of the Replica
//	reader   dials one control connection, then reads its frames; a second one connects its lane; both end with that connection
//	prover   tests what a growth adds at the target, on a lane of its own, in bounded time; Extend does it here in its caller's goroutine
//	callers  step the machine in their own goroutine; Drain posts there
//
// Replica.mu protects the machine, the control connection and the lane, and serialises posting. OnDrained is called
// without any lock, so it may take locks that are held around Drain. Drain never calls back and never waits for an answer.
// Close ends and joins all goroutines; it must not be called from OnDrained.
package replicate
