package volume

import (
	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

// maxSlices bounds the pieces of a loan: a file in more pieces is read by copying.
const maxSlices = 32

// Loan is content of a file where it lies in the pool. The zero value is ready for Lend, and again after each Return.
//
// From Lend to Return the volume takes no change: whoever has a loan must not call the volume, nor wait for anybody who does, and
// returns it soon.
type Loan struct {
	Slices [][]byte // in order; never to be stored to
	Size   int      // bytes of all of them

	v     *Volume
	ino   Ino
	old   bool // the access time is due
	array [maxSlices][]byte
}

// zeros stands for holes and for blocks that were never written.
var zeros [16 * layout.BlockSize]byte

// Lend is Read of up to n bytes without the copy. It returns false, with nothing lent, wherever Read must be called instead: for all
// errors, at and behind the end of the file, and for a file in many pieces.
//
// Each page is touched first, so that a fault of the medium is met here. One that comes later is met by the system call that
// the slices are given to: it fails with EFAULT.
func (v *Volume) Lend(l *Loan, ino Ino, off uint64, n int) bool {
	v.mu.RLock()
	whole := false
	fault := pmem.Guard(func() { whole = v.lend(l, ino, off, uint64(n)) })
	if fault != nil || !whole || v.tree.Err() != nil {
		v.mu.RUnlock()
		*l = Loan{}
		return false
	}
	l.v = v // which stays locked
	return true
}

// Return ends a loan.
func (l *Loan) Return() {
	v, ino, old := l.v, l.ino, l.old
	*l = Loan{}
	v.mu.RUnlock()
	if old {
		v.accessed(ino)
	}
}

// lend fills l, and tells whether it holds all that Read would find.
func (v *Volume) lend(l *Loan, ino Ino, off, n uint64) bool {
	ind, err := v.regular(ino)
	if err != nil || n == 0 || off >= ind.Size {
		return false
	}
	n = min(n, ind.Size-off)
	l.ino, l.old = ino, v.oldAccess(&ind)
	l.Slices, l.Size = l.array[:0], int(n)
	f := v.files[ino]
	for n > 0 && len(l.Slices) < maxSlices {
		m := v.mapBlock(f, ino, off/layout.BlockSize)
		at := off % layout.BlockSize
		k := min(n, m.n*layout.BlockSize-at)
		piece := zeros[:min(k, uint64(len(zeros)))]
		if m.state == written {
			piece = v.bytes[m.pblk*layout.BlockSize+at:][:k]
			touch(piece)
		}
		l.Slices = append(l.Slices, piece)
		off, n = off+uint64(len(piece)), n-uint64(len(piece))
	}
	return n == 0
}

// touch loads a byte of each page of b, which is not empty.
//
//go:noinline
func touch(b []byte) (sum byte) {
	for i := 0; i < len(b); i += layout.BlockSize {
		sum += b[i]
	}
	return sum + b[len(b)-1]
}
