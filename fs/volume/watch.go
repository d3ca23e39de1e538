package volume

import "github.com/pmemfs/pmemfs/internal/pmem"

// Watcher is told what a volume does on its own account, so that a simulation knows what each group holds and what each
// allocation takes. It is called under the volume's lock and must not call the volume.
type Watcher interface {
	// Flushed: what was pending of ino is in the open group; the file has this size there, in bytes.
	Flushed(ino Ino, size uint64)
	// Closed: the open group became group lsn.
	Closed(lsn uint64)
	// Allocated: this range of the pool, in bytes, may be stored to from now on.
	Allocated(r pmem.Range)
	// Short is asked whenever an operation looks for room; if it says so, there is none.
	Short() bool
}

// Watch sets who is told, instead of whoever was before.
func (v *Volume) Watch(w Watcher) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.space.watch = w
}

// taker makes what is allocated ready to be stored to, in a region that needs it. If that fails the store faults.
type taker struct {
	nobody
	owner pmem.Owner
}

func (t taker) Allocated(r pmem.Range) { _ = t.owner.Own(r) }

// nobody is told of a volume in ordinary use.
type nobody struct{}

func (nobody) Flushed(Ino, uint64)  {}
func (nobody) Closed(uint64)        {}
func (nobody) Allocated(pmem.Range) {}
func (nobody) Short() bool          { return false }
