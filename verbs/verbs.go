// Package verbs is the one RDMA API that all above it uses: devices, protection domains, memory regions, queue pairs and
// completion queues, reliable connected only. Providers: verbs/ibverbs (RDMA devices), verbs/iwarp (pure Go over
// TCP), verbs/verbstest (in memory).
//
// # Rules that hold for every provider
//
// A queue pair works in order: work requests start in the order posted; the bytes of a Write are placed before a Send posted
// after it is delivered, and before a Read posted after it is answered. A provider that also places overlapping Writes
// in order says so in Caps.
//
// A completion of a Write or Send says nothing about the peer: only an answer or a Read response proves placement. The source
// may be read until then: a transport in software can still hold it after the completion (TCP sends large pieces without a
// copy, and sends them again). So no source is stored to before an answer, a Read response or the completion of a Flush covers it, an
// inline one excepted, which is copied by PostSend.
//
// A fenced work request begins only when all Reads and AtomicWrites before it in its queue have completed. Without a
// fence a Write may be placed before an earlier Read was answered. A fence need not wait for Flushes: the specification names Reads and
// atomics (IBA 10.8.3.3), and rxe waits for no others.
//
// OpFlush completes when all Writes and AtomicWrites of its QP before it that touch its bytes are in the persistence domain of the peer
// (FlushPersistent), or visible to all its observers (FlushVisible). It orders nothing after it: what must follow waits for its completion.
//
// A Send needs a posted receive at the peer. There is no receiver-not-ready: a Send without one ends the connection. The user
// counts credits.
//
// After the first error a queue pair is in the error state: everything outstanding and everything posted later
// completes with StatusFlushed, and a completion with the cause comes first. Nothing is retried. The cause goes to the
// work request at fault where one is known, else to the oldest outstanding one of the send queue, else to the oldest
// posted receive, else to the next one posted. Close is no error: what it finds outstanding is flushed.
//
// A work request occupies a place of its queue until its completion has been polled, an unsignaled one until that of
// a later signaled one has been polled. So a send queue on which nothing is ever signaled fills up. In return a CQ
// never overflows: CreateQP refuses a CQ that cannot hold all work requests of its queues.
//
// A work request that is wrong in itself (a local region of another PD, out of bounds or without the right, an unknown
// operation, more than MaxMessage bytes) is refused by PostSend or PostRecv with an error; nothing of the batch is posted.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// MaxMessage is the most bytes that one work request moves.
const MaxMessage = 1 << 30

// MaxPrivate is the most bytes of private data in a connection request or its acceptance, MaxReason in a rejection. On InfiniBand
// and RoCE the fields have 56 and 148 bytes (rdma_connect(3), rdma_reject(3)) and do not say how many of them are used: a byte
// in front tells that.
const (
	MaxPrivate = 55
	MaxReason  = 147
)

// Access rights of a memory region.
type Access uint8

const (
	LocalWrite  Access = 1 << iota // sink of a receive or of a Read
	RemoteWrite                    // the peer may Write
	RemoteRead                     // the peer may Read
	RemoteFlush                    // the peer may Flush; refused where the memory is not persistent or the device has no Flush
	OnDemand                       // do not pin: the kernel may move the pages (a file on a DAX file system); needs Caps.OnDemand
)

// Caps is what a device can do beyond the basics.
type Caps struct {
	Flush        bool // native FLUSH work requests
	AtomicWrite  bool // native 8-byte ATOMIC_WRITE work requests
	OnDemand     bool // regions can be registered without pinning them
	OrderedPlace bool // overlapping Writes of one QP are placed in order
	CPUPlaced    bool // inbound bytes are stored by a CPU, so they pass through its cache
	// OwnStores: this process itself stores inbound bytes and loads outbound ones, through the slices it was given. Then memory of any
	// kind can be registered and nothing is pinned. Without it a device or the kernel keeps the pages of a region, which must not
	// be those of a file in the page cache: they are written back behind the device.
	OwnStores bool
	MaxInline int    // bytes of inline data, 0 = none
	MaxRegion uint64 // most bytes of one region, 0 = no limit
}

// Device is one RDMA device, or a stand-in for one.
type Device interface {
	Name() string
	Caps() Caps
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue for up to depth outstanding completions.
	CreateCQ(depth int) (CQ, error)
	// Listen waits for connections on addr ("host:port").
	Listen(addr string) (Listener, error)
	// Connect connects qp to addr with private data (at most MaxPrivate bytes) and returns the peer's private data.
	Connect(ctx context.Context, qp QP, addr string, private []byte) ([]byte, error)
	Close() error
}

// PD is a protection domain: its QPs reach only its MRs.
type PD interface {
	// RegisterMR makes b reachable. The caller keeps b mapped until Deregister has returned. An error of the kernel is wrapped, so that
	// errors.Is finds its errno. With OnDemand the pages that are there are fetched ahead, as far as the device can.
	RegisterMR(b []byte, a Access) (MR, error)
	// CreateQP makes a queue pair. Receives may be posted before it is connected.
	CreateQP(attr QPAttr) (QP, error)
	Close() error
}

// MR is a registered memory region.
type MR interface {
	Bytes() []byte
	Addr() uint64 // address that the peer gives for byte 0
	RKey() uint32
	// Deregister returns when no peer can reach the region any more and no placement into it is under way.
	Deregister() error
}

// QPAttr are the sizes of a queue pair. The two CQs may be the same.
type QPAttr struct {
	SendCQ, RecvCQ CQ
	SendDepth      int // work requests posted and not yet reaped
	RecvDepth      int // receives posted and not yet reaped
}

// SGE is a piece of registered local memory, or with OpFlush, where MR is nil and Off 0, a length of remote memory.
type SGE struct {
	MR  MR
	Off uint64
	Len uint64
}

// Opcode of a work request or completion.
type Opcode uint8

const (
	OpWrite Opcode = iota + 1
	OpRead
	OpSend
	OpRecv
	OpFlush
	OpAtomicWrite
)

func (o Opcode) String() string {
	switch o {
	case OpWrite:
		return "WRITE"
	case OpRead:
		return "READ"
	case OpSend:
		return "SEND"
	case OpRecv:
		return "RECV"
	case OpFlush:
		return "FLUSH"
	case OpAtomicWrite:
		return "ATOMIC_WRITE"
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// FlushType is what an OpFlush demands.
type FlushType uint8

const (
	FlushPersistent FlushType = iota // the bytes are in the persistence domain
	FlushVisible                     // the bytes are visible: a lost power supply may still take them
)

// SendWR is one work request for the send queue. Local.Len may be 0 for OpSend and OpWrite.
type SendWR struct {
	ID         uint64
	Op         Opcode
	Signaled   bool      // a completion is wanted even if it succeeds
	Fence      bool      // begins when all Reads and AtomicWrites before it have completed
	Inline     bool      // OpWrite, OpSend: PostSend copies the source, at most Caps.MaxInline bytes; it may be used again at once
	Flush      FlushType // of OpFlush
	Local      SGE
	Value      uint64 // of OpAtomicWrite: stored little-endian; Local is not used
	RemoteAddr uint64 // of OpAtomicWrite: a multiple of 8
	RKey       uint32
}

// RecvWR is one receive buffer.
type RecvWR struct {
	ID    uint64
	Local SGE
}

// Status of a completion.
type Status uint8

const (
	StatusOK        Status = iota
	StatusFlushed          // the QP was in the error state
	StatusProtect          // local or remote protection: key, bounds or rights
	StatusPeer             // the peer ended the connection or reported an error; all that some devices tell of a Terminate, whatever it says
	StatusTransport        // the transport failed
	StatusLength           // a message does not fit its receive
)

func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusFlushed:
		return "flushed"
	case StatusProtect:
		return "protection error"
	case StatusPeer:
		return "ended by the peer"
	case StatusTransport:
		return "transport error"
	case StatusLength:
		return "length error"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// WC is one completion.
type WC struct {
	ID     uint64
	Op     Opcode
	Status Status
	Len    uint32 // bytes received or read
	QP     QP
}

// QP is a reliable connected queue pair. PostSend and PostRecv may be called from several goroutines; each call is atomic.
type QP interface {
	// PostSend posts a batch in order. It blocks no longer than the transport's own buffering and the QP's write deadline ask for.
	// ErrQueueFull: nothing of the batch was posted.
	PostSend(wrs []SendWR) error
	PostRecv(wrs []RecvWR) error
	// Err is the cause of the error state, or nil.
	Err() error
	// Close ends the connection, or calls off one in the making, waits until no goroutine of the QP touches any memory region, and flushes
	// outstanding work.
	Close() error
}

// CQ is a completion queue. Poll and Wait are called by one goroutine at a time.
type CQ interface {
	// Poll takes up to len(wc) completions without waiting.
	Poll(wc []WC) (int, error)
	// Wait returns nil when a completion may be there, ErrTimeout after d, or ErrClosed.
	Wait(d time.Duration) error
	Close() error
}

// Listener takes connection requests.
type Listener interface {
	// Accept waits for the next request; it returns ErrClosed after Close, and ErrDeviceGone when there will be none any more.
	Accept() (ConnRequest, error)
	Addr() net.Addr
	Close() error
}

// ConnRequest is a connection that waits for an answer. Accept or Reject must be called.
type ConnRequest interface {
	PrivateData() []byte
	RemoteAddr() net.Addr
	Accept(qp QP, private []byte) error
	// Reject refuses the connection, with at most MaxReason bytes.
	Reject(private []byte) error
}

var (
	ErrTimeout     = errors.New("verbs: timed out")
	ErrClosed      = errors.New("verbs: closed")
	ErrQueueFull   = errors.New("verbs: queue full: reap completions first")
	ErrUnsupported = errors.New("verbs: the device does not support this operation")
	// ErrDeviceGone: the device of this side was removed or has failed, and nothing that was made with it will work again. Open it anew when it is back.
	ErrDeviceGone = errors.New("verbs: the device is gone")
)

// RejectedError is the answer of a peer that refused the connection.
type RejectedError struct{ Private []byte }

func (e *RejectedError) Error() string {
	return "verbs: the peer rejected the connection: " + string(e.Private)
}

// WCError is a completion that failed.
type WCError struct {
	Op     Opcode
	Status Status
	ID     uint64
	Cause  error
}

func (e *WCError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("verbs: %v (work request %d): %v: %v", e.Op, e.ID, e.Status, e.Cause)
	}
	return fmt.Sprintf("verbs: %v (work request %d): %v", e.Op, e.ID, e.Status)
}

func (e *WCError) Unwrap() error { return e.Cause }
