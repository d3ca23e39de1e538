package volume

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/fs/volume/oplog"
	"github.com/pmemfs/pmemfs/fs/volume/tree"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Volume is an open file system.
type Volume struct {
	// mu protects all below. Data and attributes are read under RLock; every change and
	// seal takes Lock. holds has locks of its own.
	mu sync.RWMutex

	region pmem.Region
	bytes  []byte // the whole pool
	opts   Options
	super  layout.Super // what mkpool chose, and the last epoch closed

	space space
	tree  *tree.Tree
	log   *oplog.Log

	nextIno uint64
	inodes  uint64

	group  group
	limits limits
	aside  cost // set aside for what is pending in files

	files     map[Ino]*file
	unflushed []*file // those with something pending, and some that had, in the order in which they got it
	sweepAt   int     // number of files at which clean ones are dropped
	ahead     uint64  // blocks that files have set aside for appends
	holds     holds
	orphans   []Ino          // to be worked on by Reclaim, in order
	trims     map[Ino]uint64 // files whose mapping from this block on is yet to be removed
	unnamed   map[Ino]bool   // inodes without a name since this mount; true: it never had one, and may get one

	queue   []*Job // closed and not yet handed out
	flying  []*Job // handed out and not yet sealed
	idle    []*Job // to be used again
	seq     uint64
	sealed  uint64  // last group that is sealed everywhere
	flip    bool    // a super is queued or handed out, and not sealed
	growTo  uint64  // bytes of the pool from the next super on, if that is more than it has
	dropped dropped // by the open epoch
	waiting dropped // by the epoch before: free when the super of the open epoch is sealed

	snapshot []byte  // scratch of takeSnapshot
	scratch  dropped // likewise

	stopped error
	salvage bool                  // see OpenReadOnly; set before anyone else has the volume
	fault   atomic.Pointer[error] // needs no lock
	keys    [stepKeys]layout.Key  // scratch of one step
	value   []byte                // scratch for lists of names and attributes
	block   [layout.BlockSize]byte
}

// stepKeys is how many keys one record removes at most when something large is taken apart.
const stepKeys = 64

// view runs f, which only reads. A fault of the medium is its error.
func (v *Volume) view(f func() error) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var err error
	if fault := pmem.Guard(func() { err = f() }); fault != nil {
		err = fault
	} else if damage := v.damage(); damage != nil {
		err = damage
	}
	v.note(err)
	return err
}

// damage is what is wrong with the tree. A volume opened to salvage tells of it only to the call that met it.
func (v *Volume) damage() error {
	if v.salvage {
		return v.tree.TakeErr()
	}
	return v.tree.Err()
}

// note remembers the first fault of the medium that a read met: it stops nothing, but whoever asks how the pool is must hear of it.
func (v *Volume) note(err error) {
	if _, posix := err.(syscall.Errno); err == nil || posix {
		return
	}
	var fault *pmem.FaultError
	if errors.As(err, &fault) || errors.Is(err, ErrCorrupt) {
		first := err
		v.fault.CompareAndSwap(nil, &first)
	}
}

// Fault is the first fault of the medium that a read met, nil if there was none.
func (v *Volume) Fault() error {
	if err := v.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// change runs f, which may change everything. When f meets a fault of the medium, or an edit fails that was admitted,
// then tree and group may disagree: the volume stops.
func (v *Volume) change(f func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped != nil {
		return v.stopped
	}
	var err error
	if fault := pmem.Guard(func() { err = f() }); fault != nil {
		v.stop(fault)
	}
	if damage := v.tree.Err(); damage != nil {
		v.stop(damage)
	}
	if v.stopped != nil {
		return v.stopped
	}
	return err
}

// Stop refuses every later change with ErrStopped, which wraps the cause too. Reads go on. Only the first cause counts.
func (v *Volume) Stop(cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stop(cause)
}

func (v *Volume) stop(cause error) {
	if v.stopped == nil {
		v.stopped = fmt.Errorf("%w: %w", ErrStopped, cause)
	}
}

// Stopped is the error that changes return, nil as long as they are taken.
func (v *Volume) Stopped() error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.stopped
}

// LSN is the number of the last closed group.
func (v *Volume) LSN() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.log.LSN()
}

// now is the present as an inode stores it.
func (v *Volume) now() layout.Time { return layout.Time(v.opts.Now()) }
