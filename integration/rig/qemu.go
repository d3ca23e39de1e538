package rig

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
)

// qemuPackage is the emulator of trixie (qemu 10). It takes a quarter less processor time for the same jobs than that of Debian 12 (7.2).
const qemuPackage = "qemu-system-x86"

// findQEMU gets the emulator with all its libraries into the cache. It returns the words that start it here, where the C library may be older than its own.
func findQEMU(ctx context.Context, c *cache, a *apt) ([]string, error) {
	version, err := a.version(ctx, qemuPackage, "trixie")
	if err != nil {
		return nil, err
	}
	dir, err := c.entry(qemuPackage+"-"+strings.ReplaceAll(version, ":", "_"), func(dir string) error {
		debs, err := a.fetchClosure(ctx, "qemu", "trixie", qemuPackage)
		if err != nil {
			return err
		}
		return errors.Join(unpack(ctx, dir, debs), discard(debs))
	})
	usr := func(path string) string { return filepath.Join(dir, "usr", path) }
	const libraries = "lib/x86_64-linux-gnu"
	return []string{usr("lib64/ld-linux-x86-64.so.2"), "--library-path", usr(libraries), usr("bin/qemu-system-x86_64"), "-L", usr("share/qemu"), "-L", usr("share/seabios")}, err
}
