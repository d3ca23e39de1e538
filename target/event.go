package target

import (
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// ConnID names a control connection. It is never reused and never 0.
type ConnID uint64

// Replica is what a target knows of its copy of a pool.
type Replica struct {
	wire.State
	SyncGen, SyncID uint64
	Peers           []wire.UUID
}

// Event is what happens to a pool.
type Event interface{ event() }

type (
	// Request came over a control connection. Body is a decoded body: *wire.Hello, *wire.Create, *wire.Claim, *wire.SetState,
	// *wire.SetAttr, *wire.Close, *wire.Remove or *wire.Grow.
	Request struct {
		Conn ConnID
		Body any
	}
	// Lost: a control connection ended.
	Lost struct{ Conn ConnID }
	// Failed: a lane of the session could not make bytes persistent.
	Failed struct{ Session uint64 }
	// Promotion makes this copy the primary. Gen is a fresh random generation.
	Promotion struct {
		Force bool
		Gen   uint64
	}
	// Stop ends the session, if there is one.
	Stop struct{}
	// Done is the result of the action that asked for one.
	Done struct {
		Err     error
		Replica Replica    // of Open, Inspect and Create
		Grant   wire.Grant // of Register
		Grown   wire.Grown // of Grow
		Failed  bool       // of End: a lane of the session failed to make bytes persistent
	}
)

func (Request) event()   {}
func (Lost) event()      {}
func (Failed) event()    {}
func (Promotion) event() {}
func (Stop) event()      {}
func (Done) event()      {}

// Action is what the shell has to do.
type Action interface{ action() }

// Actions that ask for a Done. Such an action is the last of its list, and its Done is the next event.
type (
	// Open opens and locks the pool and makes persistent what earlier writers stored and never flushed.
	Open struct{}
	// Inspect reads the pool's header without opening the pool.
	Inspect struct{}
	// Create makes the pool's parts. Size is the least size wanted in bytes.
	Create struct {
		Attr wire.Attr
		Size uint64
	}
	// Remove deletes the pool's parts.
	Remove struct{}
	// Persist writes the state slot and makes it durable.
	Persist struct{ Replica Replica }
	// SetAttr writes the attributes and makes them durable.
	SetAttr struct{ Attr wire.Attr }
	// Choose tells whether one of the claimed Methods can be had, as far as that can be told without registering anything.
	Choose struct{ Methods wire.Methods }
	// Register makes the region reachable for a new session under Term, and chooses one of the claimed Methods.
	Register struct {
		Term    uint64
		Lanes   uint32
		Methods wire.Methods
	}
	// End closes all lanes, waits for their handlers, and deregisters the region. FencedBy is the term that takes over, which
	// the lanes' last answers name; 0: nobody does.
	End struct{ FencedBy uint64 }
	// Sync makes the whole region persistent.
	Sync struct{}
	// Grow makes the open copy as large as its pool set file says, at least Size bytes, and registers it anew for the session.
	Grow struct{ Size uint64 }
)

// Actions without a result.
type (
	// Answer answers the request of a connection. Body is that of the answer, status OK or not.
	Answer struct {
		Conn   ConnID
		Status wire.Status
		Body   []byte
	}
	// Notice tells a connection that it is fenced, and closes it.
	Notice struct {
		Conn   ConnID
		Fenced wire.Fenced
	}
	// Release closes the pool and unlocks it.
	Release struct{}
	// Report is the outcome of a Promotion.
	Report struct {
		Term uint64
		Err  error
	}
)

func (Open) action()     {}
func (Inspect) action()  {}
func (Create) action()   {}
func (Remove) action()   {}
func (Persist) action()  {}
func (SetAttr) action()  {}
func (Choose) action()   {}
func (Register) action() {}
func (End) action()      {}
func (Sync) action()     {}
func (Grow) action()     {}
func (Answer) action()   {}
func (Notice) action()   {}
func (Release) action()  {}
func (Report) action()   {}
