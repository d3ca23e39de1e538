package rig

import (
	"context"
	"path/filepath"
	"slices"
	"time"
)

// buildTimeout bounds the compilation of everything that jobs need.
const buildTimeout = 8 * time.Minute

// buildPrograms builds what the tasks need into dir, with cgo and with the verbs headers of the guest, which are newer than the host's. Programs that are built alike
// are one call of go, which links them side by side, without what only a debugger reads.
func buildPrograms(ctx context.Context, source, dir, root string, all []task) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	env := []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=amd64", "CGO_CFLAGS=-O2 -g -I" + filepath.Join(root, "usr/include")}
	packages := map[recipe][]string{}
	for _, t := range all {
		for _, p := range t.job.programs {
			if t.missing == "" && !slices.Contains(packages[p.recipe], p.pkg) {
				packages[p.recipe] = append(packages[p.recipe], p.pkg)
			}
		}
	}
	for r, pkgs := range packages {
		args := []string{"build"}
		if r.test {
			args = []string{"test", "-c"}
		}
		args = append(args, "-ldflags", "-s -w", "-tags", r.tags, "-o", dir+"/")
		if _, err := run(ctx, source, env, "go", append(args, pkgs...)...); err != nil {
			return err
		}
	}
	return nil
}
