package rig

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

// Types of a cpio entry, as in st_mode.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
	modeChar = 0o020000
)

// file is one file of an initramfs.
type file struct {
	mode uint32
	data []byte // content, or where a symbolic link points
	dev  [2]int // major and minor number of a device
}

// initramfs maps absolute paths to files. Directories above a file need not be named.
type initramfs map[string]file

func (t initramfs) dir(name string)      { t[name] = file{mode: modeDir | 0o755} }
func (t initramfs) link(name, to string) { t[name] = file{mode: modeLink | 0o777, data: []byte(to)} }
func (t initramfs) text(name, text string) {
	t[name] = file{mode: modeFile | 0o644, data: []byte(text)}
}
func (t initramfs) program(name string, b []byte) { t[name] = file{mode: modeFile | 0o755, data: b} }

// copy takes a file of the host.
func (t initramfs) copy(name, from string) error {
	b, err := os.ReadFile(from)
	if err == nil {
		t.program(name, b)
	}
	return err
}

// write writes the archive, in the format "newc" that the kernel unpacks (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
func (t initramfs) write(to string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	for i, name := range t.names() {
		if err := writeEntry(w, i+1, name[1:], t[name]); err != nil {
			return err
		}
	}
	if err := writeEntry(w, 0, "TRAILER!!!", file{}); err != nil {
		return err
	}
	return w.Flush()
}

// names lists all files, each after the directory that it is in.
func (t initramfs) names() []string {
	for name := range t {
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if _, ok := t[d]; !ok {
				t.dir(d)
			}
		}
	}
	var names []string
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writeEntry writes magic, 13 fields of 8 hexadecimal digits, name and data, each padded to 4 bytes.
func writeEntry(w io.Writer, inode int, name string, f file) error {
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		inode, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, f.dev[0], f.dev[1], len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(header), f.data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, -len(part)&3)); err != nil {
			return err
		}
	}
	return nil
}
