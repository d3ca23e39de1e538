// Package iwarp is a verbs provider in pure Go: iWARP over the TCP of the kernel, for machines without an RDMA device.
//
// # Protocols
//
// MPA (RFC 5044, revision 1, and revision 2 with the enhanced set-up of RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040).
// The subset is the one that Linux siw speaks: no markers; CRC-32C if either side asks for it; RDMA Write, Read Request,
// Read Response, Send, Send with Solicited Event (taken as a Send) and Terminate. A Send with Invalidate is refused with
// a Terminate. As initiator it asks for the peer-to-peer set-up and sends a zero-length Write as ready-to-receive
// frame; towards a peer that does not know it, the responder holds its first message back until a frame has arrived.
//
// # Placement
//
// Bytes are placed by the CPU, in the order in which they were sent, so Caps say OrderedPlace and CPUPlaced. A tagged frame
// is checked against its steering tag (which must exist, belong to the protection domain of the queue pair, grant the right
// and cover the bytes) before its first byte is placed. With CRC on, the whole frame is verified before that. With CRC off,
// what is not in the receive buffer yet is read from the socket straight into the region.
//
// A memory fault of a region ends the queue pair, never the process: copies go through internal/pmem, and the kernel
// answers a faulting read or write of a socket with EFAULT.
//
// # Goroutines and locks
//
// The receiving half of a connected queue pair is worked by one goroutine at a time, the one that has its turn. It reads the
// socket and never waits for anything else, so two peers that both send large batches always drain each other. It can stop
// at any byte and leave the rest to the next.
//
// While a goroutine is in Wait of a completion queue that is both the send and the receive queue of the queue pair, that one has the turn:
// the poller wakes it, it places and completes, and returns, without a hand-over to another goroutine. When no
// waiter has come for half a millisecond to one, or at once when one left in the middle of a transfer, the receiver takes the turn: the
// goroutine of the queue pair that works for users that poll, are busy, or have separate completion queues. A waiter
// that comes asks it for the turn. A queue with several queue pairs has the turn of the first that was connected; the
// others stay with their receivers. A Wait below a millisecond leaves the turn alone.
//
// The server, a second goroutine, answers Reads and sends what PostSend had to leave behind (Reads beyond the peer's limit,
// what is fenced behind Reads, messages before the peer's first frame).
//
// Only the receiver ends a connection: it gets the turn for good, joins the server, waits until no PostSend uses the
// socket, and flushes the queues. Close waits for it.
//
// Whoever has the turn sleeps in a read of the socket. It is woken by a read deadline in the past: by a completion that another
// goroutine adds, by a waiter that wants the turn, by the end of the connection. The reason is stored before that
// deadline is set, and looked at after it was replaced, so none gets lost.
//
//	QP.tx.mu      who may write to the socket and use the encoder; held while the socket blocks
//	  QP.mu       state and queues; held for a few instructions
//	    cq.Queue  its ring; see there
//	      turn.mu who receives; leaf
//	Device.mu     table of regions; leaf
//
// A region counts its users in one atomic word. A user is one system call or copy into it, or one batch out of it.
//
// # Waits
//
// Set-up is bounded by Options.SetupTimeout, sending by Options.WriteTimeout without progress, the farewell after an error by
// one second. A silent peer is found by TCP keepalive and TCP_USER_TIMEOUT. A Read has no deadline of its own: its user has one in Wait.
package iwarp
