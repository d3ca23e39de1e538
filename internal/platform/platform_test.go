package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/nvdimm"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/verbs"
)

func declared(t *testing.T, text string) *Platform {
	t.Helper()
	path := filepath.Join(t.TempDir(), "platform.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInboundPersistent(t *testing.T) {
	const none, port, eadr = "", "[port.mlx5_0]\ninbound = \"persistent\"\n", "eadr = true\n"
	for _, c := range []struct {
		text, device string
		cpu          bool // CPUPlaced
		want         bool
		why          string
	}{
		{none, "mlx5_0", false, false, "neither"},
		{none, "rxe0", true, false, "with the CPU"},
		{port, "mlx5_0", false, true, "bypass"},
		{port, "mlx5_1", false, false, "mlx5_1"},
		{port, "mlx5_0", true, false, "with the CPU"}, // whatever its name, it stores by CPU
		{eadr, "mlx5_0", false, true, "eadr"},
		{eadr, "siw0", true, true, "eadr"},
		{eadr + port, "siw0", true, true, "eadr"},
		{"eadr = false\n" + port, "siw0", true, false, "with the CPU"},
	} {
		p := declared(t, c.text)
		ok, why := p.InboundPersistent(c.device, verbs.Caps{CPUPlaced: c.cpu})
		if ok != c.want || !strings.Contains(why, c.why) || !strings.Contains(why, p.Path) {
			t.Errorf("%q, %s, CPU %v: %v, %s", c.text, c.device, c.cpu, ok, why)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.toml")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "platform = ") || !strings.Contains(err.Error(), "leave the key out") {
		t.Errorf("a file that was named and is not there: %v", err)
	}
	if _, err := os.Stat(DefaultPath); err != nil {
		p, err := Load("")
		if err != nil || p.EADR || len(p.Inbound) != 0 || p.Path != DefaultPath {
			t.Errorf("without a file: %+v, %v", p, err)
		}
	}
}

// The kernel's word is compared with the declaration, part by part.
func TestDoubts(t *testing.T) {
	part := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, domain string
		want         int
	}{
		{"eadr = true", "memory_controller", 1},
		{"eadr = true", "cpu_cache", 0},
		{"eadr = true", "", 0},
		{"", "memory_controller", 0},
		{"", "cpu_cache", 0},
	} {
		p := declared(t, c.text)
		p.sysfs = sysfsWith(t, part, c.domain)
		doubts := p.Doubts([]poolset.Part{{Path: part}})
		if len(doubts) != c.want {
			t.Errorf("%q against %q: %q", c.text, c.domain, doubts)
		}
		for _, d := range doubts {
			if !strings.Contains(d, "region7") || !strings.Contains(d, part) || !strings.Contains(d, p.Path) {
				t.Errorf("names not what it is about: %s", d)
			}
		}
	}
}

// sysfsWith is a sysfs in which the file at path lies in region7.
func sysfsWith(t *testing.T, path, domain string) nvdimm.Sysfs {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	dev := fi.Sys().(*syscall.Stat_t).Dev
	root := t.TempDir()
	region := filepath.Join(root, "ndbus0/region7")
	for name, text := range map[string]string{"devtype": "nd_pmem", "persistence_domain": domain, "block/size": "0"} {
		at := filepath.Join(region, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "dev/block", fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(region+"/block", link)); err != nil {
		t.Fatal(err)
	}
	return nvdimm.Sysfs(root)
}

func TestLoad_ErrorsNameLineAndKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "platform.toml")
	if err := os.WriteFile(path, []byte("\neadr = true\n[port.mlx5_0]\ninbund = \"persistent\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	if e, ok := errors.AsType[*config.Error](err); !ok || e.Line != 4 || e.Key != "port.mlx5_0.inbund" {
		t.Errorf("%v", err)
	}
}
