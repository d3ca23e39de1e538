package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestJobs_AllParse(t *testing.T) {
	jobs, err := loadJobs(jobFiles)
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) == 0 {
		t.Fatal("no jobs")
	}
	names := map[string]program{}
	seen := map[string]bool{}
	for _, task := range tasks(jobs, newest.devices, func(string) bool { return true }) {
		if seen[task.String()] {
			t.Errorf("two runs are called %q", task)
		}
		seen[task.String()] = true
		if d := task.device(); d != "" && !slices.Contains(newest.devices, d) {
			t.Errorf("%s: no device is called %q", task, d)
		}
		for _, p := range task.job.programs {
			if other, ok := names[p.name]; ok && other != p {
				t.Errorf("%s: two different programs are called %s", task, p.name)
			}
			names[p.name] = p
		}
	}
}

func TestParseJob(t *testing.T) {
	j, err := parseJob("name", "# job: shows it\n# run: device=rxe pool=devdax\n# run: device=siw\n# build: p ./cmd/p\n# test: q.test ./q\n# tags: x\n# time: 90s\n# guests: 2\n# cpus: 2\n\n# time: 1s\n")
	if err != nil {
		t.Fatal(err)
	}
	if j.about != "shows it" || len(j.runs) != 2 || j.limit != 90*time.Second || j.guests != 2 || j.cpus != 2 || j.boot != "name" {
		t.Errorf("got %+v", j)
	}
	if want := []program{{"p", "./cmd/p", recipe{"x", false}}, {"q.test", "./q", recipe{"x", true}}}; !slices.Equal(j.programs, want) {
		t.Errorf("programs %v, want %v", j.programs, want)
	}
	all := tasks([]job{j}, []string{"siw"}, func(string) bool { return true })
	if len(all) != 2 || all[0].String() != "name rxe devdax" || all[0].missing == "" || all[1].missing != "" {
		t.Errorf("tasks %v", all)
	}
	if b := boots(all); len(b) != 1 || b[0].name != "name" || len(b[0].tasks) != 1 {
		t.Errorf("boots %v", b)
	}
}

func TestParseJob_Refused(t *testing.T) {
	for _, line := range []string{"# run: device", "# build: ./cmd/p", "# build: q ./cmd/p", "# test: p ./cmd/p", "# time: soon", "# guests: 3", "# cpus: 1", "# job", "# tyme: 1s"} {
		text := "# job: shows it\n" + line + "\n"
		if line == "# job" {
			text = line + "\n"
		}
		if _, err := loadJobs(fstest.MapFS{"jobs/a.sh": {Data: []byte(text)}}); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func testCache(t *testing.T) (*cache, *bytes.Buffer) {
	var log bytes.Buffer
	c, err := openCache(context.Background(), t.TempDir(), func(f string, a ...any) { fmt.Fprintf(&log, f+"\n", a...) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c, &log
}

func TestCache_MadeOnceAndAgainWhenDamaged(t *testing.T) {
	c, log := testCache(t)
	made := 0
	get := func() string {
		dir, err := c.entry("a-1", func(dir string) error {
			made++
			return os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, damage := range []func(dir string) error{
		func(dir string) error { return nil },
		func(dir string) error { return os.Truncate(filepath.Join(dir, "f"), 3) },
		func(dir string) error { return os.Remove(filepath.Join(dir, "f")) },
		func(dir string) error { return os.Remove(filepath.Join(dir, manifestName)) },
	} {
		dir := get()
		if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "content" {
			t.Fatalf("%q, %v", b, err)
		}
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
	}
	get()
	if made != 4 || strings.Count(log.String(), "damaged") != 3 {
		t.Errorf("made %d times, log:\n%s", made, log)
	}
}

func TestCache_FailedFillLeavesNothing(t *testing.T) {
	c, _ := testCache(t)
	broken := errors.New("broken")
	_, err := c.entry("a-1", func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	dir, err := c.entry("a-1", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the failed try is there: %v", err)
	}
}

func TestCache_OneProcessAtATime(t *testing.T) {
	c, _ := testCache(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := openCache(ctx, c.dir, t.Logf); err == nil {
		t.Error("the cache was opened twice")
	}
}

// TestInitramfs compares with bytes that were written by hand after the kernel's description of the format.
func TestInitramfs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive")
	fs := initramfs{}
	fs.text("/d/f", "hello")
	if err := fs.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zero, one := "00000000", "00000001"
	want := "070701" + one + "000041ED" + zero + zero + one + zero + zero + zero + zero + zero + zero + "00000002" + zero + "d\x00" +
		"070701" + "00000002" + "000081A4" + zero + zero + one + zero + "00000005" + zero + zero + zero + zero + "00000004" + zero + "d/f\x00\x00\x00" + "hello\x00\x00\x00" +
		"070701" + zero + zero + zero + zero + one + zero + zero + zero + zero + zero + zero + "0000000B" + zero + "TRAILER!!!\x00\x00\x00\x00"
	if string(got) != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestBootPayload_BadImages(t *testing.T) {
	good := make([]byte, 4096)
	good[0x1f1] = 1
	copy(good[0x202:], "HdrS")
	good[0x248], good[0x24c] = 8, 12 // payload at 1024+8
	copy(good[1032:], "payload!")
	if p, err := bootPayload(good); err != nil || p != "payload!" {
		t.Fatalf("%q, %v", p, err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short":            func(b []byte) []byte { return b[:0x24f] },
		"no magic":         func(b []byte) []byte { b[0x202] = 0; return b },
		"offset too far":   func(b []byte) []byte { b[0x24b] = 0xff; return b },
		"length too long":  func(b []byte) []byte { b[0x24f] = 0xff; return b },
		"length too short": func(b []byte) []byte { b[0x24c] = 3; return b },
	} {
		if p, err := bootPayload(spoil(slices.Clone(good))); err == nil {
			t.Errorf("%s: took %q", name, p)
		}
	}
}

func TestWithDependencies(t *testing.T) {
	index := filepath.Join(t.TempDir(), "modules.dep")
	if err := os.WriteFile(index, []byte("k/a.ko.xz: k/b.ko.xz k/c.ko.xz\nk/b.ko.xz: k/c.ko.xz\nk/c.ko.xz:\nk/d.ko.xz:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := withDependencies(index, []string{"a", "absent"})
	if want := []string{"k/a.ko.xz", "k/b.ko.xz", "k/c.ko.xz"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// A job that measures runs only when runs are asked for by name.
func TestChoose_Measuring(t *testing.T) {
	jobs := []job{{name: "a"}, {name: "b", measures: true}}
	if got := (&Options{}).choose(slices.Clone(jobs)); len(got) != 1 || got[0].name != "a" {
		t.Errorf("without a name: %v", got)
	}
	if got := (&Options{Only: regexp.MustCompile("b")}).choose(slices.Clone(jobs)); len(got) != 2 {
		t.Errorf("with a name: %v", got)
	}
}
