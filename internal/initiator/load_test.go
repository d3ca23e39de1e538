package initiator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A path that is no configuration at all, such as that of a pool or of a device, is refused without being read whole.
func TestLoad_NotAConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.pool")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 256<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Load(path)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "not a configuration file") {
		t.Errorf("a pool as configuration: %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes were allocated to refuse it", used)
	}
}

// What is no file is refused at once: a fifo would be waited for, and a device has no end.
func TestLoad_NotAFile(t *testing.T) {
	dir := t.TempDir()
	fifo, conf := filepath.Join(dir, "fifo"), filepath.Join(dir, "conf.toml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte("pool = \""+fifo+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, conf, dir, "/dev/zero"} {
		done := make(chan error, 1)
		go func() {
			_, _, err := Load(path)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is waited for", path)
		}
	}
}

// A file that is not there is refused with the key that names it, and what to do.
func TestLoad_Missing(t *testing.T) {
	dir := t.TempDir()
	none, conf := filepath.Join(dir, "none.set"), filepath.Join(dir, "conf.toml")
	if err := os.WriteFile(conf, []byte("pool = \""+none+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{none: "give the path of a configuration", conf: conf + `: pool = "` + none + `"`} {
		if _, _, err := Load(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
