package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// Least sizes in bytes.
const (
	MinPart      = 2 << 20
	minTestTotal = 1 << 20
)

// CreateOptions of Create.
type CreateOptions struct {
	Durability Durability
	// Sparse leaves out the preallocation. A full file system below the pool then shows up as a fault at some later store.
	Sparse bool
	// State to begin with. Seq and the fields of the durability class are set by Create, and so is Gen if it is zero.
	State poolset.State
	Role  string        // as in OpenOptions
	Wait  time.Duration // as in OpenOptions
	// Erase makes a part also of a Device DAX that holds data. All of it is lost.
	Erase bool
	// SmallForTests lowers the least size to 1 MiB in all, so that tests stay fast.
	SmallForTests bool
}

// Create makes the parts of a new pool and opens it. A zero signature, version, pool UUID or copy id in attr is replaced
// by that of pmemfs or a random one. Files that exist and are not empty, and devices that hold data, are refused with an error that wraps fs.ErrExist.
// After an error nothing is left of what it made.
func Create(set *poolset.Set, attr poolset.Attr, opt CreateOptions) (*Pool, error) {
	set, err := withDevices(set)
	if err != nil {
		return nil, err
	}
	if err := checkSizes(set, opt.SmallForTests); err != nil {
		return nil, err
	}
	l, err := acquire(set, opt.Role, orDefault(opt.Wait))
	if err != nil {
		return nil, err
	}
	p, undo, err := create(set, attr, opt)
	if err == nil {
		p.locks = l
		return p, nil
	}
	for _, f := range undo {
		err = errors.Join(err, f())
	}
	return nil, errors.Join(err, l.abandon())
}

func checkSizes(set *poolset.Set, small bool) error {
	for _, p := range set.Parts {
		if p.Auto {
			return fmt.Errorf("pool %s, line %d: part %s is no Device DAX, and a new file needs a size in place of AUTO", set.File, p.Line, p.Path)
		}
		if p.Size < MinPart && !small {
			return fmt.Errorf("pool %s, line %d: part %s of %d bytes is too small, a part has at least %d",
				set.File, p.Line, p.Path, p.Size, MinPart)
		}
	}
	if set.Size() < minTestTotal {
		return fmt.Errorf("pool %s: %d bytes are too small, a pool has at least %d", set.File, set.Size(), minTestTotal)
	}
	return nil
}

// create does the work under the lock. After an error undo takes back what was made, to be run in order.
func create(set *poolset.Set, attr poolset.Attr, opt CreateOptions) (p *Pool, undo []func() error, err error) {
	var parts []pmem.Part
	for _, part := range set.Parts {
		back, err := makePart(set, part, opt.Sparse, opt.Erase)
		if back != nil {
			undo = append(undo, back)
		}
		if err != nil {
			return nil, undo, err
		}
		parts = append(parts, pmem.Part{Path: part.Path, Size: part.Size})
	}
	if err := syncDirs(set.Parts); err != nil {
		return nil, undo, fmt.Errorf("pool %s: %w", set.File, err)
	}
	r, err := pmem.OpenFiles(parts, pmem.Options{})
	if err != nil {
		return nil, undo, fmt.Errorf("pool %s: %w", set.File, err)
	}
	p, err = format(set, r, attr, opt)
	if err != nil {
		return nil, append(undo, r.Close), err
	}
	p.parts = parts
	return p, nil, nil
}

// format writes block 0 of a new pool.
//
// Order of durable steps: 1 the parts as a whole (their sizes and blocks); 2 state; 3 header copy; 4 header.
func format(set *poolset.Set, r pmem.Region, attr poolset.Attr, opt CreateOptions) (*Pool, error) {
	if err := opt.Durability.check(set.File, r.Promise()); err != nil {
		return nil, err
	}
	state, err := firstState(opt)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", set.File, err)
	}
	h := poolset.Header{Attr: withDefaults(attr), Created: time.Now().Unix(), PoolSize: uint64(len(r.Bytes()))}
	for _, step := range []func() error{
		r.Sync,
		func() error { return writeState(r, state, 0, h.PoolUUID) },
		func() error { return writeHeader(r, h, poolset.HeaderCopyOff) },
		func() error { return writeHeader(r, h, 0) },
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("pool %s: write header: %w", set.File, err)
		}
	}
	return &Pool{set: set, region: r, header: h, state: state}, nil
}

func firstState(opt CreateOptions) (poolset.State, error) {
	s := opt.State
	s.Seq = 1
	for s.Gen == 0 {
		s.Gen = rand.Uint64()
	}
	return withClass(s, opt.Durability)
}

func withDefaults(a poolset.Attr) poolset.Attr {
	if a.Signature == ([8]byte{}) {
		a.Signature = poolset.Signature
	}
	if a.Signature == poolset.Signature && a.Major == 0 {
		a.Major = major
	}
	if a.PoolUUID.IsZero() {
		a.PoolUUID = poolset.NewUUID()
	}
	if a.CopyID.IsZero() {
		a.CopyID = poolset.NewUUID()
	}
	return a
}

// makePart makes one part with its full size. undo is not nil if something was made, also after an error.
func makePart(set *poolset.Set, p poolset.Part, sparse, erase bool) (undo func() error, err error) {
	if isDevice(p.Path) {
		return makeDevice(set, p, erase)
	}
	wrap := func(err error) error { return fmt.Errorf("pool %s, line %d: create part: %w", set.File, p.Line, err) }
	undo = func() error { return os.Remove(p.Path) }
	f, err := os.OpenFile(p.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		undo = func() error { return os.Truncate(p.Path, 0) }
		f, err = openEmpty(set, p)
	}
	if err != nil {
		return nil, wrap(err)
	}
	err = allocate(f, 0, p.Size, sparse)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return undo, wrap(err)
	}
	return undo, nil
}

// openEmpty opens a part that exists already.
func openEmpty(set *poolset.Set, p poolset.Part) (*os.File, error) {
	fi, err := os.Stat(p.Path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, notRegular(set, p, fi)
	}
	if fi.Size() != 0 {
		return nil, fmt.Errorf("%s holds %d bytes: %w: remove it if nobody needs what it holds, or choose another path", p.Path, fi.Size(), fs.ErrExist)
	}
	return os.OpenFile(p.Path, os.O_RDWR, 0)
}
