package commit

import (
	"errors"
	"fmt"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/mutant"
)

// MaxInFlight groups may be closed and not yet sealed on every copy.
const MaxInFlight = 4

// Window jobs at most are given to a copy and not yet executed by it. One close can hand out many jobs, and a target takes
// only so many drains at a time.
const Window = MaxInFlight + 1

// MaxCopies is the local copy (number 0) and its targets.
const MaxCopies = 9

// EventKind says what happened.
type EventKind uint8

const (
	// Want: somebody waits until group LSN is sealed everywhere.
	Want EventKind = iota + 1
	// WantEpoch: a checkpoint is due.
	WantEpoch
	// JobClosed: the volume handed out Job.
	JobClosed
	// CloseDone: the close that an action asked for has ended; its jobs were reported before.
	CloseDone
	// Drained: Copy has executed the job Seq and all before it, or failed with Err.
	Drained
	// Failed: the volume or its region failed with Err.
	Failed
)

// Event is the input of a step.
type Event struct {
	Kind EventKind
	LSN  uint64
	Job  *volume.Job
	Copy int
	Seq  uint64
	Err  error
}

// ActionKind says what to do.
type ActionKind uint8

const (
	// CloseGroup: close the open group, report its jobs with JobClosed, then CloseDone.
	CloseGroup ActionKind = iota + 1
	// CloseEpoch: the same for a checkpoint.
	CloseEpoch
	// Drain: execute Job on Copy and report Drained.
	Drain
	// Sealed: Job is durable on every copy: give it back to the volume.
	Sealed
	// Wake: Durable, Supers, Flipping or Err changed.
	Wake
	// Stop: stop the volume with Err.
	Stop
)

// Action is the output of a step.
type Action struct {
	Kind ActionKind
	Copy int
	Job  *volume.Job
	Err  error
}

// Pipeline orders jobs on the copies of a pool.
//
// Invariants: each copy gets the jobs in the order of their Seq. A super goes to a target only after the group that it stands
// for is sealed on the local copy; that it is sealed on the target too follows from the order on that copy. At most one super is under way.
// A job is Sealed only when every copy has executed it. After an error no Drain and no Sealed is ever asked for.
type Pipeline struct {
	copies  int
	started [MaxCopies]uint64 // Seq of the last job given to the copy
	done    [MaxCopies]uint64 // Seq of the last job executed by the copy
	queue   []*volume.Job     // closed and not yet Sealed, oldest first
	want    uint64            // highest LSN somebody waits for
	closed  uint64            // LSN of the last closed group
	durable uint64            // LSN of the last group sealed everywhere
	epoch   bool              // a checkpoint is wanted
	super   bool              // a super is under way
	supers  uint64            // supers sealed everywhere
	closing ActionKind        // the close that was asked for and has not ended, or 0
	err     error
}

// NewPipeline starts with n copies that are all at group lsn, and with seq the last job handed out.
func NewPipeline(n int, lsn, seq uint64) *Pipeline {
	p := &Pipeline{copies: n, closed: lsn, durable: lsn, queue: make([]*volume.Job, 0, 2*MaxInFlight)}
	for c := range n {
		p.started[c], p.done[c] = seq, seq
	}
	return p
}

// Durable is the last group sealed on every copy.
func (p *Pipeline) Durable() uint64 { return p.durable }

// Err is the failure that ended the pipeline, or nil.
func (p *Pipeline) Err() error { return p.err }

// Supers is the number of supers sealed on every copy since the start.
func (p *Pipeline) Supers() uint64 { return p.supers }

// Flipping tells whether a super is under way.
func (p *Pipeline) Flipping() bool { return p.super }

// Step takes one event and appends what is to be done to out.
func (p *Pipeline) Step(ev Event, out []Action) []Action {
	if p.err != nil {
		return out
	}
	switch ev.Kind {
	case Want:
		p.want = max(p.want, ev.LSN)
	case WantEpoch:
		p.epoch = true
	case JobClosed:
		p.queue = append(p.queue, ev.Job)
		if ev.Job.Super {
			p.super, p.epoch = true, false
		} else {
			p.closed = ev.Job.LSN
		}
	case CloseDone:
		if err := p.closeDone(); err != nil {
			return p.fail(err, out)
		}
	case Drained:
		if ev.Err != nil {
			return p.fail(ev.Err, out)
		}
		p.done[ev.Copy] = max(p.done[ev.Copy], ev.Seq)
	case Failed:
		return p.fail(ev.Err, out)
	}
	out = p.seal(out)
	out = p.drain(out)
	return p.close(out)
}

// closeDone checks that the close brought what it was asked for: a waiter must never wait for a group that does not come.
func (p *Pipeline) closeDone() error {
	kind := p.closing
	p.closing = 0
	switch {
	case kind == CloseGroup && p.want > p.closed:
		return fmt.Errorf("commit: the volume closed group %d, but group %d was asked for", p.closed, p.want)
	case kind == CloseEpoch && p.epoch:
		return errors.New("commit: the volume closed no epoch")
	}
	return nil
}

func (p *Pipeline) fail(err error, out []Action) []Action {
	p.err = err
	return append(out, Action{Kind: Stop, Err: err}, Action{Kind: Wake})
}

// seal gives back every job that all copies have executed.
func (p *Pipeline) seal(out []Action) []Action {
	n := 0
	for n < len(p.queue) && p.everywhere(p.queue[n].Seq) {
		job := p.queue[n]
		n++
		if job.Super {
			p.super = false
			p.supers++
		} else {
			p.durable = job.LSN
		}
		out = append(out, Action{Kind: Sealed, Job: job})
	}
	if n == 0 {
		return out
	}
	p.queue = p.queue[:copy(p.queue, p.queue[n:])]
	return append(out, Action{Kind: Wake})
}

func (p *Pipeline) everywhere(seq uint64) bool {
	for c := range p.copies {
		if mutant.On(mutant.AckBeforeTarget) && c > 0 {
			break
		}
		if p.done[c] < seq {
			return false
		}
	}
	return true
}

// drain starts what may start. Targets come before the local copy: its drain blocks, theirs only begins.
func (p *Pipeline) drain(out []Action) []Action {
	for c := p.copies - 1; c >= 0; c-- {
		for _, job := range p.queue {
			if job.Seq <= p.started[c] {
				continue
			}
			if job.Seq > p.done[c]+Window {
				break
			}
			if job.Super && c > 0 && p.done[0] < job.Seq-1 && !mutant.On(mutant.SuperAhead) {
				break
			}
			p.started[c] = job.Seq
			out = append(out, Action{Kind: Drain, Copy: c, Job: job})
		}
	}
	return out
}

// close asks for the next group or epoch when somebody waits for it and there is room.
func (p *Pipeline) close(out []Action) []Action {
	switch {
	case p.closing != 0 || len(p.queue) >= MaxInFlight:
	case p.epoch && !p.super:
		p.closing = CloseEpoch
		out = append(out, Action{Kind: CloseEpoch})
	case p.want > p.closed:
		p.closing = CloseGroup
		out = append(out, Action{Kind: CloseGroup})
	}
	return out
}
