package commit

import (
	"fmt"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Engine executes what a Pipeline asks for: closes, drains of the local copy and of the targets, the end. It has no goroutine, lock, clock
// or random source. Its methods are called by one goroutine at a time, except Drains.
type Engine struct {
	vol     *volume.Volume
	region  pmem.Region
	targets []Copy
	pipe    *Pipeline
	hooks   Hooks
	events  []Event
	actions []Action
	settle  bool // the next epoch is closed with SettleEpoch
	drains  atomic.Uint64
}

// Hooks are what an Engine tells of. They must not call it. Each may be nil.
type Hooks struct {
	Wake    func()      // what Durable, Supers, Flipping or Err say has changed
	Due     func()      // a checkpoint is due
	Stopped func(error) // told once, of the failure that ended it
}

// NewEngine starts with every copy at the volume's last group; seq is the last job that was executed on every copy. The
// volume must have no job outstanding.
func NewEngine(vol *volume.Volume, region pmem.Region, targets []Copy, seq uint64, hooks Hooks) *Engine {
	for _, h := range []*func(){&hooks.Wake, &hooks.Due} {
		if *h == nil {
			*h = func() {}
		}
	}
	if hooks.Stopped == nil {
		hooks.Stopped = func(error) {}
	}
	return &Engine{vol: vol, region: region, targets: targets, hooks: hooks, pipe: NewPipeline(1+len(targets), vol.LSN(), seq)}
}

// Pipeline is the state, to be read between two calls.
func (e *Engine) Pipeline() *Pipeline { return e.pipe }

// Drains counts the drains started on the copies, the local one included.
func (e *Engine) Drains() uint64 { return e.drains.Load() }

// Want sees to it that group lsn is closed and drained.
func (e *Engine) Want(lsn uint64) { e.Run(Event{Kind: Want, LSN: lsn}) }

// Flip sees to it that an epoch is closed and its super drained. With settle that brings free space to all copies too.
func (e *Engine) Flip(settle bool) {
	e.settle = e.settle || settle
	e.Run(Event{Kind: WantEpoch})
}

// Run steps the pipeline with ev, executes the actions, and goes on until no event is left.
func (e *Engine) Run(ev Event) {
	e.events = append(e.events[:0], ev)
	for i := 0; i < len(e.events); i++ {
		e.actions = e.pipe.Step(e.events[i], e.actions[:0])
		for _, a := range e.actions {
			e.execute(a)
		}
	}
}

func (e *Engine) execute(a Action) {
	switch a.Kind {
	case CloseGroup:
		_, err := e.vol.CloseGroup()
		e.closed(err)
	case CloseEpoch:
		e.closed(e.closeEpoch())
	case Drain:
		e.drain(a)
	case Sealed:
		e.vol.Sealed(a.Job)
		if e.vol.WantCheckpoint() {
			e.hooks.Due()
		}
	case Wake:
		e.hooks.Wake()
	case Stop:
		e.vol.Stop(a.Err)
		e.hooks.Stopped(a.Err)
	}
}

func (e *Engine) drain(a Action) {
	e.drains.Add(1)
	if a.Copy > 0 {
		e.targets[a.Copy-1].Drain(a.Job.Seq, a.Job.Ranges, a.Job.Seal)
		return
	}
	err := pmem.Drain(e.region, a.Job.Ranges, a.Job.Seal)
	if err != nil {
		err = fmt.Errorf("local pool: drain of group %d: %w", a.Job.LSN, err)
	}
	e.events = append(e.events, Event{Kind: Drained, Seq: a.Job.Seq, Err: err})
}

func (e *Engine) closeEpoch() (err error) {
	if e.settle {
		_, err = e.vol.SettleEpoch()
	} else {
		_, err = e.vol.CloseEpoch()
	}
	e.settle = false
	return err
}

// closed reports what a close handed out.
func (e *Engine) closed(err error) {
	for job := e.vol.NextJob(); job != nil; job = e.vol.NextJob() {
		e.events = append(e.events, Event{Kind: JobClosed, Job: job})
	}
	if err != nil {
		e.events = append(e.events, Event{Kind: Failed, Err: err})
		return
	}
	e.events = append(e.events, Event{Kind: CloseDone})
}
