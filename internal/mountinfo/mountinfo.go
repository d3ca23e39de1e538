// Package mountinfo finds pmemfs mounts in /proc/self/mountinfo, without touching any mount: a dead one would hang or fail.
package mountinfo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// FSType is the type under which the kernel lists our mounts.
const FSType = "fuse.pmemfs"

// Entry is one mount.
type Entry struct{ Mountpoint, FSType, Source string }

// Find returns the pmemfs mount at or above the absolute path, or nil if the path lies in a mount of another kind.
func Find(path string) (*Entry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return find(f, path)
}

// find takes the deepest mount above path, and of those at one place the last one, which lies on top.
func find(r io.Reader, path string) (*Entry, error) {
	mounts, err := mountinfo.GetMountsFromReader(r, func(m *mountinfo.Info) (skip, stop bool) {
		return !below(path, m.Mountpoint), false
	})
	if err != nil {
		return nil, fmt.Errorf("list of mounts: %w", err)
	}
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	if best == nil || best.FSType != FSType {
		return nil, nil
	}
	return &Entry{Mountpoint: best.Mountpoint, FSType: best.FSType, Source: best.Source}, nil
}

func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
