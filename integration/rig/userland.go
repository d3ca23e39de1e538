package rig

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// userlandPackages are the programs of the guest, from trixie: the first release whose rdma-core has FLUSH. Its headers are also what the programs under
// test are compiled with.
var userlandPackages = []string{
	"busybox-static", "dash", "coreutils", "findutils", "diffutils", "util-linux", "mount", "procps", "iproute2", "strace", "sqlite3",
	"rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest", "libibverbs-dev", "librdmacm-dev",
	"e2fsprogs", "fuse3",
}

// userland returns the root into which the packages are unpacked.
func userland(ctx context.Context, c *cache, a *apt) (string, error) {
	names, err := a.closure(ctx, "trixie", userlandPackages...)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return c.entry(fmt.Sprintf("userland-%x", sum[:6]), func(dir string) error {
		debs, err := a.fetchClosure(ctx, "userland", "trixie", userlandPackages...)
		if err != nil {
			return err
		}
		if err := unpack(ctx, dir, debs); err != nil {
			return err
		}
		return discard(debs)
	})
}
