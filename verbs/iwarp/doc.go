// Package iwarp is a verbs provider in pure Go: iWARP over the TCP of the kernel, for machines without an RDMA device.
//
// # Protocols
//
// MPA (RFC 5044, revision 1, and revision 2 with the enhanced set-up of RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040).
// The subset is the one that Linux siw speaks: no markers; CRC-32C if either side asks for it; RDMA Write, Read Request,
// Read Response, Send, Send with Solicited Event (taken as a Send) and Terminate. A Send with Invalidate is refused with
// a Terminate.
//
// The first frame of an initiator is always a Write of no bytes, which is allowed at any time and touches nothing. It is the
// ready-to-receive frame that a responder waits for before it sends anything itself. A responder of this package waits for the
// first frame of any initiator, so with one that never sends (siw sends nothing by itself) it is silent for ever: the
// user of the initiator speaks first. An initiator sends the frame again and again, until the responder has sent something.
//
// # Peers
//
// Both roles were tried with Linux siw, see docs/testing.md. What was chosen because of it:
//
//   - An initiator does not ask for the peer-to-peer set-up of RFC 6581, and sends its ready-to-receive frame all the same. A siw
//     responder that has agreed to that set-up and is reset before the frame arrives runs into a BUG of the kernel (7.3,
//     cm_close_handler in iwcm.c), and its host accepts no further iWARP connection.
//   - siw, as the responder, sends its reply before it looks for what comes behind it. A request that is faster lies there until more bytes
//     arrive, hence the ready-to-receive frames that follow the first.
//   - Revision 1 says nothing about outstanding Reads. Then this side sends one at a time, and takes 128. siw ends a connection
//     that has more of them than the user of its side gave to rdma_accept.
//   - A peer of revision 2 that offers an IRD of 0 takes no Read, which RFC 6581 allows. It is refused: a Read to it would never be sent, nor
//     anything fenced behind it.
//   - The fields of a Terminate of siw on a little-endian machine are in the other order than in RFC 5040. Where the bytes do not tell,
//     the error names both meanings. A frame that is too short for its header is answered with MPA error 3, like siw, and not 5.
//   - siw answers a Read of no bytes with the bytes of the Read before it if the request comes early. They do not fit and end the connection:
//     Reads of no bytes are not for a siw responder.
//   - siw sends 256 bytes of private data, its own words included, with a length of 0; verbs.MaxPrivate is far below that.
//   - siw has no CRC of its own accord, and uses one if this side asks for it. It computes it over the source in place and lets TCP
//     fetch large unsignaled Writes from there afterwards: if the source is changed in between, the CRC is wrong and the
//     connection ends. Memory that is stored to while it is sent must not go through siw with CRC.
//   - siw completes a Write or Send when TCP took it, and the work requests that a Terminate ends as flushed ones.
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
