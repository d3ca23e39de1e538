package fs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountLines returns the lines of mount(8) for point.
func mountLines(t *testing.T, point string) []string {
	t.Helper()
	out, err := exec.Command("mount").Output()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " on "+point+" ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestMount_ShowsTypeSourceAndOptions(t *testing.T) {
	for options, want := range map[string]string{
		"":                                     "rw",
		"ro,nosuid,nodev,noexec,fsname=a pool": "ro,nosuid,nodev,noexec",
		"noatime,nodiratime,nofail,_netdev":    "noatime",
		"sync,dirsync":                         "sync",
		"max_read=65536,x-systemd.automount":   "max_read=65536",
	} {
		d := mount(t, "fsname=pool0,"+options)
		lines := mountLines(t, d.point)
		if len(lines) != 1 {
			t.Fatalf("%q: %d lines of mount(8): %q", options, len(lines), lines)
		}
		source := "pool0 on "
		if strings.Contains(options, "fsname") {
			source = "a pool on "
		}
		for _, part := range []string{source, " type fuse.pmemfs (", want, "default_permissions", "allow_other"} {
			if !strings.Contains(lines[0], part) {
				t.Errorf("%q: %q does not show %q", options, lines[0], part)
			}
		}
		if strings.Contains(options, "nosuid") != strings.Contains(lines[0], "nosuid") {
			t.Errorf("%q: nosuid in %q", options, lines[0])
		}
	}
}

func TestMount_RefusesWhatIsNoFreeDirectory(t *testing.T) {
	point := newPoint(t)
	file := filepath.Join(point, "file")
	if err := os.WriteFile(file, nil, 0644); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{
		file:                            "not a directory",
		filepath.Join(point, "nothing"): "no such file",
	} {
		if _, a := launch(t, daemonConfig{Point: p, Size: testPool}); !strings.Contains(a.Err, want) {
			t.Errorf("%s: %q, want %q", p, a.Err, want)
		}
	}
	d := mount(t, "")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(d.point, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{d.point, d.point + "/", link} {
		if _, a := launch(t, daemonConfig{Point: p, Size: testPool}); !strings.Contains(a.Err, ErrMounted.Error()) {
			t.Errorf("second mount on %s: %q", p, a.Err)
		}
	}
	if n := len(mountLines(t, d.point)); n != 1 {
		t.Errorf("%d mounts", n)
	}
}

func TestMount_ReplacesTheMountOfADeadDaemon(t *testing.T) {
	point := newPoint(t)
	for range 3 {
		d := start(t, daemonConfig{Point: point, Size: testPool})
		if err := os.WriteFile(d.path("file"), []byte("x"), 0644); err != nil {
			t.Fatal(err)
		}
		if n := len(mountLines(t, point)); n != 1 {
			t.Fatalf("%d mounts", n)
		}
		d.kill()
		if _, err := os.Stat(point); err == nil {
			t.Fatal("a dead mount answers")
		}
	}
}

// A look at the mount point that is under way when the old daemon dies gets another errno than one that comes later.
func TestFreePoint_WhileTheDaemonDies(t *testing.T) {
	d := start(t, daemonConfig{Point: newPoint(t), Size: testPool})
	must(t, d.cmd.Process.Signal(unix.SIGSTOP))
	must(t, second(unix.Wait4(d.cmd.Process.Pid, nil, unix.WUNTRACED, nil))) // until every thread stands still
	freed := make(chan error, 1)
	go func() {
		_, err := FreePoint(d.point, false)
		freed <- err
	}()
	select {
	case err := <-freed:
		t.Fatalf("no answer was waited for: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	d.kill()
	if err := <-freed; err != nil {
		t.Error(err)
	}
	if n := len(mountLines(t, d.point)); n != 0 {
		t.Errorf("%d mounts", n)
	}
}

func TestUnmount_Busy(t *testing.T) {
	d := mount(t, "")
	f, err := os.Create(d.path("file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if a := d.ask("unmount"); !strings.Contains(a.Err, "busy") {
		t.Fatalf("unmount with an open file: %q", a.Err)
	}
	if _, err := f.Write([]byte("still there")); err != nil {
		t.Fatal(err)
	}
	d.tell("abort")
	if n := len(mountLines(t, d.point)); n != 0 {
		t.Errorf("%d mounts after abort", n)
	}
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("a write after abort succeeded")
	}
	d.kill()
}

func TestUnmount_ByOthersEndsServe(t *testing.T) {
	d := mount(t, "")
	if out, err := exec.Command("umount", "-i", d.point).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v: %s", err, out)
	}
	for deadline := time.Now().Add(10 * time.Second); !d.tell("counts").Ended; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Serve does not return after umount")
		}
	}
}

// A panic of a handler ends the daemon instead of turning into EIO with the locks of the volume held.
func TestPanicEndsTheDaemon(t *testing.T) {
	d := mount(t, "")
	f, err := os.Create(d.path("file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d.tell("bomb")
	if err := f.Sync(); err == nil {
		t.Error("fsync succeeded")
	}
	ended := make(chan error, 1)
	go func() { ended <- d.cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the daemon ended as if all were well")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon goes on after a panic")
	}
	d.ended = true
	if _, err := os.Stat(d.path("file")); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("stat: %v, want ENOTCONN", err)
	}
}

func TestWritebackLimits(t *testing.T) {
	d := mount(t, "")
	var st unix.Stat_t
	if err := unix.Stat(d.point, &st); err != nil {
		t.Fatal(err)
	}
	out := mustShell(t, 0, "/", "cat /sys/class/bdi/"+bdi(st.Dev)+"/max_ratio /sys/class/bdi/"+bdi(st.Dev)+"/strict_limit")
	if out != "100\n0" {
		t.Errorf("max_ratio and strict_limit are %q", out)
	}
}
