package replicate

import "sync/atomic"

// Traffic counts what was posted to a target since Connect, on all lanes that there were.
type Traffic struct {
	Sends    uint64 // flush messages
	Answered uint64 // those of them that asked for an answer
	Writes   uint64 // RDMA WRITEs and ATOMIC_WRITEs
	Bytes    uint64 // placed by them
	Reads    uint64 // RDMA READs that prove WRITEs placed
	Flushes  uint64 // RDMA FLUSHes
}

// traffic is Traffic while it grows. Several lanes add to it at a time.
type traffic struct{ sends, answered, writes, bytes, reads, flushes atomic.Uint64 }

func (t *traffic) now() Traffic {
	return Traffic{t.sends.Load(), t.answered.Load(), t.writes.Load(), t.bytes.Load(), t.reads.Load(), t.flushes.Load()}
}

func (t *traffic) send(answered bool) {
	t.sends.Add(1)
	if answered {
		t.answered.Add(1)
	}
}

func (t *traffic) write(writes int, bytes uint64) {
	t.writes.Add(uint64(writes))
	t.bytes.Add(bytes)
}
