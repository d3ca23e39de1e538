package commit

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// model plays volume and copies for a pipeline and checks its invariants at each action.
type model struct {
	t       *testing.T
	p       *Pipeline
	copies  int
	open    uint64 // LSN of the open group; it always holds something
	seq     uint64
	given   [MaxCopies][]*volume.Job // drains started and not yet reported
	last    [MaxCopies]uint64        // Seq of the last drain given
	done    [MaxCopies]uint64
	sealed  uint64 // Seq of the last job given back
	stopped error
	burst   int // groups that one close hands out
}

func newModel(t *testing.T, copies int) *model {
	return &model{t: t, p: NewPipeline(copies, 0, 0), copies: copies, open: 1, burst: 1}
}

func (m *model) step(ev Event) {
	for _, a := range m.p.Step(ev, nil) {
		m.act(a)
	}
}

func (m *model) act(a Action) {
	m.t.Helper()
	if m.stopped != nil && a.Kind != Wake {
		m.t.Fatalf("action %v after stop", a.Kind)
	}
	switch a.Kind {
	case CloseGroup, CloseEpoch:
		for range m.burst {
			m.step(Event{Kind: JobClosed, Job: m.job(false)})
		}
		if a.Kind == CloseEpoch {
			m.step(Event{Kind: JobClosed, Job: m.job(true)})
		}
		m.step(Event{Kind: CloseDone})
	case Drain:
		if a.Job.Seq != m.last[a.Copy]+1 {
			m.t.Fatalf("copy %d: job %d after %d", a.Copy, a.Job.Seq, m.last[a.Copy])
		}
		if a.Job.Super && a.Copy > 0 && m.done[0] < a.Job.Seq-1 {
			m.t.Fatalf("copy %d: super %d although the local copy is at %d", a.Copy, a.Job.Seq, m.done[0])
		}
		m.last[a.Copy] = a.Job.Seq
		m.given[a.Copy] = append(m.given[a.Copy], a.Job)
		if n := len(m.given[a.Copy]); n > Window {
			m.t.Fatalf("copy %d has %d jobs to do", a.Copy, n)
		}
	case Sealed:
		for c := range m.copies {
			if m.done[c] < a.Job.Seq {
				m.t.Fatalf("job %d sealed, but copy %d is at %d", a.Job.Seq, c, m.done[c])
			}
		}
		if a.Job.Seq != m.sealed+1 {
			m.t.Fatalf("job %d sealed after %d", a.Job.Seq, m.sealed)
		}
		m.sealed = a.Job.Seq
	case Stop:
		m.stopped = a.Err
	}
}

func (m *model) job(super bool) *volume.Job {
	m.seq++
	j := &volume.Job{Seq: m.seq, LSN: m.open, Super: super}
	if super {
		j.LSN = m.open - 1
	} else {
		m.open++
	}
	return j
}

// report lets copy c answer its oldest drain.
func (m *model) report(c int, err error) {
	if len(m.given[c]) == 0 {
		return
	}
	job := m.given[c][0]
	m.given[c] = m.given[c][1:]
	if err == nil {
		m.done[c] = job.Seq
	}
	m.step(Event{Kind: Drained, Copy: c, Seq: job.Seq, Err: err})
}

func (m *model) quiesce() {
	for range 100 {
		for c := range m.copies {
			m.report(c, nil)
		}
	}
}

func TestPipeline_RandomOrderKeepsInvariants(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := newModel(t, 1+rnd.IntN(3))
		wanted := uint64(0)
		for range 400 {
			switch rnd.IntN(4) {
			case 0:
				wanted = m.open
				m.step(Event{Kind: Want, LSN: wanted})
			case 1:
				if rnd.IntN(8) == 0 {
					m.step(Event{Kind: WantEpoch})
				}
			default:
				m.report(rnd.IntN(m.copies), nil)
			}
			if n := m.seq - m.sealed; n > MaxInFlight+1 {
				t.Fatalf("seed %d: %d jobs under way", seed, n)
			}
		}
		m.quiesce()
		if m.p.Durable() < wanted {
			t.Fatalf("seed %d: group %d was wanted, %d is durable at the end", seed, wanted, m.p.Durable())
		}
		if m.sealed != m.seq {
			t.Fatalf("seed %d: job %d of %d sealed at the end", seed, m.sealed, m.seq)
		}
	}
}

// A volume that filled many records since the last commit hands them all out at once.
func TestPipeline_BurstOfGroupsStaysWithinTheWindow(t *testing.T) {
	m := newModel(t, 3)
	m.burst = 40
	m.step(Event{Kind: Want, LSN: 1})
	m.step(Event{Kind: WantEpoch})
	m.quiesce()
	if m.sealed != m.seq || m.seq < 40 {
		t.Fatalf("job %d of %d sealed at the end", m.sealed, m.seq)
	}
}

func TestPipeline_OneDrainPerCopyForAnFsync(t *testing.T) {
	m := newModel(t, 3)
	m.step(Event{Kind: Want, LSN: 1})
	for c := range 3 {
		if len(m.given[c]) != 1 {
			t.Fatalf("copy %d got %d drains, want 1", c, len(m.given[c]))
		}
	}
}

func TestPipeline_SecondWaiterSharesTheDrain(t *testing.T) {
	m := newModel(t, 2)
	m.step(Event{Kind: Want, LSN: 1})
	m.step(Event{Kind: Want, LSN: 1})
	if len(m.given[1]) != 1 {
		t.Fatalf("%d drains, want 1", len(m.given[1]))
	}
}

func TestPipeline_ErrorIsStickyAndSilent(t *testing.T) {
	m := newModel(t, 2)
	m.step(Event{Kind: Want, LSN: 1})
	lost := errors.New("target lost")
	m.report(1, lost)
	if m.stopped != lost || m.p.Err() != lost {
		t.Fatalf("stopped with %v, pipeline says %v", m.stopped, m.p.Err())
	}
	m.report(0, nil)
	m.step(Event{Kind: Want, LSN: 2})
	if m.p.Durable() != 0 || m.sealed != 0 {
		t.Fatal("a group became durable after the failure")
	}
}

func TestPipeline_MissingGroupIsAnErrorNotAHang(t *testing.T) {
	p := NewPipeline(1, 0, 0)
	acts := p.Step(Event{Kind: Want, LSN: 1}, nil)
	if len(acts) != 1 || acts[0].Kind != CloseGroup {
		t.Fatalf("actions %v, want one CloseGroup", acts)
	}
	p.Step(Event{Kind: CloseDone}, nil)
	if p.Err() == nil {
		t.Fatal("no error although the wanted group never came")
	}
}

func TestPipeline_StepAllocatesNothing(t *testing.T) {
	p := NewPipeline(2, 0, 0)
	jobs := make([]volume.Job, MaxInFlight)
	out := make([]Action, 0, 16)
	var lsn uint64
	n := testing.AllocsPerRun(1000, func() {
		lsn++
		j := &jobs[lsn%MaxInFlight]
		*j = volume.Job{Seq: lsn, LSN: lsn}
		out = p.Step(Event{Kind: Want, LSN: lsn}, out[:0])
		out = p.Step(Event{Kind: JobClosed, Job: j}, out[:0])
		out = p.Step(Event{Kind: CloseDone}, out[:0])
		out = p.Step(Event{Kind: Drained, Copy: 0, Seq: lsn}, out[:0])
		out = p.Step(Event{Kind: Drained, Copy: 1, Seq: lsn}, out[:0])
	})
	if n != 0 {
		t.Fatalf("%v allocations per fsync, want 0", n)
	}
	if p.Durable() != lsn {
		t.Fatalf("durable %d, want %d", p.Durable(), lsn)
	}
}
