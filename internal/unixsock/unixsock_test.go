package unixsock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func mustListen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestListen_OnlyTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s")
	l := mustListen(t, path)
	fi, err := os.Stat(path)
	if err != nil || fi.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

func TestListen_InUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	mustListen(t, path)
	if _, err := Listen(path); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
}

// The socket that a killed daemon left behind is replaced.
func TestListen_Stale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead := mustListen(t, path)
	dead.SetUnlinkOnClose(false)
	dead.Close()
	mustListen(t, path)
}

// A file that is no socket is somebody's.
func TestListen_KeepsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("listens in place of a file")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
