// Package commit makes the groups of a volume durable on every copy of the pool: it is where an fsync waits.
//
// # An fsync
//
//	fs.Fsync ─> Committer.Fsync ─> Volume.FlushFile      content of the file joins the open group
//	                            ─> Pipeline.Step(Want)   ─> CloseGroup, then Drain on each copy
//	            target answers  ─> Pipeline.Step(Drained)─> Sealed, Wake
//
// One fsync costs one answered Send per target, and concurrent fsyncs share it: while a group is being drained, the next
// one gathers. At most MaxInFlight groups are under way.
//
// # Parts
//
// Pipeline is the order of groups and supers on the copies, as a step function: an event goes in, actions come out. It has
// no goroutine, lock, clock or random source, so a simulation drives the same code. Engine executes its actions, with
// as little of its own. Committer is the shell around both: one mutex, waiters, and one goroutine for the commit interval,
// checkpoints and orphans.
//
// # Promise
//
// Fsync returned nil: the content that the file had at the call, and every name changed before it, is sealed on the local copy
// and on every attached target. A drain that failed is never turned into success: the first failure is sticky,
// stops the volume, and is returned by every later Fsync until the pool is mounted anew.
//
// Not promised: sync(2) and syncfs(2) do not reach a FUSE server; Committer.SyncAll does their work (`pmemfs sync`). close(2)
// writes nothing; it only reports a failure that happened. Content without fsync may be lost for up to the commit interval.
//
// # Locks
//
// Committer.mu, then the volume's lock. A Copy must never report from inside Drain, nor hold a lock of its own while it
// reports, or the two would wait for each other.
package commit
