package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/internal/mountinfo"
)

// resolve returns the path under which the kernel lists a mount on point: absolute and free of symbolic links. A mount whose
// daemon has died cannot be looked at, but a link cannot be mounted on either, so its parent decides.
func resolve(point string) (string, error) {
	point, err := filepath.Abs(point)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(point)
	if !daemonDied(err) {
		return real, err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(point))
	return filepath.Join(parent, filepath.Base(point)), err
}

// daemonDied tells whether err is the answer of a mount without its daemon: ENOTCONN, or ECONNABORTED to a request that was
// under way when the daemon ended.
func daemonDied(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// clearPoint makes sure that point is a directory with no pmemfs on it. The mount of a daemon that died is removed; a living
// one is ErrMounted, since mounts would stack. A statfs tells the two apart: it always asks the daemon, while the kernel
// may answer a stat from attributes that it has kept.
func clearPoint(point string, nonEmpty bool) error {
	mount, err := mountinfo.Find(point)
	if err != nil {
		return err
	}
	if mount == nil || mount.Mountpoint != point {
		return checkDir(point, nonEmpty)
	}
	var st unix.Statfs_t
	switch err := unix.Statfs(point, &st); {
	case err == nil:
		return ErrMounted
	case !daemonDied(err):
		return err
	}
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("remove the mount of a daemon that died: %w", err)
	}
	return clearPoint(point, nonEmpty)
}

// checkDir wants an empty directory: what a mount hides looks lost.
func checkDir(point string, nonEmpty bool) error {
	info, err := os.Stat(point)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("the mount point is not a directory: %w", syscall.ENOTDIR)
	}
	if nonEmpty {
		return nil
	}
	dir, err := os.Open(point)
	if err != nil {
		return err
	}
	defer dir.Close()
	switch names, err := dir.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("the mount point holds files (%q): empty it, or mount with -o nonempty to hide them: %w", names[0], syscall.ENOTEMPTY)
	}
}

// tuneWriteback lets mapped stores dirty as much memory as on any file system. By default the kernel holds back FUSE, because
// an unprivileged server could hold its dirty pages for ever; half of the throughput of mapped stores is lost that way.
// Where sysfs is read-only (containers) the mount works all the same, so a failure is only logged.
func (s *Server) tuneWriteback(point string) {
	var st unix.Stat_t
	if err := unix.Stat(point, &st); err != nil {
		s.log.error("find the device of the mount", err)
		return
	}
	dir := filepath.Join("/sys/class/bdi", bdi(st.Dev))
	for _, set := range [...]struct{ file, value string }{{"strict_limit", "0"}, {"max_ratio", "100"}} {
		if err := os.WriteFile(filepath.Join(dir, set.file), []byte(set.value), 0); err != nil {
			s.log.to.WithError(err).Info("fs: mapped stores will be slower: the kernel's write-back limits stay")
			return
		}
	}
}

// bdi is the name of a mount's backing device: its device number in decimal.
func bdi(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }
