package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// build makes the program at the import path and returns its file.
func build(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	if err := stage.Build("../..", dir, path); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(path))
}

// startTarget runs a target daemon on a directory with a pool set file pool.set, and returns its control address and the file of the pool.
func startTarget(t *testing.T, program string) (addr, pool string) {
	t.Helper()
	dir := t.TempDir()
	pool = filepath.Join(dir, "pool2")
	if err := os.WriteFile(filepath.Join(dir, "pool.set"), []byte("PMEMPOOLSET\n32M "+pool+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--listen", "127.0.0.1:0", "--fabric", "127.0.0.1:0", "--pool-dir", dir,
		"--socket", filepath.Join(dir, "s"), "--durability", "memory")
	lines, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("target: %v", err)
		}
	})
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatalf("the target did not say that it is ready: %v", err)
	}
	addr, _, ok := strings.Cut(strings.TrimPrefix(line, "listening on "), ",")
	if !ok {
		t.Fatalf("the target says %q", line)
	}
	return addr, pool
}

// TestHello runs the program against a target in a process of its own, and looks at the target's pool file after each run.
func TestHello(t *testing.T) {
	addr, pool := startTarget(t, build(t, "github.com/pmemfs/pmemfs/cmd/pmemfs-target"))
	program := build(t, "github.com/pmemfs/pmemfs/examples/hello")
	english, spanish := "00000000"+hex.EncodeToString([]byte("Hello world!")), "01000000"+"c2a1486f6c61204d756e646f21"
	for run, want := range []struct{ text, dump string }{
		{"Hello world!\n", english}, {"¡Hola Mundo!\n", spanish}, {"Hello world!\n", english},
	} {
		var errs strings.Builder
		cmd := exec.Command(program, "--target", addr, "--memory")
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || string(out) != want.text {
			t.Fatalf("run %d: printed %q, %v, %s", run+1, out, err, errs.String())
		}
		if got := dump(t, pool); got != want.dump+strings.Repeat("00", 128-len(want.dump)/2) {
			t.Errorf("run %d: pool holds %s", run+1, got)
		}
	}
}

// dump is 128 bytes of the pool file from where user space begins.
func dump(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 128)
	if _, err := f.ReadAt(b, helloOff); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// TestHello_NoTarget: a failure names target, operation, cause and the next step.
func TestHello_NoTarget(t *testing.T) {
	out, err := exec.Command(build(t, "github.com/pmemfs/pmemfs/examples/hello"), "--target", "127.0.0.1:1").CombinedOutput()
	for _, part := range []string{"127.0.0.1:1", "create", "refused", "check that pmemfs-target listens"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("%q lacks %q", out, part)
		}
	}
	if code := fmt.Sprint(err); code != "exit status 1" {
		t.Errorf("ended with %s", code)
	}
}
