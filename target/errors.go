package target

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// Refusal is why a request is not carried out. State is set with StatusFenced only. Its message is the Text alone, which is for
// this machine's administrator; an initiator gets the advice of the Status as well, from wire.RefusedError.
type Refusal struct {
	Status wire.Status
	Text   string
	State  *wire.State
}

func (r *Refusal) Error() string { return r.Text }
func (r *Refusal) Unwrap() error { return r.Status }

func refuse(s wire.Status, format string, args ...any) *Refusal {
	return &Refusal{Status: s, Text: fmt.Sprintf(format, args...)}
}

func foreign(want, have wire.UUID) *Refusal {
	return refuse(wire.StatusForeign, "the copy here belongs to pool %v, not to %v", have, want)
}

// fenced is the refusal of a writer that was overtaken; it carries what overtook it.
func fenced(rep *Replica, format string, args ...any) *Refusal {
	r := refuse(wire.StatusFenced, format, args...)
	state := rep.State
	r.State = &state
	return r
}

// asRefusal puts an error of a pool into the terms of the wire.
func asRefusal(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	status := wire.StatusIO
	switch {
	case is[*pool.InUseError](err):
		status = wire.StatusBusy
	case errors.Is(err, pool.ErrDurability), errors.Is(err, pmem.ErrWeaker):
		status = wire.StatusDurability
	case errors.Is(err, pool.ErrNotPool), is[*poolset.CorruptError](err), is[*pmem.SizeError](err):
		status = wire.StatusCorrupt
	case errors.Is(err, pool.ErrPoolSet):
		status = wire.StatusPoolSet
	case is[*pool.DiskFullError](err):
		status = wire.StatusNoSpace
	case errors.Is(err, fs.ErrNotExist):
		status = wire.StatusNoPool
	case errors.Is(err, fs.ErrExist):
		status = wire.StatusExists
	}
	return &Refusal{Status: status, Text: err.Error()}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// flagNames are the flags of a state slot for people.
func flagNames(flags uint32) string {
	return strings.ReplaceAll(poolset.Flags(flags).String(), ",", " ")
}
