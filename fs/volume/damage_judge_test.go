package volume

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

const (
	// caseDeadline bounds what is done with one damaged pool. It is far above what a healthy one takes.
	caseDeadline = 30 * time.Second
	// caseBytes bounds what it may allocate: 64 times the size of the pool.
	caseBytes = 64 * MinPool
)

func openImage(image []byte) (*Volume, Recovered, error) {
	region := pmem.NewHeap(uint64(len(image)))
	copy(region.Bytes(), image)
	return openRegion(region)
}

func openRegion(region pmem.Region) (*Volume, Recovered, error) {
	clock := int64(2_000_000)
	return Open(region, Options{PoolUUID: testUUID, Term: 9, WalkUpTo: 1 << 20, Now: func() Time {
		clock++
		return Time{Sec: clock}
	}})
}

// verdict is how a damaged pool was met. Neither refused nor found means that nobody noticed.
type verdict struct {
	refused error  // by Open
	found   string // by Check: the first finding, or why it could not look
	content string // what census said, if it opened
}

// names is what the text of an error of Open must show: where, what was found and what was expected.
var names = regexp.MustCompile(`(?s)found.*expected|expected.*found`)

// judge opens a damaged pool, looks at all of it, and, if it is not what it was, changes and empties it. Whatever the
// damage, that ends, does not panic, and takes bounded memory; the error says where that went wrong. Examine has one that is
// refused looked at by fsck too.
func (s *specimen) judge(name string, examine bool, spoil func(b []byte) []byte) (v verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	watchdog := time.AfterFunc(caseDeadline, func() {
		debug.SetTraceback("all")
		panic(name + ": a damaged pool hangs the volume")
	})
	defer watchdog.Stop()
	before := allocated()
	vol, _, openErr := openRegion(s.spoiled(spoil))
	if openErr != nil {
		v.refused = openErr
		fenced := strings.Contains(openErr.Error(), "fenced off") // a term is not wrong by itself
		switch {
		case !errors.Is(openErr, ErrCorrupt) && !fenced:
			err = fmt.Errorf("refused without ErrCorrupt: %w", openErr)
		case !names.MatchString(openErr.Error()):
			err = fmt.Errorf("refused without saying what was found and expected: %w", openErr)
		case examine && !fenced:
			err = s.examined(spoil)
		}
		return v, err
	}
	v.found = firstFinding(vol)
	v.content = census(vol)
	if v.found != "" || v.content != s.content {
		if err := exercise(vol); err != nil {
			return v, err
		}
	}
	if n := allocated() - before; n > caseBytes {
		return v, fmt.Errorf("%d bytes were allocated", n)
	}
	return v, nil
}

// examined has a damaged specimen looked at as fsck does when it does not open: there must be a finding, or an error.
func (s *specimen) examined(spoil func(b []byte) []byte) error {
	var found []Finding
	err := Examine(s.spoiled(spoil), testUUID, func(f Finding) { found = append(found, f) })
	if err == nil && !slices.ContainsFunc(found, func(f Finding) bool { return !f.Note }) {
		return fmt.Errorf("refused, but fsck finds nothing: %v", found)
	}
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("fsck fails without ErrCorrupt: %w", err)
	}
	return nil
}

// spoiled is a damaged specimen, in a region that all cases share unless it is cut short.
func (s *specimen) spoiled(spoil func(b []byte) []byte) pmem.Region {
	copy(s.region.Bytes(), s.image)
	b := spoil(s.region.Bytes())
	if len(b) == len(s.image) {
		return s.region
	}
	short := pmem.NewHeap(uint64(len(b)))
	copy(short.Bytes(), b)
	return short
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func firstFinding(v *Volume) (first string) {
	err := v.Check(func(f Finding) {
		if first == "" {
			first = f.String()
		}
	})
	if first == "" && err != nil {
		first = err.Error()
	}
	return first
}

// census is everything that can be seen of a volume, as text with the bytes of content in between: names, attributes, content, extended attributes. It
// does not follow a directory twice.
func census(v *Volume) string {
	var b strings.Builder
	buf := make([]byte, maxXattr)
	visited := make(map[Ino]bool)
	var walk func(path string, ino Ino)
	walk = func(path string, ino Ino) {
		a, err := v.GetAttr(ino)
		fmt.Fprintf(&b, "%s %+v %v", path, a, err)
		n, err := v.ListXattr(ino, buf)
		fmt.Fprintf(&b, " %v", err)
		for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
			n, err := v.GetXattr(ino, name, buf)
			fmt.Fprintf(&b, " %s=%d:%s %v", name, n, buf[:n], err)
		}
		switch a.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			writeContent(&b, v, ino, a.Size, buf)
		case syscall.S_IFLNK:
			target, err := v.Readlink(ino)
			fmt.Fprintf(&b, " -> %s %v", target, err)
		case syscall.S_IFDIR:
			if visited[ino] {
				return
			}
			visited[ino] = true
			entries, err := readAll(v, ino)
			fmt.Fprintf(&b, " %d entries %v\n", len(entries), err)
			for _, e := range entries {
				fmt.Fprintf(&b, "%o %d ", e.Mode, e.Ino)
				if at, err := v.Lookup(ino, e.Name); err == nil && at.Ino == e.Ino {
					walk(path+"/"+e.Name, e.Ino)
				} else {
					fmt.Fprintf(&b, "%s/%s %v\n", path, e.Name, err)
				}
			}
			return
		}
		b.WriteByte('\n')
	}
	walk("", Root)
	fmt.Fprintf(&b, "%d inodes", v.StatFS().Inodes)
	return b.String()
}

// writeContent writes the first and the last bytes of a file, as many as buf takes, without zeros at the end.
func writeContent(b *strings.Builder, v *Volume, ino Ino, size uint64, buf []byte) {
	most := uint64(len(buf))
	for _, off := range []uint64{0, max(size, most) - most} {
		n, err := v.Read(ino, off, buf)
		shown := bytes.TrimRight(buf[:n], "\x00")
		fmt.Fprintf(b, " %d:%s %v", len(shown), shown, err)
		for end := off; err == nil && end < off+most; {
			if _, end, err = v.Span(ino, end); end == 0 {
				break
			}
		}
	}
}

func readAll(v *Volume, dir Ino) (all []DirEnt, err error) {
	err = v.ReadDir(dir, cookieDotDot, func(e DirEnt) bool {
		all = append(all, e)
		return len(all) < 10000
	})
	return all, err
}

// exercise does some of everything to a volume, with checkpoints, then removes what it can and reclaims. Errors are what
// they may be; only that it ends counts.
func exercise(v *Volume) error {
	file, dir := Ino(0), Ino(Root)
	if entries, err := readAll(v, Root); err == nil {
		for _, e := range entries {
			switch e.Mode {
			case syscall.S_IFREG:
				file = e.Ino
				_, _ = v.Write(e.Ino, 100, pattern(10000, 1), true)
				_ = v.PunchHole(e.Ino, 4096, 8192)
				_ = v.ZeroRange(e.Ino, 0, 50000, true)
				_ = v.SetXattr(e.Ino, "user.small", pattern(1000, 1), 0)
				_ = v.RemoveXattr(e.Ino, "trusted.large")
				_, _ = v.SetAttr(e.Ino, SetAttr{Valid: SetSize, Size: 70000})
				_, _ = v.SetAttr(e.Ino, SetAttr{Valid: SetSize | SetMode, Size: 5, Mode: 0777})
			case syscall.S_IFDIR:
				dir = e.Ino
			}
		}
	}
	_, _ = v.Make(Root, "new", Make{Mode: syscall.S_IFREG | 0644})
	_, _ = v.Make(dir, "new", Make{Mode: syscall.S_IFDIR | 0755})
	_, _ = v.Tmpfile(dir, Make{Mode: syscall.S_IFREG | 0600})
	_, _ = v.Link(file, dir, "another")
	_ = v.Rename(dir, "new", Root, "new dir", 0)
	_ = v.Rename(Root, "new", dir, "another", 0)
	if err := commitAll(v); err != nil {
		return err
	}
	removeAll(v, Root, make(map[Ino]bool))
	if err := reclaimAll(v); err != nil {
		return err
	}
	return commitAll(v)
}

func removeAll(v *Volume, dir Ino, visited map[Ino]bool) {
	if visited[dir] {
		return
	}
	visited[dir] = true
	entries, _ := readAll(v, dir)
	for _, e := range entries {
		if e.Mode == syscall.S_IFDIR {
			removeAll(v, e.Ino, visited)
			_ = v.Rmdir(dir, e.Name)
		} else {
			_ = v.SetFlags(e.Ino, 0)
			_ = v.Unlink(dir, e.Name)
		}
		if v.WantCheckpoint() {
			_ = commitAll(v)
		}
	}
}

// reclaimAll takes what orphans hold apart. Each step removes a key, of which the pool can hold only so many.
func reclaimAll(v *Volume) error {
	const most = MinPool / 24
	for range most {
		more, err := v.Reclaim()
		if errors.Is(err, ErrShort) {
			if err := commitAll(v); err != nil {
				return err
			}
		} else if err != nil || !more {
			return nil
		}
	}
	return fmt.Errorf("%d steps of reclaiming did not end", most)
}

// commitAll makes all durable, with two checkpoints.
func commitAll(v *Volume) error {
	_, _ = v.FlushAll()
	_, _ = v.CloseGroup()
	for range 2 {
		_, _ = v.CloseEpoch()
		for j := v.NextJob(); j != nil; j = v.NextJob() {
			if slices.ContainsFunc(j.Ranges, func(r pmem.Range) bool { return r.Off < layout.SuperOff0 }) {
				return fmt.Errorf("job %d writes to the pool header: %v", j.Seq, j.Ranges)
			}
			if err := pmem.Drain(v.region, j.Ranges, j.Seal); err != nil {
				return fmt.Errorf("job %d: %w", j.Seq, err)
			}
			v.Sealed(j)
		}
	}
	return nil
}
