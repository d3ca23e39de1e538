package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What apt says is kept until the lists change.
func TestAsk(t *testing.T) {
	path := t.TempDir()
	calls := filepath.Join(path, "calls")
	script := "#!/bin/sh\necho call >> " + calls + "\n[ \"$3\" != bad ] || exit 1\nwc -l < " + calls + "\n"
	for _, name := range []string{"apt-get", "apt-cache"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
	a, err := newApt(t.TempDir(), []string{"http://nowhere suite"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(question, want string) {
		t.Helper()
		if said, err := a.ask(t.Context(), "apt-cache", question); strings.TrimSpace(said) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", question, said, err)
		}
	}
	ask("one", "1")
	ask("one", "1")
	ask("two", "2")
	ask("bad", "")
	ask("bad", "") // an error is not kept
	if err := a.update(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	ask("one", "6")
}
