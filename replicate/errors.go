package replicate

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is the error of all that was not reported when Close was called, and of all later calls.
	ErrClosed = errors.New("the replica is closed")
	// ErrTimeout: the target did not answer in time. Its copy may or may not hold what was asked for.
	ErrTimeout = errors.New("no answer in time: check that pmemfs-target runs and that the network reaches it, then mount again")
	// ErrDevice: the RDMA device with which the replica was opened is gone. Another open device is another Replica.
	ErrDevice = errors.New("the RDMA device of this machine was removed or has failed, and what was made with it does not come back: when `rdma link` shows it again, unmount, and mount again")
	// ErrOutdated: the target's copy is newer than the local one.
	ErrOutdated = errors.New("the local copy is outdated, the target's is newer: mount the pool on the target, and bring this copy back as a replica")
	// ErrOrder is a call that the state of the replica does not allow.
	ErrOrder = errors.New("call out of order")
)

// Error is a failed operation on a target. Off is a pool offset in bytes, and NoOffset where none applies.
type Error struct {
	Target string
	Op     string
	Off    uint64
	Err    error
}

// NoOffset stands in Error.Off where an operation has no offset.
const NoOffset = ^uint64(0)

func (e *Error) Error() string {
	if e.Off == NoOffset {
		return fmt.Sprintf("replicate: target %s: %s: %v", e.Target, e.Op, e.Err)
	}
	return fmt.Sprintf("replicate: target %s: %s at offset %d: %v", e.Target, e.Op, e.Off, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
