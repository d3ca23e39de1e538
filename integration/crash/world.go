package crash

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem/pmemtest"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// Setup says which machines there are.
type Setup uint8

const (
	Bare     Setup = iota // a volume on one copy, without a pool header
	Mirrored              // a pool with a target, mounted as `pmemfs mount` does it
)

// Config of a run. Equal configurations run alike, bit for bit.
type Config struct {
	Seed   uint64
	Setup  Setup
	Mode   pmemtest.Mode
	Effort pmemtest.Effort
	Volume volume.Params
	Size   uint64 // bytes of the pool at first
	Room   uint64 // bytes of each copy behind it, for the pool to grow
	// Ballast are bytes that a file takes away, so that space is short.
	Ballast uint64
	Ops     []Op
	// Keep decides which operation of Ops is run; nil: all. The reducer leaves some out.
	Keep []bool
	// Mounts also judges the images of the first mount, with a full copy.
	Mounts bool
	// Unordered lets the fabric place Writes in any order where a Send does not separate them.
	Unordered bool
	// Method of persistency that the mount asks for; 0: the target chooses.
	Method wire.Method
	Device Device
	// Early lets the completions of Writes and Sends come before their bytes are fetched.
	Early bool
	// Repeat lets frames of the control connection arrive twice.
	Repeat bool
	// Blind names copies that are not judged.
	Blind string
	// Scarce lets one operation run out of room.
	Scarce Scarce
}

// Scarce says that operation number Step is denied room, from its request number Request on, or that request alone. Requests count from 1; 0 denies none.
type Scarce struct {
	Step    int
	Request int
	Once    bool
}

// Counts are shared by all runs of a process.
type Counts struct {
	Images    atomic.Uint64 // judged
	Same      atomic.Uint64 // equal to one that was judged
	Digest    atomic.Uint64 // of the images judged, whatever their order
	Events    atomic.Uint64
	Sequences atomic.Uint64 // runs
	Acks      atomic.Uint64 // fsyncs that were acknowledged
	Mounts    atomic.Uint64
	Full      atomic.Uint64 // operations that ran out of space
	Copies    atomic.Uint64 // full copies begun
	Cut       atomic.Uint64 // mounts that something interrupted
	Promoted  atomic.Uint64
	Losses    atomic.Uint64 // of a target
	Disks     atomic.Uint64 // that refused to write
	Repeated  atomic.Uint64 // frames
}

// World is one run: the machines, the model, and the images of all copies at each event.
type World struct {
	cfg     Config
	counts  *Counts
	observe func(c *copyUnderTest, s seen) // told of each image that was judged
	rnd     *rand.Rand
	clock   int64         // of the volumes
	time    time.Duration // of the network
	step    int           // operation under way
	at      int           // next operation

	*life   // the mount
	primary *host
	other   *host // the target, or nil
	spare   *host // what may become one at the next mount

	fabric *verbstest.Fabric
	links  []*link
	conns  uint64
	ids    uint64

	writes uint64
	term   uint64 // of a bare mount
	fuse   int    // events of a mount until something goes wrong, 0 = nothing does
	broken bool   // it did
	acked  int    // fsyncs
	full   int    // operations that ran out of space
	bomb   int    // events of the local copy until the life ends, 0 = it does not
	fate   Kind   // how

	repeated int  // value of at when a frame came twice
	requests int  // for room, by the operation that Config.Scarce names
	denied   bool // one of them was
}

// host is a machine with a copy of the pool.
type host struct {
	*copyUnderTest
	site
}

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

// now is a clock that ticks at each look.
func (w *World) now() volume.Time {
	w.clock++
	return volume.Time{Sec: w.clock / 1000, Nsec: uint32(w.clock%1000) * 1000}
}

// id is a number that was not used before.
func (w *World) id() uint64 {
	w.ids++
	return w.ids<<32 | 0x1d
}

// Run runs the configuration and returns what it violated, nil if nothing. Counts may be shared by runs at the same time.
func Run(cfg Config, counts *Counts) *Failure {
	return newWorld(cfg, counts).outcome()
}

func newWorld(cfg Config, counts *Counts) *World {
	return &World{cfg: cfg, repeated: -1, counts: counts, rnd: rand.New(rand.NewPCG(cfg.Seed, 0x706d656d)), clock: 1_000_000,
		observe: func(*copyUnderTest, seen) {}}
}

// outcome runs w.
func (w *World) outcome() (failure *Failure) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *Failure:
			failure = p
		default:
			failure = &Failure{Config: w.cfg, Step: w.step, Where: "panic", Err: fmt.Errorf("%v\n%s", p, debug.Stack())}
		}
	}()
	w.run()
	return nil
}

func (w *World) run() {
	w.counts.Sequences.Add(1)
	w.begin()
	for o, ok := w.next(); ok; o, ok = w.next() {
		w.survive(o)
	}
	w.end()
	w.counts.Acks.Add(uint64(w.acked))
	w.counts.Full.Add(uint64(w.full))
}

// survive does one operation, and a new mount if the life ends meanwhile.
func (w *World) survive(o Op) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(crashed); !ok {
				panic(p)
			}
			w.die(w.fate)
		}
	}()
	w.do(o)
	if w.denied {
		w.inspect()
	}
	w.catchUp()
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

// do does one operation.
func (w *World) do(o Op) {
	switch o.Kind {
	case PowerLoss, Restart:
		w.doom(o)
	case TargetLoss:
		w.targetLoss()
	case Promote:
		w.promote()
	case Unmount:
		w.unmount()
	case LinkLoss:
		w.linkLoss()
	case DiskLoss:
		w.diskLoss()
	case Deliver:
		for n := uint32(0); (n < o.Len || o.Len == 0) && w.deliver(); n++ {
		}
		w.acknowledge()
	default:
		w.apply(o)
	}
}

// end settles, compares the copies, and looks once more.
func (w *World) end() {
	w.bomb = 0
	w.settle()
	w.acknowledge()
	w.inspect()
	w.compare()
}

// inspect compares the live volume with the model.
func (w *World) inspect() {
	j := &w.primary.judge
	err := j.check(w.vol)
	if err == nil {
		err = j.matches(w.vol, w.model.present())
	}
	if err != nil {
		w.fail(err)
	}
}

// until lets everything that is under way go on until cond holds.
func (w *World) until(cond func() bool) {
	for !cond() {
		if w.tell() {
			continue
		}
		if err := w.pipe().Err(); err != nil {
			w.fail(fmt.Errorf("the pipeline ended: %w", err))
		}
		if !w.progress() {
			w.fail(fmt.Errorf("nothing is under way, and still there is something to wait for"))
		}
	}
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

// catchUp lets those go on that waited for the committer.
func (w *World) catchUp() {
	w.tell()
	if w.due && w.rnd.IntN(8) == 0 { // the thread for checkpoints takes its time
		w.startFlip(false)
	}
	w.acknowledge()
}
