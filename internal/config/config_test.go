package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSampleFiles(t *testing.T) {
	m, err := LoadMount("../../packaging/pmemfs.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultMount()
	want.Path, want.Pool, want.targets = m.Path, "/etc/pmemfs/data.set", map[string]Replica{}
	if d := cmp.Diff(want, m, cmp.AllowUnexported(Mount{})); d != "" {
		t.Errorf("pmemfs.toml is not the default (-want +got):\n%s", d)
	}
	g, err := LoadTarget("../../packaging/target.toml")
	if err != nil {
		t.Fatal(err)
	}
	dt := DefaultTarget()
	dt.Path, dt.PoolDir = g.Path, "/var/lib/pmemfs/pools"
	if d := cmp.Diff(dt, g); d != "" {
		t.Errorf("target.toml is not the default (-want +got):\n%s", d)
	}
	p, err := LoadPlatform("../../packaging/platform.toml")
	if err != nil {
		t.Fatal(err)
	}
	if p.EADR || len(p.Inbound) > 0 {
		t.Errorf("platform.toml declares something: %+v", p)
	}
}

func TestLoadPlatform_Values(t *testing.T) {
	path := write(t, "eadr = true\n[port.mlx5_1]\ninbound = \"persistent\"\n[port]\nmlx5_0 = {inbound = \"persistent\"}\n")
	p, err := LoadPlatform(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Platform{path, true, []string{"mlx5_0", "mlx5_1"}}, p); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The values that the samples show in comments are taken too, and for what the comments say.
func TestSampleFiles_CommentedValues(t *testing.T) {
	for _, name := range []string{"pmemfs.toml", "target.toml"} {
		text, err := os.ReadFile("../../packaging/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var open []string
		for _, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "# "); ok && (strings.Contains(rest, " = ") || strings.HasPrefix(rest, "[")) {
				line = rest
			}
			open = append(open, line)
		}
		path := write(t, strings.Join(open, "\n"))
		if name == "target.toml" {
			got, err := LoadTarget(path)
			if err != nil {
				t.Fatal(err)
			}
			want := DefaultTarget()
			want.Path, want.PoolDir = path, "/var/lib/pmemfs/pools"
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("target.toml names other defaults (-want +got):\n%s", d)
			}
			continue
		}
		got, err := LoadMount(path)
		if err != nil {
			t.Fatal(err)
		}
		want := Replica{Address: "10.0.0.2:7470", RDMA: defaultRDMA, Durability: Media}
		if d := cmp.Diff(want, got.Target("storage2.example.org")); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		got.targets = nil
		def := DefaultMount()
		def.Path, def.Pool = path, "/etc/pmemfs/data.set"
		if d := cmp.Diff(def, got, cmp.AllowUnexported(Mount{})); d != "" {
			t.Errorf("pmemfs.toml names other defaults (-want +got):\n%s", d)
		}
	}
}

func TestLoadMount_Values(t *testing.T) {
	m, err := LoadMount(write(t, `
pool = "/p.set"
durability = "memory"
timeout = "0s"
commit_interval = "250ms"
on_loss = "error"
bounce = "64MiB"
[target]
h3 = {address = "[::1]:5", provider = "iwarp"}
[target."h1"]
crc = true
[target."h2:99"]
durability = "media"
method = "apm"
[target.h4]
provider = "ibverbs"
device = "mlx5_0"
gid = 3
method = "flush"
`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Pool != "/p.set" || m.Durability != Memory || m.Timeout != 0 || m.CommitInterval != 250*time.Millisecond || m.Bounce != 64<<20 {
		t.Errorf("got %+v", m)
	}
	for host, want := range map[string]Replica{
		"h1":           {"h1:7470", RDMA{provider.IWARP, "", provider.AnyGID, true}, Memory, 0},
		"h2:99":        {"h2:99", defaultRDMA, Media, wire.APM},
		"h3":           {"[::1]:5", defaultRDMA, Memory, 0},
		"h4":           {"h4:7470", RDMA{provider.IBVerbs, "mlx5_0", 3, false}, Memory, wire.FLUSH},
		"not.in.there": {"not.in.there:7470", defaultRDMA, Memory, 0},
		"fe80::1":      {"[fe80::1]:7470", defaultRDMA, Memory, 0},
	} {
		if d := cmp.Diff(want, m.Target(host)); d != "" {
			t.Errorf("%s: -want +got:\n%s", host, d)
		}
	}
	if d := cmp.Diff([]string{"h1", "h2:99", "h3", "h4"}, m.Targets()); d != "" {
		t.Error(d)
	}
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
	if err := DefaultMount().Validate(); err == nil {
		t.Error("a mount without a pool is valid")
	}
}

func TestLoad_Errors(t *testing.T) {
	mount := func(p string) error { _, err := LoadMount(p); return err }
	target := func(p string) error { _, err := LoadTarget(p); return err }
	platform := func(p string) error { _, err := LoadPlatform(p); return err }
	for _, c := range []struct {
		name, text string
		load       func(string) error
		want       []string // "LINE: text" pieces
	}{
		{"unknown key", "pool = \"x\"\n\ntimeuot = \"5s\"", mount, []string{":3: timeuot", `did you mean "timeout"?`}},
		{"unknown table", "[tragets.\"h\"]\naddress = \"a:1\"", mount, []string{":1: ", "unknown key", "tragets"}},
		{"key in a wrong table", "[target.\"a.b\"]\npool = \"x\"", mount, []string{`:2: target."a.b".pool`, `did you mean "pool"?`}},
		{"unknown key in a table", "[target.\"a.b\"]\n# c\nadress = \"x:1\"", mount, []string{`:3: target."a.b".adress`, `"target.*.address"`}},
		{"unknown key in an inline table", "\n[target]\nh = {addres = \"x:1\"}", mount, []string{`:3: target.h.addres`, `"target.*.address"`}},
		{"two unknown keys", "a = 1\nbb = 2", mount, []string{":1: a: unknown key", ":2: bb: unknown key"}},
		{"same name in a string first", "pool = \"\"\"\ncrc = 1\n\"\"\"\ncrc = true", mount, []string{`:4: crc`, `"target.*.crc"`}},
		{"other case", "Pool = \"x\"", mount, []string{":1: Pool", `did you mean "pool"?`}},
		{"duplicate key", "pool = \"a\"\npool = \"b\"", mount, []string{":2: pool", "already"}},
		{"duplicate target", "[target.\"h\"]\n[target.\"h\"]", mount, []string{":2: ", "already"}},
		{"duration as a number", "timeout = 5", mount, []string{":1: timeout", "string in quotes"}},
		{"duration without a unit", "\ntimeout = \"5\"", mount, []string{":2: timeout", `"5s"`}},
		{"negative timeout", "timeout = \"-1s\"", mount, []string{":1: timeout", "negative"}},
		{"zero commit interval", "\n\ncommit_interval = \"0s\"", mount, []string{":3: commit_interval", "zero"}},
		{"degrade", "on_loss = \"degrade\"", mount, []string{":1: on_loss", "witness"}},
		{"unknown policy", "on_loss = \"panic\"", mount, []string{":1: on_loss", `"error"`}},
		{"durability", "durability = \"disk\"", mount, []string{":1: durability", `"media"`}},
		{"method", "[target.h]\nmethod = \"clwb\"", mount, []string{":2: target.h.method", `"gpspm"`}},
		{"target: method", "methods = [\"gpspm\", \"clwb\"]", target, []string{":1: methods", `"clwb"`, `use "gpspm", "apm" or "flush",`}},
		{"target: auto among methods", "\nmethods = [\"auto\"]", target, []string{":2: methods", `"auto" cannot be one`, `use "gpspm", "apm" or "flush",`}},
		{"target: no method", "methods = []", target, []string{":1: methods", "no method"}},
		{"target: methods is no list", "methods = \"apm\"", target, []string{":1: methods", "list"}},
		{"bounce", "bounce = \"64X\"", mount, []string{":1: bounce", `"64M"`}},
		{"small bounce", "bounce = \"1M\"", mount, []string{":1: bounce", "4M to 16G"}},
		{"target: large bounce", "bounce = \"17G\"", target, []string{":1: bounce", "4M to 16G"}},
		{"target: odd bounce", "bounce = \"8000001\"", target, []string{":1: bounce", "multiple of 4096"}},
		{"empty pool", "\npool = \"\"", mount, []string{":2: pool", "empty"}},
		{"target is a string", "target = \"h\"", mount, []string{":1: target", "must be a table"}},
		{"target is a list", "[[target]]\naddress = \"h:1\"", mount, []string{":1: target", "must be a table"}},
		{"target entry is a string", "[target]\nh = \"h\"", mount, []string{":2: target.h", "must be a table"}},
		{"bool in quotes", "[target.h]\ncrc = \"yes\"", mount, []string{":2: target.h.crc", "true or false"}},
		{"address", "[target.h]\naddress = \"h\"", mount, []string{":2: target.h.address", `"host:port"`}},
		{"address without a host", "[target.h]\naddress = \":1\"", mount, []string{":2: target.h.address", "no host"}},
		{"address port", "[target.h]\naddress = \"h:70000\"", mount, []string{":2: target.h.address", "65535"}},
		{"provider", "[target.h]\nprovider = \"roce\"", mount, []string{":2: target.h.provider", `"iwarp"`, `"ibverbs"`}},
		{"empty provider", "[target.h]\nprovider = \"\"", mount, []string{":2: target.h.provider", `"iwarp"`}},
		{"device of iwarp", "[target.h]\ndevice = \"x\"", mount, []string{":2: target.h.device", `provider = "ibverbs"`}},
		{"gid of iwarp", "[target.h]\ngid = 1", mount, []string{":2: target.h.gid", `provider = "ibverbs"`}},
		{"gid out of range", "provider = \"ibverbs\"\ngid = 256", target, []string{":2: gid", "0 to 255"}},
		{"gid in quotes", "[target.h]\ngid = \"1\"", mount, []string{":2: target.h.gid", "whole number"}},
		{"crc of ibverbs", "provider = \"ibverbs\"\ncrc = true", target, []string{":2: crc", `provider = "iwarp"`}},
		{"host without a name", "[target.\":1\"]\n", mount, []string{":1: ", "no host"}},
		{"host with a bad port", "[target.\"h:x\"]\n", mount, []string{":1: ", "bad port"}},
		{"syntax", "pool = \"x\"\ntimeout = ", mount, []string{":2: "}},
		{"control character", "pool = \"\x00\"", mount, []string{":1: "}},
		{"target: unknown key", "pool_dri = \"x\"", target, []string{":1: pool_dri", `"pool_dir"`}},
		{"target: listen", "listen = \"7470\"", target, []string{":1: listen", `"host:port"`}},
		{"target: same port", "listen = \"a:1\"\nfabric = \"a:1\"", target, []string{":2: fabric", "port each"}},
		{"target: empty directory", "\npool_dir = \"\"", target, []string{":2: pool_dir", "empty"}},
		{"target: empty socket", "\nsocket = \"\"", target, []string{":2: socket", "empty"}},
		{"target: crc", "crc = 1", target, []string{":1: crc", "true or false"}},
		{"platform: unknown key", "\neard = true", platform, []string{":2: eard", `"eadr"`}},
		{"platform: eadr in quotes", "eadr = \"yes\"", platform, []string{":1: eadr", "true or false"}},
		{"platform: unknown key of a port", "[port.a]\ninbund = \"persistent\"", platform, []string{":2: port.a.inbund", `"port.*.inbound"`}},
		{"platform: unknown value", "[port.a]\ninbound = \"cached\"", platform, []string{":2: port.a.inbound", `"persistent"`}},
		{"platform: empty table", "eadr = true\n[port.a]\n", platform, []string{":2: port.a", "nothing"}},
		{"platform: list of ports", "[[port]]\ninbound = \"persistent\"", platform, []string{":1: port", "must be a table"}},
		{"too long", strings.Repeat("#\n", maxFile/2) + "#", target, []string{"1 MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.text)
			err := c.load(path)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range append(c.want, path) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
		})
	}
	if err := target(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestTarget_Validate(t *testing.T) {
	dir := t.TempDir()
	plain := write(t, "")
	for _, c := range []struct {
		name string
		set  func(*Target)
		want string
	}{
		{"good", func(c *Target) {}, ""},
		{"port 0 twice", func(c *Target) { c.Listen, c.Fabric = "127.0.0.1:0", "127.0.0.1:0" }, ""},
		{"no directory given", func(c *Target) { c.PoolDir = "" }, "--pool-dir"},
		{"no such directory", func(c *Target) { c.PoolDir = dir + "/none" }, "make the directory"},
		{"a file", func(c *Target) { c.PoolDir = plain }, "not a directory"},
		{"flag with a bad address", func(c *Target) { c.Listen = "x" }, "listen"},
		{"flag with the same port", func(c *Target) { c.Fabric = c.Listen }, "port each"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultTarget()
			cfg.PoolDir = dir
			c.set(cfg)
			err := cfg.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{{"", "", 0}, {"abc", "abc", 0}, {"", "ab", 2}, {"timeuot", "timeout", 1}, {"pol", "pool", 1}, {"crcc", "crc", 1}, {"abc", "xyz", 3}} {
		if d := distance(c.a, c.b); d != c.d {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, d, c.d)
		}
	}
}

func valid(r RDMA) bool {
	_, err := r.check()
	return err == nil
}

// A file never crashes the reader, and what is taken is in range.
func FuzzParse(f *testing.F) {
	f.Add("pool = \"x\"\ntimeout = \"5s\"\n[target.\"h\"]\naddress = \"h:1\"")
	f.Add("listen = \"h:1\"\npool_dir = \"x\"")
	f.Add("[target.\"\"]\n\"\" = 1\n\"a\\n.b\".c = [[{}]]")
	f.Add("eadr = true\n[port.x]\ninbound = \"persistent\"")
	f.Add("[[target]]\n[target.h]\n[target.h.x]")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parsePlatform("f", text)
		if m, err := parseMount("f", text); err == nil {
			if m.Timeout < 0 || m.CommitInterval <= 0 || (m.Durability != Media && m.Durability != Memory) {
				t.Errorf("taken: %+v", m)
			}
			for _, h := range m.Targets() {
				if r := m.Target(h); !valid(r.RDMA) || checkAddr(r.Address, false) != nil {
					t.Errorf("taken: target %q: %+v", h, r)
				}
			}
		}
		if c, err := parseTarget("f", text); err == nil && (c.Listen == "" || c.Fabric == "" || c.Socket == "") {
			t.Errorf("taken: %+v", c)
		}
	})
}
