package fsx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Reduce repeats a failure in fresh directories below dir with fewer and fewer operations, for about that time, and returns the
// numbers of the shortest list that failed, nil if none did: then it takes more than the operations to fail.
func Reduce(dir string, seed, failed uint64, limit time.Duration) []uint64 {
	end := time.Now().Add(limit)
	tries := 0
	fails := func(ops []uint64) bool {
		tries++
		return time.Now().Before(end) && replay(filepath.Join(dir, fmt.Sprintf("replay%d", tries)), seed, ops) != nil
	}
	var keep []uint64
	for n := uint64(16); ; n *= 8 { // most failures need only what went before at once
		first := failed + 1 - min(n, failed+1)
		var ops []uint64
		for i := first; i <= failed; i++ {
			ops = append(ops, i)
		}
		if fails(ops) {
			keep = ops
			break
		}
		if first == 0 {
			return nil
		}
	}
	for chunk := max(len(keep)/2, 1); ; chunk /= 2 {
		for at := 0; at+chunk < len(keep); {
			shorter := slices.Delete(slices.Clone(keep), at, at+chunk)
			if fails(shorter) {
				keep = shorter
			} else {
				at += chunk
			}
		}
		if chunk == 1 {
			return keep
		}
	}
}

// replay does some operations in a fresh directory, and compares everything at the end.
func replay(dir string, seed uint64, ops []uint64) error {
	defer os.RemoveAll(dir)
	g, err := New(dir, seed)
	if err != nil {
		return nil // that is not the failure looked for
	}
	defer g.Close()
	for _, n := range ops {
		if err := g.Play(n); err != nil {
			return err
		}
	}
	return g.Compare()
}
