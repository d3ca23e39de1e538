package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// runner executes the steps of the demo and remembers what has to be undone.
type runner struct {
	start    time.Time
	step     int
	cleanups []func()
}

// do prints a step with the time it took; the first error ends the demo.
func (r *runner) do(what string, fn func() error) error {
	r.step++
	fmt.Printf("%2d. %-66s ", r.step, what)
	begin := time.Now()
	err := fn()
	fmt.Printf("%7.2f s  %s\n", time.Since(begin).Seconds(), map[bool]string{true: "ok", false: "FAILED"}[err == nil])
	return err
}

// later registers fn to run at the end, last one first.
func (r *runner) later(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *runner) cleanup() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// commandTimeout bounds every command: nothing in the demo may hang.
const commandTimeout = 10 * time.Minute

// run executes a command and returns its output; an error carries the output.
func run(name string, args ...string) (string, error) { return runIn("", name, args...) }

func runIn(dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	text := strings.TrimSpace(out.String())
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return text, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// start runs a daemon whose output goes to a file and returns it; the demo ends it when it ends itself.
func (r *runner) startDaemon(log, name string, args ...string) (*exec.Cmd, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r.later(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, nil
}

// waitFor polls until cond holds.
func waitFor(d time.Duration, what string, cond func() bool) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if cond() {
			return nil
		}
	}
	return fmt.Errorf("%s: not within %v", what, d)
}

// freePort is a loopback address that nothing listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func listening(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
