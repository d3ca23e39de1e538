// Package mountinfo finds pmemfs mounts in /proc/self/mountinfo, without touching any mount: a dead one would hang or fail.
package mountinfo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// FSType is the type under which the kernel lists our mounts.
const FSType = "fuse.pmemfs"

// Entry is one mount.
type Entry struct{ Mountpoint, FSType, Source string }

// Find returns the topmost pmemfs mount at or above the absolute path, or nil.
func Find(path string) (*Entry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return find(f, path)
}

func find(r io.Reader, path string) (*Entry, error) {
	var best *Entry
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		e, err := parse(in.Text())
		if err != nil {
			return nil, err
		}
		if below(path, e.Mountpoint) && (best == nil || len(e.Mountpoint) >= len(best.Mountpoint)) {
			best = e
		}
	}
	if best == nil || best.FSType != FSType {
		return nil, in.Err()
	}
	return best, in.Err()
}

func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// parse reads one line as proc(5) describes it: ID PARENT DEV ROOT MOUNTPOINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS.
func parse(line string) (*Entry, error) {
	head, tail, ok := strings.Cut(line, " - ")
	h, t := strings.Fields(head), strings.Fields(tail)
	if !ok || len(h) < 6 || len(t) < 2 {
		return nil, fmt.Errorf("mountinfo: cannot read the line %q", line)
	}
	return &Entry{Mountpoint: unescape(h[4]), FSType: t[0], Source: unescape(t[1])}, nil
}

// unescape undoes the kernel's octal escapes of blank, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
