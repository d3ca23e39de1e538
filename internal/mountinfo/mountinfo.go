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

// Entry is one mount. Dev is its device number, "major:minor": the same for every bind mount of it.
type Entry struct{ Mountpoint, FSType, Source, Dev string }

// Find returns the pmemfs mount at or above the absolute path, or nil if the path lies in a mount of another kind.
func Find(path string) (*Entry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return find(f, path)
}

// Places are the mount points of the device, the first one mounted first.
func Places(dev string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return device(m) != dev, false })
	if err != nil {
		return nil, fmt.Errorf("list of mounts: %w", err)
	}
	places := make([]string, len(mounts))
	for i, m := range mounts {
		places[i] = m.Mountpoint
	}
	return places, nil
}

func device(m *mountinfo.Info) string { return fmt.Sprintf("%d:%d", m.Major, m.Minor) }

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
	return &Entry{Mountpoint: best.Mountpoint, FSType: best.FSType, Source: best.Source, Dev: device(best)}, nil
}

func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
