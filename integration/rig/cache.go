package rig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// manifestName lists the files of an entry. It is written last, so an entry without it is half filled.
const manifestName = ".manifest"

// keepUnused is how long an entry that no run has asked for stays in the cache.
const keepUnused = 30 * 24 * time.Hour

// cache holds what is expensive to make, one directory per entry. The name of an entry has the version in it, so an entry never changes.
type cache struct {
	dir  string
	lock *os.File // flock: one process fills the cache at a time
	log  func(format string, args ...any)
}

// openCache waits for other processes that fill the same cache, no longer than ctx allows.
func openCache(ctx context.Context, dir string, log func(string, ...any)) (*cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &cache{dir: dir, lock: f, log: log}, nil
		}
		if !waited {
			log("waiting for another process that fills the cache %s", dir)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || pause(ctx, 200*time.Millisecond) != nil {
			f.Close()
			return nil, fmt.Errorf("lock the cache %s, which another process fills: %w", dir, err)
		}
	}
}

func (c *cache) close() { c.lock.Close() }

// entry returns the directory of an entry. If there is none, or its files are not those that were once put there, fill makes it in a fresh directory.
func (c *cache) entry(name string, fill func(dir string) error) (string, error) {
	path := filepath.Join(c.dir, name)
	switch err := verifyManifest(path); {
	case err == nil:
		now := time.Now()
		return path, os.Chtimes(path, now, now) // for prune
	case !errors.Is(err, fs.ErrNotExist):
		c.log("cache: %s is damaged, it is made anew: %v", name, err)
	}
	partial := path + ".partial"
	if err := errors.Join(os.RemoveAll(path), os.RemoveAll(partial), os.MkdirAll(partial, 0o755)); err != nil {
		return "", err
	}
	start := time.Now()
	if err := fill(partial); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := writeManifest(partial); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	c.log("cache: made %s in %.1f s", name, time.Since(start).Seconds())
	return path, os.Rename(partial, path)
}

// prune removes entries that nobody has used for long, such as kernels of the past.
func (c *cache) prune() error {
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		info, err := d.Info()
		if err != nil || !d.IsDir() || time.Since(info.ModTime()) < keepUnused {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.dir, d.Name())); err != nil {
			return err
		}
	}
	return nil
}

// manifest has one line per regular file below dir: size and path.
func manifest(dir string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == manifestName {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&b, "%d %s\n", info.Size(), strings.TrimPrefix(path, dir))
		}
		return err
	})
	return b.String(), err
}

func writeManifest(dir string) error {
	text, err := manifest(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), []byte(text), 0o644)
}

// verifyManifest returns fs.ErrNotExist if there is no such entry.
func verifyManifest(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return fmt.Errorf("no list of its files: %v", err)
	}
	have, err := manifest(dir)
	if err != nil {
		return err
	}
	if have != string(want) {
		return errors.New("its files are not those in its list")
	}
	return nil
}

// pause sleeps, or returns the error of ctx when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
