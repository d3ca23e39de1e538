package verbstest

// This file models when bytes that a device has placed are persistent at the peer. Placed bytes are visible at once; a loss of power may
// take any of them until this file says otherwise, or the CPU there has flushed them.

// Persist tells of bytes that have become persistent, by a Flush; and if read is set by the response to a Read too, which pushes what its queue pair
// wrote before into the persistence domain: memory, where inbound bytes go past the CPU's cache, or that cache, where it
// belongs to the domain. The function must not use the fabric. It is called before the first device is made.
func (f *Fabric) Persist(read bool, told func(b []byte)) { f.pushes, f.persist = read, told }

// flight is a Write on its way into the persistence domain.
type flight struct {
	number uint64
	bytes  []byte
}

// placed notes that work request number of q has stored b at the peer.
func (q *qp) placed(number uint64, b []byte) {
	if f := q.pd.dev.fabric; f.pushes && f.persist != nil && len(b) > 0 {
		q.flight = append(q.flight, flight{number, b})
	}
}

// answered: Read number of q has its response. Writes behind the Read that overtook it are left out: nobody promises anything of them.
func (q *qp) answered(number uint64) {
	kept := q.flight[:0]
	for _, w := range q.flight {
		if w.number > number {
			kept = append(kept, w)
			continue
		}
		q.pd.dev.fabric.persist(w.bytes)
	}
	clear(q.flight[len(kept):])
	q.flight = kept
}

// flushed: a Flush of these bytes, of type FlushPersistent, is complete.
func (q *qp) flushed(b []byte) {
	if f := q.pd.dev.fabric; f.persist != nil && len(b) > 0 {
		f.persist(b)
	}
}
