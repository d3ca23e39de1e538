package wire

import (
	"errors"
	"fmt"
	"io/fs"
)

// Status is the outcome of a control request. It is an error whose text says what to do next; StatusOK never stands in an error.
type Status uint32

const (
	StatusOK Status = iota
	StatusVersion
	StatusBadRequest
	StatusNoPool
	StatusExists
	StatusBusy
	StatusForeign // other pool UUID
	StatusFenced  // a higher term, or another writer of the same term; STATE follows the text
	StatusTooSmall
	StatusInconsistent
	StatusDurability
	StatusIO
	StatusNoSession
	StatusSplitBrain
	StatusCorrupt
	StatusNoSpace
	StatusPoolSet  // the target's pool set file
	StatusMethod   // no persistency method that is asked for can be had
	StatusRegister // the target's RDMA device cannot have its pool
)

var statusTexts = [...]string{
	StatusOK:           "ok",
	StatusVersion:      "the target speaks another protocol version: run the same release of pmemfs on both sides",
	StatusBadRequest:   "the target did not understand the request: run the same release of pmemfs on both sides",
	StatusNoPool:       "no such pool on the target: create the pool set file in the target's pool directory, then make the pool there with pmemfs mkpool --replicas",
	StatusExists:       "the pool exists already: open it, or promote it there to use what it holds; remove it only if nobody needs that",
	StatusBusy:         "the pool is in use on the target: unmount or stop its user first",
	StatusForeign:      "the target's copy belongs to another pool: check the pool set name; if nobody needs what that copy holds, remove it and make it anew",
	StatusFenced:       "the pool was taken over elsewhere: mount it where it was promoted, and bring this copy back as a replica",
	StatusTooSmall:     "the pool on the target is too small: enlarge the sizes in its pool set file to at least the size of this pool",
	StatusInconsistent: "the target's copy is inconsistent: let a full copy finish before it is used",
	StatusDurability:   `the target cannot give the durability asked for: use persistent memory or a disk there, or set durability = "memory" on both sides`,
	StatusIO:           "the target failed to read or write its copy: see the target's log, check its disk or memory",
	StatusNoSession:    "the target does not know this session: connect again",
	StatusSplitBrain:   "both copies were written independently: decide which copy to keep, and make the other anew",
	StatusCorrupt:      "the target's copy is damaged: see the target's log, remove that copy and make it anew",
	StatusNoSpace:      "there is no room for the target's copy: make room on its file system, or name a part on another one in its pool set file",
	StatusPoolSet:      "the pool set file on the target is not right: correct it there, then try again",
	StatusMethod:       `no persistency method that was asked for can be had: set method = "auto" for this target, or remove what stands against it on the target`,
	StatusRegister:     "the RDMA device of the target cannot have the pool there: do on the target what is said here",
}

func (s Status) Error() string {
	if int(s) < len(statusTexts) {
		return statusTexts[s]
	}
	return fmt.Sprintf("the target answered with the unknown status %d: run the same release of pmemfs on both sides", uint32(s))
}

// Is makes errors.Is work with the sentinels of io/fs for pools that exist or are missing.
func (s Status) Is(target error) bool {
	switch target {
	case fs.ErrExist:
		return s == StatusExists
	case fs.ErrNotExist:
		return s == StatusNoPool
	case fs.ErrInvalid:
		return s == StatusBadRequest
	}
	return false
}

// RefusedError is an answer other than OK. errors.Is finds its Status.
type RefusedError struct {
	Op     Type
	Status Status
	Text   string // the target's own words, may be empty
	State  *State // what the target holds; with StatusFenced only
}

func (e *RefusedError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%v refused: %v", e.Op, e.Status)
	}
	return fmt.Sprintf("%v refused: %s: %v", e.Op, e.Text, e.Status)
}

func (e *RefusedError) Unwrap() error { return e.Status }

// AppendRefusal encodes the body of an answer with a status other than OK. State must be given with StatusFenced only.
func AppendRefusal(b []byte, text string, state *State) []byte {
	b = appendString(b, text)
	if state != nil {
		b = state.Append(b)
	}
	return b
}

// Refusal decodes an answer with a status other than OK into a *RefusedError.
func Refusal(f Frame) error {
	e := &RefusedError{Op: f.Type &^ Answer, Status: f.Status}
	if f.Status == StatusOK {
		return errors.New("wire: an answer with status OK is no refusal")
	}
	c := cursor{b: f.Body}
	e.Text = c.str()
	if f.Status == StatusFenced {
		e.State = new(State)
		e.State.take(&c)
	}
	if err := c.end("refusal of " + e.Op.String()); err != nil {
		return err
	}
	return e
}
