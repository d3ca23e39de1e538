package poolset

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// BlockSize in bytes; part sizes are whole numbers of blocks.
const BlockSize = 4096

// maxFile bounds a pool set file in bytes, maxLine a line of it.
const (
	maxFile = 1 << 20
	maxLine = 8 << 10
)

// Set is a parsed pool set.
type Set struct {
	File     string // for messages
	Parts    []Part // at least one
	Replicas []Replica
}

// Part is one file of a pool.
type Part struct {
	Path string // absolute and clean
	Size uint64 // usable bytes, a multiple of BlockSize; 0 with Auto
	Auto bool   // the size is that of the existing file or device
	Line int
}

// Replica is a target that holds a copy of the pool.
type Replica struct {
	User string // may be empty
	Host string // name or address, without brackets
	Port uint16 // 0 if not given
	Name string // name of the pool on that host, a relative path without ".."
	Line int
}

// SyntaxError says where a pool set file is wrong.
type SyntaxError struct {
	File            string
	Line            int
	Found, Expected string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("pool set %s, line %d: found %s, expected %s", e.File, e.Line, e.Found, e.Expected)
}

// Size returns the sum of the sizes of the parts in bytes. Parts whose size is AUTO count as zero.
func (s *Set) Size() uint64 {
	var n uint64
	for _, p := range s.Parts {
		n += p.Size
	}
	return n
}

// ParseFile reads the pool set file at path.
func ParseFile(path string) (*Set, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a fifo must not block
	if err != nil {
		return nil, fmt.Errorf("open pool set: %w", err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("pool set %s is not a regular file: give the path of one", path))
	}
	return Parse(f, path)
}

// Parse reads a pool set from r; name stands for it in messages. What is wrong with the text comes back as a *SyntaxError.
func Parse(r io.Reader, name string) (*Set, error) {
	p := parser{set: &Set{File: name}}
	in := &io.LimitedReader{R: r, N: maxFile + 1}
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 0, 1024), maxLine)
	for sc.Scan() {
		p.line++
		if err := p.parseLine(sc.Text()); err != nil {
			return nil, err
		}
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		p.line++
		return nil, p.bad("a longer line", "at most %d bytes per line", maxLine)
	}
	if sc.Err() != nil {
		return nil, fmt.Errorf("read pool set %s after line %d: %w", name, p.line, sc.Err())
	}
	if in.N == 0 {
		return nil, p.bad("a longer file", "at most %d bytes", maxFile)
	}
	return p.finish()
}

// signature is the first line of every pool set file.
const signature = "PMEMPOOLSET"

type parser struct {
	set  *Set
	line int // number of the line being parsed, from 1
}

func (p *parser) bad(found, expected string, args ...any) error {
	return &SyntaxError{File: p.set.File, Line: p.line, Found: found, Expected: fmt.Sprintf(expected, args...)}
}

func (p *parser) parseLine(text string) error {
	if p.line == 1 {
		if text != signature {
			return p.bad(fmt.Sprintf("%q", text), "%s as the whole first line", signature)
		}
		return nil
	}
	text, _, _ = strings.Cut(text, "#")
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	switch words[0] {
	case "OPTION":
		return p.option(words[1:])
	case "REPLICA":
		return p.replica(words[1:])
	}
	return p.part(words)
}

func (p *parser) option(words []string) error {
	if len(words) == 1 && words[0] == "SINGLEHDR" {
		return nil
	}
	return p.bad(fmt.Sprintf("OPTION %s", strings.Join(words, " ")),
		"OPTION SINGLEHDR: a pool has exactly one header, other options are not supported")
}

func (p *parser) replica(words []string) error {
	const want = "REPLICA [user@]host[:port] name"
	switch len(words) {
	case 0:
		return p.bad("a local replica", want+": local replicas are not supported, name a target host")
	case 2:
	default:
		return p.bad(fmt.Sprintf("REPLICA with %d words", len(words)), want)
	}
	if len(p.set.Parts) == 0 {
		return p.bad("REPLICA", "at least one part (SIZE /path) before it")
	}
	r, err := parseReplica(words[0], words[1])
	if err != nil {
		return p.bad(fmt.Sprintf("REPLICA %s %s: %v", words[0], words[1], err), want)
	}
	r.Line = p.line
	for _, o := range p.set.Replicas {
		if o.Host == r.Host && o.Port == r.Port && o.Name == r.Name {
			return p.bad(fmt.Sprintf("%s %s a second time", words[0], words[1]), "each target once (first on line %d)", o.Line)
		}
	}
	p.set.Replicas = append(p.set.Replicas, r)
	return nil
}

func (p *parser) part(words []string) error {
	const want = "SIZE /absolute/path, REPLICA [user@]host[:port] name, or OPTION SINGLEHDR"
	if len(words) != 2 {
		return p.bad(fmt.Sprintf("%q", strings.Join(words, " ")), want)
	}
	if len(p.set.Replicas) > 0 {
		return p.bad("a part after a REPLICA line", "all parts before the first REPLICA: the parts of a target stand in its own pool set")
	}
	part := Part{Path: words[1], Line: p.line}
	if err := p.partSize(words[0], &part); err != nil {
		return err
	}
	if !filepath.IsAbs(part.Path) || filepath.Clean(part.Path) != part.Path {
		return p.bad(fmt.Sprintf("path %q", part.Path), "an absolute path of a file, without . and .. and double slashes")
	}
	for _, o := range p.set.Parts {
		if o.Path == part.Path {
			return p.bad(fmt.Sprintf("part %s a second time", part.Path), "each file once (first on line %d)", o.Line)
		}
	}
	p.set.Parts = append(p.set.Parts, part)
	return nil
}

func (p *parser) partSize(word string, part *Part) error {
	if word == "AUTO" {
		part.Auto = true
		return nil
	}
	n, err := ParseSize(word)
	if err != nil {
		return p.bad(fmt.Sprintf("size %q: %v", word, err), "a number of bytes, with K, M, G, T, P or KiB, kB and so on, or AUTO")
	}
	part.Size = n - n%BlockSize
	if part.Size == 0 {
		return p.bad(fmt.Sprintf("size %q", word), "at least %d bytes", BlockSize)
	}
	if part.Size > math.MaxInt64-p.set.Size() {
		return p.bad(fmt.Sprintf("size %q", word), "at most %d bytes in all parts together", int64(math.MaxInt64))
	}
	return nil
}

func (p *parser) finish() (*Set, error) {
	if p.line == 0 {
		p.line = 1
		return nil, p.bad("an empty file", "%s as the whole first line", signature)
	}
	if len(p.set.Parts) == 0 {
		return nil, p.bad("the end of the file", "at least one part (SIZE /path)")
	}
	return p.set, nil
}
