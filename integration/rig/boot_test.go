package rig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeQemu comes up at its third start; before, it ends at once. It finds the directory of its guest in its argument for the console.
const fakeQemu = `#!/bin/sh
for a; do case $a in file:*) dir=$(dirname "${a#file:}");; esac; done
echo start >> "$dir/starts"
[ $(wc -l < "$dir/starts") -ge $(cat "$dir/good") ] || { echo "panic at start $(wc -l < "$dir/starts")" > "$dir/console"; exit 1; }
: > "$dir/ready"
exec sleep 60
`

func TestStart_TriesAgain(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, qemu), []byte(fakeQemu), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
	for good, want := range map[string]bool{"1": true, "3": true, "4": false} {
		work := t.TempDir()
		m := &machine{boot: "b", sides: "AB", dir: filepath.Join(work, "b", "AB"), cpus: 1, share: share{work: work}}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.path("good"), []byte(good), 0o644); err != nil {
			t.Fatal(err)
		}
		var notes []string
		trouble, err := boot{name: "b"}.start(context.Background(), []*machine{m}, func(text string) { notes = append(notes, text) })
		if err != nil {
			t.Fatal(err)
		}
		if up := trouble == ""; up != want || m.life != 1 {
			t.Errorf("good at start %s: trouble %q, life %d", good, trouble, m.life)
		}
		if n := len(notes); n != int(good[0]-'1') && want || n > 0 && !strings.Contains(notes[0], "panic at start 1") {
			t.Errorf("good at start %s: notes %q", good, notes)
		}
		m.cut()
	}
}
