package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/fs"
)

func TestIsHelperForm(t *testing.T) {
	for args, want := range map[string]bool{
		"":                             false,
		"/etc/p.toml /mnt -o rw":       true, // mount -t fuse pmemfs#/etc/p.toml /mnt
		"p.toml /mnt -o rw":            true, // mount -t fuse pmemfs#p.toml /mnt
		"/mnt -o rw,config=/etc/p":     true, // mount -t fuse pmemfs /mnt -o config=/etc/p
		"./p.toml mnt":                 true,
		"mount p.toml /mnt -o rw":      false,
		"umount /mnt":                  false,
		"moutn /etc/p.toml /mnt":       false, // a typing error is no configuration file
		"--help":                       false,
		"-h /x -o rw":                  false,
		"status --json /mnt":           false,
		"promote data.set --config /x": false,
	} {
		if got := isHelperForm(strings.Fields(args)); got != want {
			t.Errorf("pmemfs %s: %v, want %v", args, got, want)
		}
	}
}

func TestParseHelperArgs(t *testing.T) {
	type A = helperArgs
	for _, c := range []struct {
		args      string
		fromMount bool
		want      A
		fails     string
	}{
		{"/p.toml /mnt", true, A{words: []string{"/p.toml", "/mnt"}}, ""},
		{"/p.toml /mnt -o rw,nosuid", true, A{words: []string{"/p.toml", "/mnt"}, options: []string{"rw,nosuid"}}, ""},
		{"-o ro /p.toml -onoexec /mnt", true, A{words: []string{"/p.toml", "/mnt"}, options: []string{"ro", "noexec"}}, ""},
		{"/p.toml /mnt -r -n -v -s -w -t fuse.pmemfs -N /ns", true, A{words: []string{"/p.toml", "/mnt"}, options: []string{"ro"}}, ""},
		{"/p.toml /mnt -f", true, A{words: []string{"/p.toml", "/mnt"}, fake: true}, ""},
		{"/p.toml /mnt -f", false, A{words: []string{"/p.toml", "/mnt"}, foreground: true}, ""},
		{"/mnt -o config=/p.toml", false, A{words: []string{"/mnt"}, options: []string{"config=/p.toml"}}, ""},
		{"/p.toml /mnt -o", true, A{}, "needs a value"},
		{"/p.toml /mnt -t", true, A{}, "needs a value"},
		{"/p.toml /mnt -x", true, A{}, "unknown flag -x"},
		{"/p.toml /mnt /more", true, A{}, "want SOURCE MOUNTPOINT"},
		{"-o rw", true, A{}, "want SOURCE MOUNTPOINT"},
	} {
		got, err := parseHelperArgs(strings.Fields(c.args), c.fromMount)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: error %v, want one with %q", c.args, err, c.fails)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(A{})); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.args, err, diff)
		}
	}
}

// A mount that mount(8) only acts out must not touch anything: neither path exists.
func TestDispatch_FakeMount(t *testing.T) {
	if err := dispatch("mount.fuse.pmemfs", []string{"/no/such/config", "/no/such/dir", "-f", "-o", "rw"}); err != nil {
		t.Fatal(err)
	}
}

func TestMountCmd_Resolve(t *testing.T) {
	for _, c := range []struct {
		args, options string
		config, fails string
	}{
		{"/p.toml /mnt", "", "/p.toml", ""},
		{"/mnt", "", defaultConfig, ""},
		{"/mnt", "config=/a.toml", "/a.toml", ""},
		{"/mnt", "pool=/a.set", "/a.set", ""},
		{"/p.toml /mnt", "config=/a.toml", "", "/p.toml and /a.toml"},
		{"/mnt", "config=/a.toml,pool=/a.set", "", "/a.toml and /a.set"},
		{"", "", "", "got 0 paths"},
		{"/a /b /c", "", "", "got 3 paths"},
	} {
		opts, err := fs.ParseOptions(c.options)
		if err != nil {
			t.Fatal(err)
		}
		cmd := mountCmd{Args: strings.Fields(c.args)}
		err = cmd.resolve(&opts)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s -o %s: error %v, want one with %q", c.args, c.options, err, c.fails)
			}
			continue
		}
		if err != nil || cmd.config != c.config || cmd.mountpoint != "/mnt" {
			t.Errorf("%s -o %s: %s on %s, %v; want %s on /mnt", c.args, c.options, cmd.config, cmd.mountpoint, err, c.config)
		}
	}
}

// What the daemon is started with must mean the same mount, without naming the pool twice.
func TestMountCmd_DaemonArgs(t *testing.T) {
	cmd := mountCmd{Options: []string{"ro,config=a.toml", " noatime", "pool=x"}, LogFile: "/l", config: "/d/a.toml", mountpoint: "/mnt"}
	want := strings.Fields("mount --log-file /l /d/a.toml /mnt -o ro -o noatime")
	if got := cmd.daemonArgs(); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// A mount whose starter was interrupted is given up at its next sign of life.
func TestProgressTo_NobodyListens(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	gaveUp := 0
	progress := progressTo(w, func() { gaveUp++ })
	progress("10 %")
	if gaveUp != 0 {
		t.Fatal("gave up while somebody listens")
	}
	r.Close()
	if progress("20 %"); gaveUp != 1 {
		t.Fatal("went on though nobody listens")
	}
}

func TestUmount_NothingMounted(t *testing.T) {
	for _, args := range [][]string{{"/no/such/dir"}, {"-l", "/no/such/dir", "-t", "fuse.pmemfs"}} {
		if err := umountHelper(args); err == nil || !strings.Contains(err.Error(), "no pmemfs is mounted") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := umountHelper([]string{"-l"}); err == nil {
		t.Error("no mount point: no error")
	}
}

func TestStatus_NotMounted(t *testing.T) {
	cmd := statusCmd{Path: t.TempDir()}
	if _, err := cmd.status(); err == nil || !strings.Contains(err.Error(), "no pmemfs is mounted") {
		t.Fatalf("a directory: %v", err)
	}
}
