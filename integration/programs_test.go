package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// requirePrograms is a variable of the environment. When it is set, a missing program fails a test that would be skipped
// without it: .ci/run sets it.
const requirePrograms = "PMEMFS_REQUIRE_PROGRAMS"

// needs skips the test where one of the programs of a Debian package is missing. A program is a name or an absolute path.
func needs(t *testing.T, debian string, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		reason := fmt.Sprintf("%s of the Debian package %s is missing; make deps installs it", name, debian)
		if os.Getenv(requirePrograms) != "" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
}

// scaled is n, or a part of it under the race detector, where the daemons are slow.
func scaled(n int) int {
	if race {
		return max(n/4, 1)
	}
	return n
}

// takeOver promotes the replica of an initiator that was killed and mounts it where the pool was, so that programs find their
// files under the names that they know. Those that met the death must have ended.
func (r *rig) takeOver() *stage.Pool {
	r.t.Helper()
	_, err := r.targets[0].Promote(set)
	r.must(err)
	p := r.replicaPool(0)
	p.Mountpoint = r.pool.Mountpoint
	r.must(p.Mount())
	return p
}

// finish unmounts a pool and checks it.
func (r *rig) finish(p *stage.Pool) {
	r.t.Helper()
	r.must(p.Umount())
	r.checkClean(p)
}

// speaker is a program that is fed with lines and answers each of them with one.
type speaker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors strings.Builder
}

// speak starts a program. The test's end kills it.
func (r *rig) speak(name string, args ...string) *speaker {
	r.t.Helper()
	s := &speaker{cmd: exec.Command(name, args...)}
	s.cmd.Stderr = &s.errors
	s.cmd.WaitDelay = time.Second
	var err error
	s.in, err = s.cmd.StdinPipe()
	r.must(err)
	out, err := s.cmd.StdoutPipe()
	r.must(err)
	s.out = bufio.NewReader(out)
	r.must(s.cmd.Start())
	r.Later(func() { _ = s.cmd.Process.Kill() })
	return s
}

// ask sends a line and returns the answer.
func (s *speaker) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		return "", err
	}
	answer, err := s.out.ReadString('\n')
	return strings.TrimSpace(answer), err
}

// end closes the program's input and waits for it.
func (s *speaker) end() error {
	s.in.Close()
	_, _ = io.Copy(io.Discard, s.out)
	return s.cmd.Wait()
}

// copyModule copies sources of this module to dir: its own files, and the packages below the directories named.
func copyModule(dir string, packages ...string) error {
	for _, name := range packages {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", name))); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "README.md"} {
		b, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
