package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume"
)

// Lister writes listings in the manner of ls(1). Names are quoted where they hold what a terminal would not show.
type Lister struct {
	Volume    *volume.Volume
	Out       io.Writer
	Long      bool        // mode, links, owner, group, size, time of the last change
	Recursive bool        // below a directory too
	Report    func(error) // what cannot be read; the listing goes on

	visited map[volume.Ino]bool // directories, since a damaged pool may have a ring of them
}

// List lists the content of a directory, or the one file that path names. Its error says that the path leads nowhere, or that Out failed.
func (l *Lister) List(path string) error {
	a, err := Find(l.Volume, path)
	if err != nil {
		return err
	}
	if a.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return l.line(&a, path)
	}
	l.visited = make(map[volume.Ino]bool)
	return l.dir(a.Ino, "/"+strings.Trim(path, "/"))
}

func (l *Lister) dir(ino volume.Ino, path string) error {
	if l.visited[ino] {
		l.Report(fmt.Errorf("%s: directory %d was listed before: its parents do not lead to the root", path, ino))
		return nil
	}
	l.visited[ino] = true
	list, err := entries(l.Volume, ino)
	if err != nil {
		l.Report(fmt.Errorf("%s: %w", path, err))
	}
	slices.SortFunc(list, func(a, b volume.DirEnt) int { return cmp.Compare(a.Name, b.Name) })
	if l.Recursive {
		if _, err := fmt.Fprintf(l.Out, "%s:\n", show(path)); err != nil {
			return err
		}
	}
	for _, e := range list {
		if err := l.entry(&e, path); err != nil {
			return err
		}
	}
	if !l.Recursive {
		return nil
	}
	for _, e := range list {
		if e.Mode != syscall.S_IFDIR {
			continue
		}
		if _, err := fmt.Fprintln(l.Out); err != nil {
			return err
		}
		if err := l.dir(e.Ino, strings.TrimSuffix(path, "/")+"/"+e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lister) entry(e *volume.DirEnt, dir string) error {
	a := volume.Attr{Ino: e.Ino, Mode: e.Mode}
	if l.Long {
		var err error
		if a, err = l.Volume.GetAttr(e.Ino); err != nil {
			l.Report(fmt.Errorf("%s/%s (inode %d): %w", strings.TrimSuffix(dir, "/"), e.Name, e.Ino, err))
			return nil
		}
	}
	return l.line(&a, e.Name)
}

func (l *Lister) line(a *volume.Attr, name string) error {
	if !l.Long {
		_, err := fmt.Fprintln(l.Out, show(name))
		return err
	}
	size := fmt.Sprint(a.Size)
	arrow := ""
	switch a.Mode & syscall.S_IFMT {
	case syscall.S_IFCHR, syscall.S_IFBLK:
		size = fmt.Sprintf("%d,%d", major(a.Rdev), minor(a.Rdev))
	case syscall.S_IFLNK:
		target, err := l.Volume.Readlink(a.Ino)
		if err != nil {
			l.Report(fmt.Errorf("%s: target of the symbolic link: %w", name, err))
		}
		arrow = " -> " + show(target)
	}
	when := time.Unix(a.Mtime.Sec, int64(a.Mtime.Nsec)).UTC().Format("2006-01-02 15:04:05.000000000")
	_, err := fmt.Fprintf(l.Out, "%s %5d %5d %5d %12s %s %s%s\n", modeText(a.Mode), a.Nlink, a.UID, a.GID, size, when, show(name), arrow)
	return err
}

// show quotes a name that holds control characters, quotes or bytes that are no UTF-8.
func show(name string) string {
	if q := fmt.Sprintf("%q", name); q != `"`+name+`"` {
		return q
	}
	return name
}

// modeText is a mode as ls(1) shows it.
func modeText(mode uint32) string {
	b := []byte("?rwxrwxrwx")
	types := map[uint32]byte{
		syscall.S_IFREG: '-', syscall.S_IFDIR: 'd', syscall.S_IFLNK: 'l', syscall.S_IFCHR: 'c', syscall.S_IFBLK: 'b', syscall.S_IFIFO: 'p', syscall.S_IFSOCK: 's',
	}
	if c, ok := types[mode&syscall.S_IFMT]; ok {
		b[0] = c
	}
	for i := range 9 {
		if mode&(1<<(8-i)) == 0 {
			b[1+i] = '-'
		}
	}
	for _, s := range []struct {
		bit uint32
		at  int
		c   byte
	}{{syscall.S_ISUID, 3, 's'}, {syscall.S_ISGID, 6, 's'}, {syscall.S_ISVTX, 9, 't'}} {
		if mode&s.bit == 0 {
			continue
		}
		if b[s.at] == '-' {
			s.c -= 'a' - 'A' // without the right to execute
		}
		b[s.at] = s.c
	}
	return string(b)
}

// A device number is 32 bits wide, as in the FUSE protocol: bits 8 to 19 are the major number, the others the minor one
// (new_encode_dev of Linux).
func major(dev uint32) uint32 { return dev >> 8 & 0xfff }
func minor(dev uint32) uint32 { return dev&0xff | dev>>12&^uint32(0xff) }
