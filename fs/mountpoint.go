package fs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// clearPoint makes sure that point is a directory with no pmemfs on it. The mount of a daemon that died answers ENOTCONN and
// is removed; a living one is ErrMounted, since mounts would stack.
func clearPoint(point string) error {
	kind, err := mountedType(point)
	if err != nil {
		return err
	}
	err = within(answerTimeout, func() error { return checkDir(point) })
	if kind != "fuse."+Type {
		return err
	}
	switch {
	case err == nil:
		return ErrMounted
	case !errors.Is(err, unix.ENOTCONN):
		return err
	}
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("remove the mount of a daemon that died: %w", err)
	}
	return clearPoint(point)
}

func checkDir(point string) error {
	info, err := os.Stat(point)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("the mount point is not a directory: %w", syscall.ENOTDIR)
	}
	return nil
}

// mountedType returns the type of the topmost mount on point, empty if there is none.
func mountedType(point string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return mountinfoType(f, point)
}

// mountinfoType reads proc_pid_mountinfo(5): the fifth field is the mount point, the type follows the field "-".
// Later lines stand above earlier ones.
func mountinfoType(r io.Reader, point string) (string, error) {
	kind := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) > 4 && len(tail) > 0 && unescape(fields[4]) == point {
			kind = tail[0]
		}
	}
	return kind, lines.Err()
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		if s[0] == '\\' && len(s) >= 4 {
			if c, err := strconv.ParseUint(s[1:4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				s = s[4:]
				continue
			}
		}
		out.WriteByte(s[0])
		s = s[1:]
	}
	return out.String()
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
	bdi := fmt.Sprintf("/sys/class/bdi/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for _, set := range [...]struct{ file, value string }{{"strict_limit", "0"}, {"max_ratio", "100"}} {
		if err := os.WriteFile(filepath.Join(bdi, set.file), []byte(set.value), 0); err != nil {
			s.log.to.WithError(err).Info("fs: mapped stores will be slower: the kernel's write-back limits stay")
			return
		}
	}
}
