package pmem

import "iter"

// pieceLen bounds one call of an assembly loop, which the scheduler and the garbage collector cannot interrupt.
const pieceLen = 256 << 10

type piece struct{ lo, hi int }

// pieces cuts n bytes into runs of at most pieceLen.
func pieces(n int) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for lo := 0; lo < n; lo += pieceLen {
			if !yield(piece{lo, min(lo+pieceLen, n)}) {
				return
			}
		}
	}
}
