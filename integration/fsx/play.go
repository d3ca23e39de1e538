package fsx

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// wholeEvery is how many operations lie between two comparisons of everything.
const wholeEvery = 500

// Game is a directory of a mount with files and what they must hold. It belongs to one goroutine.
type Game struct {
	dir   string
	seed  uint64
	files [files]*file

	data    []byte // what an operation writes
	aligned []byte // for O_DIRECT, at the start of a page
	recent  [24]string
	done    uint64
}

// New makes the files in dir, which is made if need be.
func New(dir string, seed uint64) (*Game, error) {
	aligned, err := unix.Mmap(-1, 0, limit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	g := &Game{dir: dir, seed: seed, data: make([]byte, limit), aligned: aligned}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for i := range g.files {
		g.files[i] = &file{path: filepath.Join(dir, fmt.Sprintf("file%d", i)), model: make([]byte, 0, limit)}
		if err := g.files[i].open(false); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Close gives back what New took. The files stay.
func (g *Game) Close() error {
	err := unix.Munmap(g.aligned)
	for _, f := range g.files {
		err = errors.Join(err, f.close())
	}
	return err
}

// Failure says which operation did not do what the model says.
type Failure struct {
	Seed, N uint64
	Err     error
	Recent  string // the operations before it, a line each
}

func (f *Failure) Error() string {
	return fmt.Sprintf("seed %d, operation %d: %v; the last operations were\n%s", f.Seed, f.N, f.Err, f.Recent)
}

func (f *Failure) Unwrap() error { return f.Err }

// Play does operation n. The error is a *Failure.
func (g *Game) Play(n uint64) error {
	err := g.step(n)
	g.done++
	if err == nil && g.done%wholeEvery == 0 {
		err = g.Compare()
	}
	if err == nil {
		return nil
	}
	f := &Failure{Seed: g.seed, N: n, Err: err}
	for i := range uint64(len(g.recent)) {
		if line := g.recent[(g.done+i)%uint64(len(g.recent))]; line != "" {
			f.Recent += "  " + line + "\n"
		}
	}
	f.Recent = strings.TrimRight(f.Recent, "\n")
	return f
}

// step turns a fault on a mapping, which a wrong size of the file would cause, into an error.
func (g *Game) step(n uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	r := rand.New(rand.NewPCG(g.seed, n))
	move := draw(r)
	t := &turn{Game: g, r: r, f: g.files[r.IntN(files)]}
	err = move.do(t)
	g.recent[g.done%uint64(len(g.recent))] = fmt.Sprintf("%d: %s %s %s", n, move.name, filepath.Base(t.f.path), t.text)
	if err != nil {
		return fmt.Errorf("%s: %w", move.name, err)
	}
	if r.IntN(8) == 0 {
		return t.f.sizeIs()
	}
	return nil
}

func (f *file) sizeIs() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.plain, &st); err != nil {
		return err
	}
	if st.Size != int64(len(f.model)) {
		return fmt.Errorf("fstat of %s: size %d, want %d", f.path, st.Size, len(f.model))
	}
	return nil
}

// Compare compares all files with the model.
func (g *Game) Compare() error {
	var errs []error
	for _, f := range g.files {
		errs = append(errs, f.whole())
	}
	return errors.Join(errs...)
}

// Sync makes everything durable.
func (g *Game) Sync() error {
	for _, f := range g.files {
		if err := errors.Join(unix.Msync(f.mem, unix.MS_SYNC), unix.Fsync(f.plain)); err != nil {
			return fmt.Errorf("fsync of %s: %w", f.path, err)
		}
	}
	return nil
}

// CompareIn compares the files below another directory, such as that of a replica, with the model.
func (g *Game) CompareIn(dir string) error {
	var errs []error
	for _, f := range g.files {
		path := filepath.Join(dir, filepath.Base(f.path))
		got, err := os.ReadFile(path)
		if err == nil {
			err = compare(path, 0, got, f.model)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
