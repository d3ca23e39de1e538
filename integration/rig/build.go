package rig

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// buildTimeout bounds the compilation of everything that jobs need.
const buildTimeout = 8 * time.Minute

// buildPrograms builds what the tasks need into dir, with cgo and with the verbs headers of the guest, which are newer than the host's.
func buildPrograms(ctx context.Context, source, dir, root string, all []task) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	env := []string{"CGO_ENABLED=1", "GOOS=linux", "GOARCH=amd64", "CGO_CFLAGS=-O2 -g -I" + filepath.Join(root, "usr/include")}
	done := map[string]program{}
	for _, t := range all {
		if t.missing != "" {
			continue
		}
		for _, p := range t.job.programs {
			if other, ok := done[p.name]; ok {
				if other != p {
					return fmt.Errorf("jobs want two different programs with the name %s", p.name)
				}
				continue
			}
			args := []string{"build"}
			if p.test {
				args = []string{"test", "-c"}
			}
			if p.tags != "" {
				args = append(args, "-tags", p.tags)
			}
			if _, err := run(ctx, source, env, "go", append(args, "-o", filepath.Join(dir, p.name), p.pkg)...); err != nil {
				return err
			}
			done[p.name] = p
		}
	}
	return nil
}
