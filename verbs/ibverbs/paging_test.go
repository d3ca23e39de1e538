//go:build linux && cgo && rdma

package ibverbs

import (
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// unpinned is a device that pins no region.
type unpinned struct{ verbs.Device }

type unpinnedPD struct{ verbs.PD }

func (d unpinned) AllocPD() (verbs.PD, error) {
	p, err := d.Device.AllocPD()
	return unpinnedPD{p}, err
}

func (p unpinnedPD) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	return p.PD.RegisterMR(b, a|verbs.OnDemand)
}

// The suite again, with on-demand paging for every region. siw has none, and must say so.
func TestProvider_OnDemand(t *testing.T) {
	d := open(t)
	can := d.Caps().OnDemand
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if can == isSIW(t) {
		t.Fatalf("on-demand paging: %v", can)
	}
	if !can {
		return
	}
	verbstest.TestProvider(t, func(t testing.TB) (a, b verbs.Device, addr string) {
		return unpinned{open(t)}, unpinned{open(t)}, listenAddr(t)
	})
}
