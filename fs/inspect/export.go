package inspect

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Exporter copies a whole volume into a directory of another file system: content with its holes, mode, owner, times, extended
// attributes and ACLs, hard links, symbolic links, device nodes, fifos and sockets. Not copied: the time of birth and of the last change of
// an inode, which no file system lets set, and the flags immutable and append-only.
type Exporter struct {
	Volume *volume.Volume
	Report func(error) // what could not be copied; the export goes on

	Files, Dirs uint64 // copied so far, also those of which something could not be copied

	root    *os.File
	linked  map[volume.Ino]string // where the first name of a file with several is, below root
	visited map[volume.Ino]bool   // directories
	buf     []byte
	value   []byte
	full    error // the first that says that there is no room; nothing is copied any more
}

// Export copies everything to dir, which must be empty, or not there. Its error says that nothing can be copied at all, or that dir had no
// room for the rest.
func (e *Exporter) Export(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	root, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if names, _ := root.Readdirnames(1); len(names) > 0 {
		return fmt.Errorf("%s is not empty: export into a directory that is, or that does not exist yet", dir)
	}
	e.root, e.linked, e.visited = root, make(map[volume.Ino]string), make(map[volume.Ino]bool)
	e.buf, e.value = make([]byte, pieceLen), make([]byte, 64<<10)
	a, err := e.Volume.GetAttr(volume.Root)
	if err != nil {
		return err
	}
	e.content(root, &a, "")
	if e.full != nil {
		return fmt.Errorf("%s is not whole, %d files are in it: %w: make room there or choose another directory, remove what was copied, and export again", dir, e.Files, e.full)
	}
	return nil
}

func (e *Exporter) failed(path string, err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("/%s: %w", show(path), err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e.full = err
		return
	}
	e.Report(err)
}

// content fills the directory that is open as at. Its own attributes come last: a copy into it changes its times.
func (e *Exporter) content(at *os.File, a *volume.Attr, path string) {
	e.visited[a.Ino] = true
	e.Dirs++
	list, err := entries(e.Volume, a.Ino)
	e.failed(path, err)
	for _, ent := range list {
		if e.full != nil {
			return
		}
		below := strings.TrimPrefix(path+"/"+ent.Name, "/")
		if err := checkName(ent.Name); err != nil {
			e.failed(path, err)
			continue
		}
		e.failed(below, e.entry(at, ent.Name, ent.Ino, below))
	}
	e.failed(path, e.attributes(at, "", a))
}

// entry copies one name.
func (e *Exporter) entry(at *os.File, name string, ino volume.Ino, path string) error {
	a, err := e.Volume.GetAttr(ino)
	if err != nil {
		return fmt.Errorf("inode %d: %w", ino, err)
	}
	if a.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return e.dir(at, name, &a, path)
	}
	if first, ok := e.linked[ino]; ok {
		return unix.Linkat(int(e.root.Fd()), first, int(at.Fd()), name, 0)
	}
	if err := e.file(at, name, &a, path); err != nil || e.full != nil {
		return err
	}
	if a.Nlink > 1 {
		e.linked[ino] = path
	}
	e.Files++
	e.failed(path, e.attributes(at, name, &a))
	return nil
}

func (e *Exporter) dir(at *os.File, name string, a *volume.Attr, path string) error {
	if e.visited[a.Ino] {
		return fmt.Errorf("directory %d was copied before: its parents do not lead to the root", a.Ino)
	}
	if err := unix.Mkdirat(int(at.Fd()), name, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	e.content(d, a, path)
	return nil
}

// file makes what is no directory, with its content.
func (e *Exporter) file(at *os.File, name string, a *volume.Attr, path string) error {
	dirfd := int(at.Fd())
	switch typ := a.Mode & syscall.S_IFMT; typ {
	case syscall.S_IFREG:
		return e.regular(dirfd, name, a, path)
	case syscall.S_IFLNK:
		target, err := e.Volume.Readlink(a.Ino)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, dirfd, name)
	case syscall.S_IFCHR, syscall.S_IFBLK, syscall.S_IFIFO, syscall.S_IFSOCK:
		return unix.Mknodat(dirfd, name, typ|0o600, int(unix.Mkdev(major(a.Rdev), minor(a.Rdev))))
	default:
		return fmt.Errorf("inode %d has the mode %#o, which is of no type", a.Ino, a.Mode)
	}
}

func (e *Exporter) regular(dirfd int, name string, a *volume.Attr, path string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Truncate(int64(a.Size))
	if err == nil {
		if lost := copyContent(e.Volume, a.Ino, a.Size, f, e.buf); lost != nil {
			e.failed(path, fmt.Errorf("content of inode %d: %w", a.Ino, lost))
		}
	}
	return errors.Join(err, f.Close())
}

// attributes sets owner, mode, extended attributes and times of name in the directory at, or of the directory itself if name is
// empty. The order matters: a change of owner clears set-user-id and file capabilities, and each change but the last moves a time.
func (e *Exporter) attributes(at *os.File, name string, a *volume.Attr) error {
	dirfd, path := int(at.Fd()), fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name)
	if name == "" {
		path = fmt.Sprintf("/proc/self/fd/%d/.", at.Fd())
	}
	var errs []error
	try := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	try("owner", unix.Lchown(path, int(a.UID), int(a.GID)))
	if a.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		try("mode", unix.Chmod(path, a.Mode&0o7777))
	}
	try("extended attributes", e.xattrs(path, a.Ino))
	times := []unix.Timespec{{Sec: a.Atime.Sec, Nsec: int64(a.Atime.Nsec)}, {Sec: a.Mtime.Sec, Nsec: int64(a.Mtime.Nsec)}}
	if name == "" {
		name = "."
	}
	try("times", unix.UtimesNanoAt(dirfd, name, times, unix.AT_SYMLINK_NOFOLLOW))
	return errors.Join(errs...)
}

func (e *Exporter) xattrs(path string, ino volume.Ino) error {
	n, err := e.Volume.ListXattr(ino, e.value)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range strings.Split(string(e.value[:n]), "\x00") {
		if name == "" {
			continue
		}
		n, err := e.Volume.GetXattr(ino, name, e.value)
		if err == nil {
			err = unix.Lsetxattr(path, name, e.value[:n], 0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
