package mountinfo

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead through, as in path_resolution(7).
const maxLinks = 40

// Resolve returns path as the kernel lists it: absolute and free of symbolic links, up to the first pmemfs mount on the way, which it does
// not enter: one whose daemon hangs would not answer. What does not exist is kept as it stands.
func Resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return resolve(abs, func(dir string) (bool, error) {
		e, err := Find(dir)
		return e != nil && e.Mountpoint == dir, err
	})
}

// resolve walks down abs; isMount says which directories not to look at.
func resolve(abs string, isMount func(string) (bool, error)) (string, error) {
	at, rest, links := "/", strings.Split(abs[1:], "/"), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if stop, err := isMount(next); err != nil || stop {
			return filepath.Join(append([]string{next}, rest...)...), err
		}
		target, err := os.Readlink(next)
		if err != nil { // no link, or nothing that can be looked at
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &os.PathError{Op: "resolve", Path: abs, Err: syscall.ELOOP}
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(at, target)
		}
		at, rest = "/", append(strings.Split(filepath.Clean(target)[1:], "/"), rest...)
	}
	return at, nil
}
