package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// buildTimeout bounds a build, which may have to compile everything anew.
const buildTimeout = 10 * time.Minute

// Build builds programs into dir: args are flags and packages for the go command, as seen from root, the top of the checkout.
//
// A test does not import the programs that it runs, so the go command would repeat a cached result of the test when they have
// changed. Build looks at all sources below root, which makes them inputs of the test.
func Build(root, dir string, args ...string) error {
	if err := consult(root); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + "/"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// consult asks for the size and time of every source file below root; the go command takes note of that (go help test).
func consult(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.Name() == ".git":
			return filepath.SkipDir
		case d.Type().IsRegular() && isSource(path):
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		return err
	})
}

func isSource(path string) bool {
	switch filepath.Ext(path) {
	case ".go", ".s", ".mod", ".sum":
		return true
	}
	return false
}
