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
	// Erase makes a part also of a Device DAX that holds data. All of it is lost, but not before everything that can refuse the pool has been asked.
	Erase bool
	// Ready, if not nil, is asked last, before a byte of a Device DAX is changed, with the header that the pool will have. Its error is that
	// of Create.
	Ready func(poolset.Header) error
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
		parts = append(parts, pmem.Part{Path: part.Path, Size: part.Size})
		if isDevice(part.Path) {
			continue
		}
		back, err := makeFile(set, part, opt.Sparse)
		if back != nil {
			undo = append(undo, back)
		}
		if err != nil {
			return nil, undo, err
		}
	}
	if err := syncDirs(set.Parts); err != nil {
		return nil, undo, fmt.Errorf("pool %s: %w", set.File, err)
	}
	r, err := pmem.OpenFiles(parts, pmem.Options{})
	if err != nil {
		return nil, undo, fmt.Errorf("pool %s: %w", set.File, err)
	}
	undo = append(undo, r.Close)
	if p, err = plan(set, r, attr, opt); err == nil {
		err = ready(set, r, p.header, opt)
	}
	if err != nil {
		return nil, undo, err
	}
	p.parts = parts
	// From here on devices are changed.
	undo = append([]func() error{func() error { return clearDevices(set, r) }}, undo...)
	if opt.Erase {
		err = clearDevices(set, r)
	}
	if err == nil {
		err = p.format()
	}
	if err != nil {
		return nil, undo, err
	}
	return p, nil, nil
}

// plan is a new pool on r, of which nothing has been written. It refuses a class of durability that the memory cannot keep.
func plan(set *poolset.Set, r pmem.Region, attr poolset.Attr, opt CreateOptions) (*Pool, error) {
	if err := opt.Durability.check(set.File, r.Promise()); err != nil {
		return nil, err
	}
	state, err := firstState(opt)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", set.File, err)
	}
	h := poolset.Header{Attr: withDefaults(attr), Created: time.Now().Unix(), PoolSize: uint64(len(r.Bytes()))}
	return &Pool{set: set, region: r, header: h, state: state}, nil
}

// ready asks what can refuse the pool after its parts are found good.
func ready(set *poolset.Set, r pmem.Region, h poolset.Header, opt CreateOptions) error {
	if !opt.Erase {
		if err := checkDevices(set, r); err != nil {
			return err
		}
	}
	if opt.Ready == nil {
		return nil
	}
	return opt.Ready(h)
}

// format writes block 0 of a new pool.
//
// Order of durable steps: 1 the parts as a whole (their sizes and blocks); 2 state; 3 header copy; 4 header.
func (p *Pool) format() error {
	for _, step := range []func() error{
		p.region.Sync,
		func() error { return writeState(p.region, p.state, 0, p.header.PoolUUID) },
		func() error { return writeHeader(p.region, p.header, poolset.HeaderCopyOff) },
		func() error { return writeHeader(p.region, p.header, 0) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("pool %s: write header: %w", p.set.File, err)
		}
	}
	return nil
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

// makeFile makes one part with its full size. undo is not nil if something was made, also after an error.
func makeFile(set *poolset.Set, p poolset.Part, sparse bool) (undo func() error, err error) {
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
