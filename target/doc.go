// Package target serves copies of pools to initiators: control sessions, registered regions, and the flush handler. It
// knows nothing of files.
//
// # What it promises
//
// At most one initiator can reach a pool at any time. Before a claim is granted, and before a promotion returns, every
// older connection is closed, its flush handlers have ended, its memory region is deregistered, and the new (term, writer) is
// durable in the pool header. An answered flush request is as durable as the region's promise, which is never less than the claimant
// and the configuration asked for. After a failed flush no seal is stored any more in that session, and the copy is marked Inconsistent.
//
// That is method GPSPM. A session with APM or FLUSH (method.go) makes bytes persistent without asking the target, which has granted that only
// where it keeps the region's promise, and whose part is to end it.
//
// # How it works
//
// Each pool has one state machine (session.go, claim.go, takeover.go): Step takes an event and returns actions. It has no
// goroutine, lock, clock, random source and I/O. A pool (pool.go) is its shell: it runs one event at a time under its lock and
// carries the actions out. A grant (grant.go) is what a session may reach: a protection domain, the region from pool offset 4096 on,
// and the lanes, each with a flush handler (lane.go).
//
// The pool is open, and locked against any other use, while it has a session, and closed otherwise. HELLO is answered without
// opening it.
//
// # Goroutines and locks
//
// Server.Run starts and joins: one goroutine for each listener (control, fabric, admin), one per control connection and per
// client of the admin socket, one per fabric connection request until it is answered, and one per failed session until its copy is
// marked. A grant owns its flush handlers and joins them. Locks, outermost first:
//
//	served.mu    the machine, the open pool, its grant; held while actions run: disk, and up to endTimeout for handlers
//	  Server.mu  tables of pools, grants, connections and clients; leaf
//	  grant.mu   lanes of a grant; leaf
//	  conn.wmu   writing a frame, under writeTimeout; leaf
//
// A flush handler never takes served.mu, since its holder may be waiting for the handler, and takes no lock at all while
// requests succeed: it shares with the grant one atomic state per lane and one atomic failure.
package target
