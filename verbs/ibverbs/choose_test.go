package ibverbs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
)

// fake is a sysfs with one file per entry: "device/ports/1/state" and the like.
func fake(files map[string]string) sysfs {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return sysfs{m}
}

func TestDevices(t *testing.T) {
	if _, err := fake(nil).devices(); !errors.Is(err, errNoDevice) {
		t.Errorf("no devices: %v", err)
	}
	for _, word := range []string{"rdma link add", `provider = "iwarp"`} {
		if !strings.Contains(errNoDevice.Error(), word) {
			t.Errorf("the message of a machine without a device does not name %q", word)
		}
	}
	s := fake(map[string]string{
		"mlx5_1/ports/1/state":  "1: DOWN\n",
		"mlx5_1/ports/2/state":  "4: ACTIVE\n",
		"mlx5_1/ports/10/state": "4: ACTIVE\n",
		"mlx5_1/device/vendor":  "0x15b3\n",
		"mlx5_0/ports/1/state":  "1: DOWN\n",
		"rxe0/ports/1/state":    "4: ACTIVE\n",
		"half/node_type":        "1: CA\n",
		"odd/ports/1/state":     "5: ACTIVE_DEFER\n",
		"odd/ports/x/state":     "4: ACTIVE\n",
	})
	if err := s.check("mlx5_2"); err == nil || !strings.Contains(err.Error(), "mlx5_0, mlx5_1") {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := s.check("mlx5_0"); err != nil {
		t.Error(err)
	}
	if p, err := s.activePort("mlx5_1"); p != 2 || err != nil {
		t.Errorf("port %d, %v; want 2", p, err)
	}
	for _, name := range []string{"mlx5_0", "half", "odd"} {
		if p, err := s.activePort(name); err == nil {
			t.Errorf("%s has no active port, found %d", name, p)
		}
	}
	if name, err := s.firstActive(); name != "mlx5_1" || err != nil {
		t.Errorf("first with an active port: %q, %v", name, err)
	}
	if _, err := fake(map[string]string{"mlx5_0/ports/1/state": "1: DOWN"}).firstActive(); err == nil || !strings.Contains(err.Error(), "mlx5_0") {
		t.Errorf("all ports down: %v", err)
	}
	if s.software("mlx5_1") || !s.software("rxe0") {
		t.Error("hardware and software are confused")
	}
}

func TestChooseGID(t *testing.T) {
	addr := netip.MustParseAddr
	table := []gid{
		{0, addr("fe80::1"), false},
		{1, addr("fe80::1"), true},
		{2, addr("10.0.0.1"), false},
		{3, addr("2001:db8::1"), true},
		{4, addr("169.254.1.1"), true},
		{5, addr("10.0.0.1"), true},
		{7, addr("10.0.0.2"), true},
	}
	for _, c := range []struct{ want, got int }{{AnyGID, 5}, {0, 0}, {7, 7}, {3, 3}} {
		if g, ok := chooseGID(table, c.want); !ok || g.index != c.got {
			t.Errorf("asked for %d: %+v, %v; want %d", c.want, g, ok, c.got)
		}
	}
	if g, ok := chooseGID(table, 6); ok {
		t.Errorf("asked for one that is not there: %+v", g)
	}
	if g, ok := chooseGID(table[:4], AnyGID); !ok || g.index != 3 {
		t.Errorf("IPv6 only: %+v, %v", g, ok)
	}
	if g, ok := chooseGID(table[:3], AnyGID); ok {
		t.Errorf("link-local and version 1 only: %+v", g)
	}
	for _, c := range []struct{ index, want int }{{2, 5}, {0, 1}, {5, 5}, {7, 7}, {6, 6}} {
		if got := version2(table, c.index); got != c.want {
			t.Errorf("version 2 of %d: %d; want %d", c.index, got, c.want)
		}
	}
	if s := listGIDs(table[:2]); s != "there are 0 (fe80::1, RoCE v1) 1 (fe80::1, RoCE v2)" {
		t.Error(s)
	}
}

func TestWorkID(t *testing.T) {
	for _, c := range []struct {
		handle uint32
		recv   bool
		seq    uint32
	}{{0, false, 0}, {maxHandle, true, 1<<32 - 1}, {1, true, 0}, {maxHandle, false, 7}, {5, true, 1 << 31}} {
		h, r, s := splitID(workID(c.handle, c.recv, c.seq))
		if h != c.handle || r != c.recv || s != c.seq {
			t.Errorf("%+v becomes %d %v %d", c, h, r, s)
		}
	}
}
