//go:build mutants

package crash

import (
	"testing"

	"github.com/pmemfs/pmemfs/internal/mutant"
)

func TestMutants(t *testing.T) {
	for _, m := range []mutant.Name{mutant.NoDataFlush, mutant.NoDataFence, mutant.NoSealFlush, mutant.NoSealFence, mutant.SealWithData,
		mutant.EarlyReuse, mutant.NodesEarly, mutant.LogEarly, mutant.RootBeforeNodes, mutant.TreeInPlace, mutant.ContentAtWrite,
		mutant.SizeBeforeData, mutant.OrphanForgotten, mutant.OnePassReplay, mutant.FreesForgotten, mutant.RenameNotWhole} {
		mutant.Set(m)
		var c Counts
		killed := false
		for s := uint64(1); s < 200 && !killed; s++ {
			if f := Run(Random(s, 100), &c); f != nil {
				killed = true
				t.Logf("%-60s seed %d, %d images: %.300v", m, s, c.Images.Load(), f)
			}
		}
		if !killed {
			t.Errorf("%s SURVIVES %d images", m, c.Images.Load())
		}
	}
	mutant.Set("")
}
