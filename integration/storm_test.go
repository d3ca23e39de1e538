package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// storm changes a directory in random ways: names, content, sizes, attributes, with and without fsync.
type storm struct {
	t   *testing.T
	dir string
	rnd *rand.Rand
}

func newStorm(t *testing.T, dir string) *storm {
	seed := rand.Uint64()
	t.Logf("seed of the storm: %d", seed)
	return &storm{t, dir, rand.New(rand.NewPCG(seed, 0))}
}

// name is one of few, so that operations meet.
func (s *storm) name() string { return filepath.Join(s.dir, fmt.Sprintf("f%02d", s.rnd.IntN(24))) }

func (s *storm) bytes(most int) []byte {
	b := make([]byte, s.rnd.IntN(most))
	for i := range b {
		b[i] = byte(s.rnd.Uint32())
	}
	return b
}

// run does n operations. ENOENT and the like are part of the game; anything that tells of a fault fails the test.
func (s *storm) run(n int) {
	s.t.Helper()
	for i := range n {
		err := s.step()
		for _, bad := range []error{syscall.EIO, syscall.EROFS, syscall.ENOSPC, syscall.ENOTCONN, syscall.ESTALE} {
			if err != nil && errors.Is(err, bad) {
				s.t.Fatalf("operation %d of the storm: %v", i, err)
			}
		}
	}
}

func (s *storm) step() error {
	switch s.rnd.IntN(12) {
	case 0, 1, 2:
		return store(s.name(), s.bytes(40<<10), s.rnd.IntN(2) == 0)
	case 3, 4:
		return s.writeAt()
	case 5:
		return os.Truncate(s.name(), int64(s.rnd.IntN(60<<10)))
	case 6:
		return os.Remove(s.name())
	case 7:
		return os.Rename(s.name(), s.name())
	case 8:
		return s.temporary()
	case 9:
		return unix.Setxattr(s.name(), "user.x", s.bytes(3000), 0)
	case 10:
		return s.names()
	}
	if s.rnd.IntN(8) == 0 {
		return store(s.name(), s.bytes(2<<20), s.rnd.IntN(2) == 0)
	}
	return os.Chmod(s.name(), os.FileMode(0o600+s.rnd.IntN(64)))
}

func (s *storm) writeAt() error {
	f, err := os.OpenFile(s.name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteAt(s.bytes(9000), int64(s.rnd.IntN(80<<10))); err == nil && s.rnd.IntN(2) == 0 {
		err = f.Sync()
	}
	return err
}

// temporary makes a file and removes it before anything of it was flushed.
func (s *storm) temporary() error {
	path := filepath.Join(s.dir, "temporary")
	if err := store(path, s.bytes(100<<10), false); err != nil {
		return err
	}
	return os.Remove(path)
}

// names changes names only: directories, links of both kinds.
func (s *storm) names() error {
	dir := filepath.Join(s.dir, fmt.Sprintf("d%d", s.rnd.IntN(4)))
	switch s.rnd.IntN(4) {
	case 0:
		return os.Mkdir(dir, 0o755)
	case 1:
		return os.Remove(dir)
	case 2:
		return os.Link(s.name(), s.name())
	}
	return os.Symlink("anywhere", s.name())
}
