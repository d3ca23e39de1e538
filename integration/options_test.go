package integration

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// mountLines are the lines of /proc/mounts for a mount point.
func mountLines(t *testing.T, point string) (lines [][]string) {
	t.Helper()
	b, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == point {
			lines = append(lines, f)
		}
	}
	return lines
}

func TestMount_OptionsShowInProcMounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.must(writeSync(r.path("f"), []byte("x")))
	r.must(r.pool.Umount())
	for _, tc := range []struct{ options, want, not string }{
		{"ro", "ro", "rw"},
		{"rw", "rw", "ro,nosuid,nodev,noexec,noatime"},
		{"defaults,nofail,_netdev,x-systemd.automount", "rw", "nosuid"},
		{"nosuid,nodev,noexec", "nosuid,nodev,noexec,rw", "ro"},
		{"noatime", "noatime", "relatime"},
		{"nodiratime,relatime", "nodiratime,relatime", "noatime"},
		{"sync,dirsync", "sync,dirsync", "ro"},
		{"ro,noatime,nosuid", "ro,noatime,nosuid", "rw"},
	} {
		r.must(r.pool.Mount("-o", tc.options))
		lines := mountLines(t, r.pool.Mountpoint)
		if len(lines) != 1 || lines[0][2] != "fuse.pmemfs" || lines[0][0] != r.pool.Config {
			t.Fatalf("-o %s: /proc/mounts has %v", tc.options, lines)
		}
		flags := strings.Split(lines[0][3], ",")
		for want := range strings.SplitSeq(tc.want, ",") {
			if !slices.Contains(flags, want) {
				t.Errorf("-o %s: %q is missing in %v", tc.options, want, flags)
			}
		}
		for not := range strings.SplitSeq(tc.not, ",") {
			if slices.Contains(flags, not) {
				t.Errorf("-o %s: %q is among %v", tc.options, not, flags)
			}
		}
		if slices.Contains(flags, "ro") {
			wantErrno(t, "write to a mount with ro", os.WriteFile(r.path("g"), nil, 0o644), syscall.EROFS)
			r.wantContent(r.path("f"), "x")
		}
		r.must(r.pool.Umount())
	}
}

// TestMount_SyncDrainsEveryChange: with -o sync nothing is needed after a change.
func TestMount_SyncDrainsEveryChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: quiet})
	r.must(r.pool.Umount())
	r.must(r.pool.Mount("-o", "sync"))
	r.must(os.WriteFile(r.path("f"), []byte("no fsync"), 0o644))
	r.must(os.Mkdir(r.path("d"), 0o755))
	r.must(r.pool.Kill())
	replica := r.promoted(0)
	r.wantContent(replica.Mountpoint+"/f", "no fsync")
	if _, err := os.Stat(replica.Mountpoint + "/d"); err != nil {
		t.Error(err)
	}
}
