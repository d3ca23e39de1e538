package main

import (
	"os"
	"path/filepath"

	"github.com/pmemfs/pmemfs/integration/stage"
)

var installedFiles = []string{"/usr/local/bin/pmemfs", "/usr/local/bin/pmemfs-target", "/sbin/mount.fuse.pmemfs", "/sbin/umount.fuse.pmemfs"}

func (s *scene) install() error {
	restore, err := saveInstalled(s.Path("saved"))
	if err != nil {
		return err
	}
	s.Later(restore)
	for _, target := range []string{"deps", "build", "install"} {
		args := []string{target}
		if s.sabotage != "" {
			args = append(args, "SABOTAGE="+s.sabotage)
		}
		if _, err := stage.Run("make", args...); err != nil {
			return err
		}
	}
	_, err = stage.Run("go", "build", "-o", s.Path("workload"), "./integration/workload")
	return err
}

// saveInstalled sets aside an installation that was there before and returns what brings it back.
func saveInstalled(dir string) (restore func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var saved []string
	for _, path := range installedFiles {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if _, err := stage.Run("cp", "-a", path, dir); err != nil {
			return nil, err
		}
		saved = append(saved, path)
	}
	return func() {
		_, _ = stage.Run("make", "uninstall")
		for _, path := range saved {
			_, _ = stage.Run("cp", "-a", filepath.Join(dir, filepath.Base(path)), path)
		}
	}, nil
}
