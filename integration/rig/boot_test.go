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

// fakeGuest comes up at the start with the number good.
func fakeGuest(t *testing.T, good string) *machine {
	qemu, work := filepath.Join(t.TempDir(), "qemu"), t.TempDir()
	if err := os.WriteFile(qemu, []byte(fakeQemu), 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{boot: "b", sides: "AB", dir: filepath.Join(work, "b", "AB"), cpus: 1, qemu: []string{qemu}, share: share{work: work}}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path("good"), []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStart_TriesAgain(t *testing.T) {
	for good, want := range map[string]bool{"1": true, "3": true, "4": false} {
		m := fakeGuest(t, good)
		var notes []string
		trouble, err := boot{name: "b"}.start(context.Background(), []*machine{m}, func(text string) { notes = append(notes, text) })
		if err != nil {
			t.Fatal(err)
		}
		if up := trouble == ""; up != want {
			t.Errorf("good at start %s: trouble %q", good, trouble)
		}
		if n := len(notes); n != int(good[0]-'1') && want || n > 0 && !strings.Contains(notes[0], "panic at start 1") {
			t.Errorf("good at start %s: notes %q", good, notes)
		}
		m.cut()
	}
}

// A guest whose power is cut comes up again, at the second try if need be.
func TestObey(t *testing.T) {
	m := fakeGuest(t, "1")
	b := boot{name: "b"}
	note := func(string) {}
	if trouble, err := b.start(t.Context(), []*machine{m}, note); trouble != "" || err != nil {
		t.Fatal(trouble, err)
	}
	defer m.cut()
	if trouble := b.obey(t.Context(), m, note); trouble != "" || m.starts(t) != 1 {
		t.Errorf("nobody asked: %q, %d starts", trouble, m.starts(t))
	}
	for name, text := range map[string]string{m.path("good"): "3", filepath.Join(m.share.work, "b", "cut.AB"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if trouble := b.obey(t.Context(), m, note); trouble != "" || m.starts(t) != 3 {
		t.Errorf("after the cut: %q, %d starts", trouble, m.starts(t))
	}
}

func (m *machine) starts(t *testing.T) int {
	text, err := os.ReadFile(m.path("starts"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}
