// Package scale fills a pool with very many files, on the volume and not through a mount, and measures what a mount with
// them costs. Its command is `make bench-scale`; a small version of it is a test in integration.
package scale

import (
	"fmt"
	"path"
)

// Plan says what a pool is filled with: Big files in one directory, the others in directories of PerDir files, 100
// directories in a directory. Every DataEvery-th file has one block of content, the others are empty.
type Plan struct {
	Files, Big, PerDir, DataEvery int
}

// DefaultPlan has a directory of 400,000 files, fewer where there are fewer than a million.
func DefaultPlan(files int) Plan {
	return Plan{Files: files, Big: min(400_000, files*2/5), PerDir: 1000, DataEvery: 10}
}

// PoolSize is enough for the files, in bytes: 96 MiB, and for each file its share of the tree and of the content.
func (p Plan) PoolSize() uint64 {
	return (96<<20 + uint64(p.Files)*(450+4096/uint64(p.DataEvery))) >> 20 << 20
}

var (
	stems = [...]string{"invoice", "report-final", "IMG", "meeting notes", "backup", "thumbnail", "sensor.readings", "draft_v2"}
	types = [...]string{".pdf", ".txt", ".jpeg", ".md", ".tar.gz", ".png", ".csv", ".docx"}
)

// Dir is the directory of file i, below the root of the pool.
func (p Plan) Dir(i int) string {
	if i < p.Big {
		return "inbox"
	}
	d := (i - p.Big) / p.PerDir
	return fmt.Sprintf("archive-%03d/project-%02d", d/100, d%100)
}

// Path is that of file i, below the root of the pool.
func (p Plan) Path(i int) string { return path.Join(p.Dir(i), p.name(i)) }

func (p Plan) name(i int) string {
	k := i * 5 % 8
	return fmt.Sprintf("%s-%08d%s", stems[k], i, types[k])
}

// Dirs lists the directories that hold files, in the order of the files.
func (p Plan) Dirs() (dirs []string) {
	for i := 0; i < p.Files; {
		dirs = append(dirs, p.Dir(i))
		if i < p.Big {
			i = p.Big
		} else {
			i += p.PerDir
		}
	}
	return dirs
}
