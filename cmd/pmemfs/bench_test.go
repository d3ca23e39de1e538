package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// runFabric runs pmemfs bench fabric with args and returns what it printed on standard output.
func runFabric(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"bench", "fabric"}, args...)); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = out
	err = c.Bench.Fabric.Run()
	os.Stdout = stdout
	text, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(text), err
}

// What cannot be measured is refused before anything is connected or printed; a peer that is not there leaves no head of a table either.
func TestBenchFabric_Refuses(t *testing.T) {
	const nobody = "127.0.0.1:1"
	for _, c := range []struct {
		args  []string
		usage bool
		want  string
	}{
		{nil, true, "--listen"},
		{[]string{nobody, "--listen", nobody}, true, "--listen"},
		{[]string{nobody, "--iterations", "0"}, true, "0 round trips"},
		{[]string{nobody, "--time", "0s"}, true, "time"},
		{[]string{nobody, "--window", "0"}, true, "window of 0"},
		{[]string{nobody, "--size", "12"}, true, "12 bytes"},
		{[]string{nobody, "--only", "fast"}, true, `"fast": there is no such test`},
		{[]string{nobody, "--only", "fast", "--size", "8"}, true, `"fast": there is no such test`},
		{[]string{nobody}, false, "pmemfs bench fabric --listen " + nobody},
	} {
		out, err := runFabric(t, c.args...)
		var exit *exitError
		if err == nil || !strings.Contains(err.Error(), c.want) || (errors.As(err, &exit) && exit.code == exitUsage) != c.usage {
			t.Errorf("%q: %v", c.args, err)
		}
		if out != "" {
			t.Errorf("%q printed %q", c.args, out)
		}
	}
}
