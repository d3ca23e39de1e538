package crash

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/pmemfs/pmemfs/fs/commit"
	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
)

// Config of a run. Equal configurations run alike, bit for bit.
type Config struct {
	Seed   uint64
	Mode   pmemtest.Mode
	Effort pmemtest.Effort
	Volume volume.Params
	Size   uint64 // bytes of the pool
	Ops    []Op
	// Keep decides which operation of Ops is run; nil: all. The reducer leaves some out.
	Keep []bool
}

// Counts are shared by all runs of a process.
type Counts struct {
	Images, Same, Events, Sequences, Acks atomic.Uint64
}

// World is one run: the machines, the model, and the images of all copies at each event.
type World struct {
	cfg    Config
	counts *Counts
	rnd    *rand.Rand
	clock  int64
	step   int  // operation under way
	at     int  // next operation
	nested bool // the committer is at work, and an operation runs beside it

	vol    *volume.Volume
	engine *commit.Engine
	local  *replicaUnderTest
	line   *line // of the primary
	closed uint64
	model  *model
	acks   []ack
	due    bool   // a checkpoint
	flips  uint64 // supers asked for
	want   uint64 // group that some thread waits for
	told   uint64 // as far as the committer knows

	writes uint64
	acked  int
	full   int // operations that ran out of space
}

// replicaUnderTest is one copy of the pool.
type replicaUnderTest struct {
	name   string
	region *pmemtest.Region
	judge  judge
	seen   map[uint64]seen // what images that were judged recovered to, by hash
}

type seen struct{ lsn, clock uint64 }

// Failure is a violated invariant, with all that is needed to see it again.
type Failure struct {
	Config Config
	Step   int    // index of the operation
	Where  string // copy, event, image
	Err    error
}

func (f *Failure) Error() string {
	op := "the end"
	if f.Step < len(f.Config.Ops) {
		op = f.Config.Ops[f.Step].String()
	}
	return fmt.Sprintf("%s: during %s (number %d): %v", f.Where, op, f.Step, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

func (w *World) fail(err error) { w.failAt("live volume", err) }

func (w *World) failAt(where string, err error) {
	panic(&Failure{Config: w.cfg, Step: w.step, Where: where, Err: err})
}

func (w *World) pipe() *commit.Pipeline { return w.engine.Pipeline() }

// now is a clock that ticks at each look.
func (w *World) now() volume.Time {
	w.clock++
	return volume.Time{Sec: w.clock / 1000, Nsec: uint32(w.clock%1000) * 1000}
}

// Run runs the configuration and returns what it violated, nil if nothing. Counts may be shared by runs at the same time.
func Run(cfg Config, counts *Counts) (failure *Failure) {
	w := newWorld(cfg, counts)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *Failure:
			failure = p
		default:
			failure = &Failure{Config: cfg, Step: w.step, Where: "panic", Err: fmt.Errorf("%v\n%s", p, stack())}
		}
	}()
	w.run()
	return nil
}

func newWorld(cfg Config, counts *Counts) *World {
	w := &World{cfg: cfg, counts: counts, rnd: rand.New(rand.NewPCG(cfg.Seed, 0x706d656d)), clock: 1_000_000}
	return w
}

func (w *World) run() {
	w.counts.Sequences.Add(1)
	w.begin()
	for o, ok := w.next(); ok; o, ok = w.next() {
		w.apply(o)
		w.catchUp()
	}
	w.end()
}

// next is the next operation of the workload.
func (w *World) next() (Op, bool) {
	for w.at < len(w.cfg.Ops) {
		w.step = w.at
		w.at++
		if w.cfg.Keep == nil || w.cfg.Keep[w.step] {
			return w.cfg.Ops[w.step], true
		}
	}
	w.step = w.at
	return Op{}, false
}

// beside runs operations of other threads while the committer drains. They may change the volume, but must wait for the
// committer as soon as they need it.
func (w *World) beside() {
	if w.nested || w.line == nil || w.rnd.IntN(6) > 0 {
		return
	}
	w.nested = true
	defer func() { w.nested = false }()
	for n := w.rnd.IntN(3); n >= 0 && w.at < len(w.cfg.Ops) && w.cfg.Ops[w.at].Kind < Sync; n-- {
		if o, ok := w.next(); ok {
			w.apply(o)
		}
	}
}

// catchUp lets those go on that waited for the committer.
func (w *World) catchUp() {
	w.tell()
	if w.due {
		w.startFlip(false)
	}
	w.acknowledge()
}

// tell hands on what threads want that had no chance to tell the committer.
func (w *World) tell() bool {
	if w.want <= w.told {
		return false
	}
	w.told = w.want
	w.engine.Want(w.want)
	w.acknowledge()
	return true
}

// progress lets one thing go on that is under way, and tells whether there was one.
func (w *World) progress() bool {
	return w.tell()
}

// begin mounts a pool with /dir.
func (w *World) begin() {
	w.cfg.Volume.PoolUUID, w.cfg.Volume.HashKey = poolUUID, [16]byte{7}
	fresh := make([]byte, w.cfg.Size)
	if err := volume.Format(pmemtest.Plain(fresh), w.cfg.Volume); err != nil {
		w.fail(err)
	}
	w.local = &replicaUnderTest{name: "local copy", region: pmemtest.New(fresh, w.cfg.Mode, nil)}
	w.model = &model{dirs: [2]volume.Ino{volume.Root, volume.Root + 1}, names: make(map[Path]*node)}
	w.mount(1)
	if _, err := w.vol.Make(volume.Root, "dir", volume.Make{Mode: 0o40755}); err != nil {
		w.fail(err)
	}
	w.engine.Want(w.vol.LSN() + 1)
	w.line = newLine(w.vol.LSN(), w.model.state())
	w.closed = w.vol.LSN()
	w.watch(w.local)
}

// mount opens the volume of the local copy.
func (w *World) mount(term uint64) {
	v, rec, err := volume.Open(w.local.region, volume.Options{PoolUUID: poolUUID, Term: term, Now: w.now, NoAtime: true})
	if err != nil {
		w.fail(err)
	}
	w.vol, w.closed = v, rec.LSN
	w.engine = commit.NewEngine(v, w.local.region, nil, 0, commit.Hooks{Due: func() { w.due = true }})
}

// watch judges the images of c at each event from now on.
func (w *World) watch(c *replicaUnderTest) {
	c.seen = make(map[uint64]seen)
	c.judge = judge{dirs: w.model.dirs, now: func() volume.Time { return volume.Time{Sec: 99} }}
	c.region.OnEvent(func(e pmemtest.Event) { w.event(c, e) })
}

// event judges the crash images of c.
func (w *World) event(c *replicaUnderTest, e pmemtest.Event) {
	w.counts.Events.Add(1)
	w.noteClosed()
	c.region.Images(w.cfg.Effort, w.rnd, func(m *pmemtest.Image) bool {
		if s, ok := c.seen[m.Hash]; ok {
			w.counts.Same.Add(1)
			if err := c.judge.acknowledged(s.clock, s.lsn, w.line); err != nil {
				w.failAt(fmt.Sprintf("%s at a %v, image: %v", c.name, e, m), err)
			}
			return true
		}
		w.counts.Images.Add(1)
		m.Bytes(func(b []byte) {
			v, err := c.judge.image(b, w.line, w.flipping(), m.Hash%8 == 0)
			if err != nil {
				w.failAt(fmt.Sprintf("%s at a %v, image: %v", c.name, e, m), err)
			}
			c.seen[m.Hash] = seen{v.rec.LSN, v.clock}
		})
		return true
	})
	if c == w.local {
		w.beside()
	}
}

// noteClosed remembers what the groups stand for that were closed since: the present, since no operation was under way.
func (w *World) noteClosed() {
	for lsn := w.vol.LSN(); w.closed < lsn; {
		w.closed++
		w.line.states[w.closed] = w.model.state()
	}
}

// flipping tells whether a super is being written, so that a crash may leave only one.
func (w *World) flipping() bool { return w.pipe().Supers() < w.flips }

// until lets everything that is under way go on until cond holds.
func (w *World) until(cond func() bool) {
	for !cond() {
		if w.progress() {
			continue
		}
		w.fail(fmt.Errorf("nothing is under way, and still there is something to wait for (pipeline: %v)", w.pipe().Err()))
	}
}

// end settles and looks once more.
func (w *World) end() {
	w.settle()
	w.acknowledge()
	if err := w.local.judge.check(w.vol); err != nil {
		w.fail(err)
	}
	w.counts.Acks.Add(uint64(w.acked))
}
