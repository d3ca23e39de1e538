package pool

import (
	"errors"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/poolset"
)

// unsynced is a region whose every write-back fails, as after a first msync that failed.
type unsynced struct{ pmem.Region }

var errUnsynced = &pmem.SyncError{Path: "part0", Len: 4096, Err: errors.New("made to fail")}

func (unsynced) Flush([]pmem.Range) error { return errUnsynced }
func (unsynced) Fence() error             { return errUnsynced }
func (unsynced) Sync() error              { return errUnsynced }

// A copy whose write-back failed is not built on by the next who opens it, if there is another copy.
func TestDistrust(t *testing.T) {
	for _, c := range []struct {
		name  string
		peer  poolset.UUID
		fails func(p *Pool) // finds the failure
		want  poolset.Flags
	}{
		{"while mounted", poolset.UUID{7}, func(p *Pool) { p.Distrust(errors.Join(errors.New("drain"), errUnsynced)) }, poolset.Inconsistent},
		{"at Open", poolset.UUID{7}, func(p *Pool) {
			if err := p.load(OpenOptions{}); !errors.Is(err, errUnsynced.Err) {
				t.Errorf("load: %v", err)
			}
		}, poolset.Inconsistent},
		{"another failure", poolset.UUID{7}, func(p *Pool) { p.Distrust(&pmem.FaultError{}) }, poolset.Clean},
		{"the only copy", poolset.UUID{}, func(p *Pool) { p.Distrust(errUnsynced) }, poolset.Clean},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := newPool(t)
			p := mustOpen(t, set, OpenOptions{})
			if err := p.SetState(func(s *poolset.State) { s.Flags |= poolset.Clean; s.Peers[0] = c.peer }); err != nil {
				t.Fatal(err)
			}
			p.region = unsynced{p.region}
			c.fails(p)
			mustClose(t, p)
			p = mustOpen(t, set, OpenOptions{})
			defer mustClose(t, p)
			if got := p.State().Flags &^ poolset.Memory; got != c.want {
				t.Errorf("flags %v, want %v", got, c.want)
			}
		})
	}
}
