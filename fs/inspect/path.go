package inspect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Find looks a path up. Empty components and "." mean nothing. ".." is an error, since the kernel of a mount would resolve it, not
// the file system.
func Find(v *volume.Volume, path string) (volume.Attr, error) {
	a, err := v.GetAttr(volume.Root)
	for name := range strings.SplitSeq(path, "/") {
		if err != nil {
			break
		}
		switch name {
		case "", ".":
		case "..":
			err = errors.New("\"..\" is not looked up: give the path from the root of the pool")
		default:
			a, err = v.Lookup(a.Ino, name)
		}
	}
	if err != nil {
		return volume.Attr{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// entries are the names in a directory, but for "." and "..", in the order in which they are stored. With an error they are those that could
// be read.
func entries(v *volume.Volume, dir volume.Ino) (list []volume.DirEnt, err error) {
	err = v.ReadDir(dir, 0, func(e volume.DirEnt) bool {
		if e.Name != "." && e.Name != ".." {
			list = append(list, e)
		}
		return true
	})
	return list, err
}

// checkName refuses what would lead out of a directory. A volume never makes such a name, a forged one may hold it.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > volume.MaxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is no name", name)
	}
	return nil
}
