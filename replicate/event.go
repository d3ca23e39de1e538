package replicate

import (
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// State of a replica.
type State uint8

const (
	Detached  State = iota // not connected yet, or closed
	Handshake              // HELLO and CLAIM; ends with Adopt
	Refused                // the two copies do not fit; sticky
	FullSync               // the target's copy is marked Inconsistent and is being written
	InSync                 // drains go to the target
	Suspended              // the target is lost and may come back within the timeout
	Failed                 // sticky
)

var stateNames = [...]string{"Detached", "Handshake", "Refused", "FullSync", "InSync", "Suspended", "Failed"}

func (s State) String() string { return stateNames[s] }

// EventKind says what happened.
type EventKind uint8

const (
	// Requests of the user. Each is answered by one ActDone, a drain by one ActDrained.

	EvConnect  EventKind = iota + 1 // say HELLO
	EvClaim                         // Term, Durability
	EvFullSync                      // Seq is the id of the copy, random
	EvAdopt                         // Gen, History, Peers
	EvClean                         // Flags to set in the state slot
	EvGrow                          // Size wanted
	EvDrain                         // Seq, Ranges, Seal; with Err if they are wrong
	EvClose
	EvCancel // gives up the request under way, with Err

	// What happened to connection Conn. An event of an older connection is ignored.

	EvDialed   // the control connection stands
	EvFrame    // Frame came
	EvLaneUp   // the lane is connected
	EvLost     // a connection failed with Err
	EvAnswered // the lane's answer to drain Seq: Status, Where, Term
	EvProgress // an answer in the middle of a drain, or of a copy
	EvCopied   // the copy step asked for has ended, with Err
	EvProven   // the self-test asked for has ended, with Err

	EvTick // time has passed
)

// Event is the input of a step. Now is the time since any fixed moment, and never goes back. The other fields belong to
// kinds as said there.
type Event struct {
	Kind EventKind
	Conn uint32
	Now  time.Duration
	Err  error

	Seq    uint64
	Ranges []pmem.Range
	Seal   pmem.Seal

	Status      wire.FlushStatus
	Where, Term uint64

	Gen        uint64
	History    [8]uint64
	Peers      []wire.UUID
	Flags      uint32
	Durability uint32
	Size       uint64
	Frame      wire.Frame
}

// ActionKind says what to do.
type ActionKind uint8

const (
	ActDial    ActionKind = iota + 1 // open control connection Conn; report EvDialed or EvLost
	ActSend                          // send Frame on it
	ActLane                          // connect the lane of Grant; report EvLaneUp or EvLost
	ActPost                          // start drain Seq on the lane: Ranges, Seal
	ActCopy                          // do copy step Step; report EvCopied
	ActProve                         // test what Grant has from pool offset From on, beside the lane; report EvProven
	ActRegrant                       // Grant has another region for the lane, which covers the old one
	ActBreak                         // end both connections, stop a copy step; their events are no longer wanted
	ActDrained                       // report drain Seq with Err
	ActDone                          // the user's request ended with Err
)

// CopyStep is a part of a full copy. The order of the steps is that of the durable states on the target: as long as the
// super seals are zero, no recovery there can take a half-copied pool for a whole one.
type CopyStep uint8

const (
	CopyUnseal CopyStep = iota + 1 // zero the seal words
	CopyBody                       // everything but the seal words
	CopySeal                       // store the seals, in the order given
)

// Action is the output of a step.
type Action struct {
	Kind   ActionKind
	Conn   uint32
	Seq    uint64
	Ranges []pmem.Range
	Seal   pmem.Seal
	Frame  wire.Frame
	Grant  *wire.Grant
	From   uint64
	Step   CopyStep
	Err    error
}
