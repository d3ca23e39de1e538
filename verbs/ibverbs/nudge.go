//go:build linux && cgo

package ibverbs

import (
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// #include "shim.h"
import "C"

// The kernel's siw, as the side that accepts, sends its reply to the set-up before it looks for what comes behind that (siw_accept in siw_cm.c, Linux
// 5.3 to 7.3). A first request that is faster, as on a machine with one processor or a busy one, lies there until more bytes arrive,
// which may be never. So the side that has connected sends a Write of no bytes, up to nudges times, until the peer has answered to anything: it touches no memory and
// needs no key, and is what an initiator says that it is ready with (RFC 6581).
//
// It goes the way of all requests, in order. Behind one that siw holds back, fenced or a Read too many, until the answer to a Read has come, it does not leave. So who
// connects begins with requests of which none waits for another, as the lanes of a target do with one Read.
const (
	firstNudge = 50 * time.Millisecond
	lastNudge  = time.Second
	nudges     = 8 // in 4.5 s. None has to have left when the next is sent, so each has a place of its own in the device's queues
)

// nudgePlaces are places of the device's send queue that no request of the user takes, and that the user's requests leave alone.
func (d *device) nudgePlaces() int {
	if d.siw {
		return nudges
	}
	return 0
}

// awaitFailure returns true when the connection has failed, false when Close has come first. Until the peer has answered it nudges.
func (q *qp) awaitFailure() bool {
	wait := firstNudge
	next := time.NewTimer(wait)
	defer next.Stop()
	for n := 1; ; {
		select {
		case <-q.life.Done():
			return false
		case <-q.broken:
			return true
		case <-next.C:
			if q.nudge() && n < nudges {
				n++
				wait = min(2*wait, lastNudge)
				next.Reset(wait)
			}
		}
	}
}

// nudge sends a Write of no bytes. It returns false if none is needed any more.
func (q *qp) nudge() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answered || q.state != stateConnected {
		return false
	}
	q.rings.send[0] = C.struct_shim_send{id: C.uint64_t(workID(nobody, false, 0)), op: C.uint8_t(verbs.OpWrite)}
	var posted C.int
	C.shim_post_send(q.addr, 1, &posted) // an error means that the connection fails, which is told otherwise
	return true
}
