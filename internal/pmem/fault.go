package pmem

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
)

// streamMin is the length in bytes from which Copy and Zero bypass the CPU cache. Shorter runs stay in the cache, since
// most of them (log records, tree nodes) are read again soon.
const streamMin = 4096

// publish orders what Copy and Zero have stored past the cache before whatever the caller does next: without it a device that is told of the bytes
// may still read the old ones. It is a variable so that a test can see it called.
var publish = storeFence

// Guard runs fn and turns a fault on the memory of an open region into a *FaultError. Every other panic passes through,
// and so does a fault elsewhere. fn must be able to stop at any load or store: it holds no lock and leaves nothing half done.
//
// A system call that is given mapped memory never faults: it fails with EFAULT.
func Guard(fn func()) (err error) {
	defer catch(debug.SetPanicOnFault(true), &err)
	fn()
	return nil
}

// Copy copies src to the start of dst, a slice of a region. When it returns nil the bytes are visible to every other
// processor and device, and not yet persistent. After a fault any part of dst may have been written.
func Copy(dst, src []byte) (err error) {
	if len(dst) < len(src) {
		return fmt.Errorf("pmem: copy of %d bytes to a slice of %d", len(src), len(dst))
	}
	dst = dst[:len(src)]
	defer catch(debug.SetPanicOnFault(true), &err)
	if len(src) < streamMin || raceEnabled {
		copy(dst, src)
		return nil
	}
	for p := range pieces(len(src)) {
		stream(dst[p.lo:p.hi], src[p.lo:p.hi])
	}
	publish()
	return nil
}

// CopyOut copies src, a slice of a region, to the start of dst, ordinary memory.
func CopyOut(dst, src []byte) (err error) {
	if len(dst) < len(src) {
		return fmt.Errorf("pmem: copy of %d bytes to a slice of %d", len(src), len(dst))
	}
	defer catch(debug.SetPanicOnFault(true), &err)
	copy(dst, src)
	return nil
}

// Zero clears b, a slice of a region, under the same terms as Copy.
func Zero(b []byte) (err error) {
	defer catch(debug.SetPanicOnFault(true), &err)
	if len(b) < streamMin || raceEnabled {
		clear(b)
		return nil
	}
	for p := range pieces(len(b)) {
		streamZero(b[p.lo:p.hi])
	}
	publish()
	return nil
}

// catch is deferred by everything that touches mapped memory; old is the goroutine's setting to be restored.
func catch(old bool, err *error) {
	debug.SetPanicOnFault(old)
	p := recover()
	if p == nil {
		return
	}
	fault, ok := faultOf(p)
	if !ok {
		panic(p)
	}
	*err = fault
}

// faultOf says whether the panic p is a fault on the memory of an open region.
func faultOf(p any) (*FaultError, bool) {
	f, ok := p.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		return nil, false
	}
	return mapped.locate(f.Addr())
}

// mapped lists the open mappings, to tell their faults from bugs. It is read only after a fault.
var mapped registry

type registry struct {
	mu   sync.Mutex // protects list
	list []*mapping
}

func (r *registry) add(m *mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, m)
}

func (r *registry) remove(m *mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(o *mapping) bool { return o == m })
}

func (r *registry) locate(addr uintptr) (*FaultError, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.list {
		base := address(m.mem)
		if addr < base || addr-base >= uintptr(m.size()) {
			continue
		}
		off := uint64(addr - base)
		path, at := m.PartAt(off)
		return &FaultError{Addr: addr, Off: off, Path: path, At: at}, true
	}
	return nil, false
}
