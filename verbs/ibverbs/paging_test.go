//go:build linux && cgo && rdma

package ibverbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

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

// Pages are fetched ahead for what the device may do with them: to fetch those of a mapping for reading for writing would fail. The library for rxe in
// Debian 12 has no such call; there a region has to be usable all the same.
func TestPrefetch(t *testing.T) {
	dev := open(t).(*device)
	defer dev.Close()
	if !dev.caps.OnDemand {
		if !isSIW(t) {
			t.Fatal("the device cannot do without pinning")
		}
		return
	}
	p, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, c := range []struct {
		prot   int
		rights verbs.Access
	}{{unix.PROT_READ, 0}, {unix.PROT_READ, verbs.RemoteRead}, {unix.PROT_READ | unix.PROT_WRITE, verbs.RemoteRead}, {unix.PROT_READ | unix.PROT_WRITE, all}} {
		mem, err := unix.Mmap(-1, 0, 1<<20, c.prot, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.RegisterMR(mem, c.rights|verbs.OnDemand)
		if err != nil {
			t.Fatalf("mapping %d, rights %d: %v", c.prot, c.rights, err)
		}
		if err := m.(*mr).prefetch(); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("mapping %d, rights %d: %v", c.prot, c.rights, err)
		}
		if err := errors.Join(m.Deregister(), unix.Munmap(mem)); err != nil {
			t.Error(err)
		}
	}
}
