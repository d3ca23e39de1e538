package fs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// lendMin is the length in bytes from which a READ is answered from the mapping; see docs/decisions/0008. Below it nothing is
// gained.
const lendMin = 256 << 10

// loan is the answer to a READ that lies in the pool. go-fuse hands its slices to writev(2), then calls Done, whatever
// became of the answer; in between it calls nothing else of the server in that goroutine. writev waits for nobody: the kernel's
// side of the answer is pinned pages, and a fault on ours (EFAULT) makes it answer EIO to the program.
type loan struct{ volume.Loan }

var loans = sync.Pool{New: func() any { return new(loan) }}

// lend answers a READ of n bytes, or returns nil where it must be answered by a copy.
func (s *Server) lend(in *fuse.ReadIn, n int) *loan {
	l := loans.Get().(*loan)
	if !s.vol.Lend(&l.Loan, in.NodeId, in.Offset, n) {
		loans.Put(l)
		return nil
	}
	return l
}

// Size is part of fuse.ReadResult.
func (l *loan) Size() int { return l.Loan.Size }

// Slices makes go-fuse write the answer without a copy.
func (l *loan) Slices() ([][]byte, fuse.Status) { return l.Loan.Slices, fuse.OK }

// Bytes is part of fuse.ReadResult, for transports without writev.
func (l *loan) Bytes(buf []byte) ([]byte, fuse.Status) {
	buf = buf[:0]
	for _, s := range l.Loan.Slices {
		buf = append(buf, s...)
	}
	return buf, fuse.OK
}

// Done ends the loan.
func (l *loan) Done() {
	l.Return()
	loans.Put(l)
}
