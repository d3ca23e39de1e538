package scale

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is a mounted pool that was filled after a plan.
type Mount struct {
	Dir  string
	Plan Plan
}

// Evict makes the kernel forget all names and inodes of the mount that are not in use, so that the next look at each asks
// the daemon.
func (m Mount) Evict() error {
	if err := unix.Mount("", m.Dir, "", unix.MS_REMOUNT, ""); err != nil {
		return fmt.Errorf("remount %s: %w", m.Dir, err)
	}
	return nil
}

// statClients look at files at the same time, so that no processor falls asleep between a request and its answer: to wake
// a virtual one takes longer than a stat, and whether that happens is chance.
const statClients = 4

// Stat looks at n files at random that the kernel does not know, in directories that it knows, so that each costs one
// request whatever the number of directories. It returns how long that took.
func (m Mount) Stat(n int, rnd *rand.Rand) (time.Duration, error) {
	if err := m.Evict(); err != nil {
		return 0, err
	}
	var st unix.Stat_t
	for _, dir := range m.Plan.Dirs() {
		if err := unix.Lstat(filepath.Join(m.Dir, dir), &st); err != nil {
			return 0, fmt.Errorf("%s: %w", dir, err)
		}
	}
	paths := make([]string, n)
	for i, file := range sample(n, m.Plan.Files, rnd) {
		paths[i] = filepath.Join(m.Dir, m.Plan.Path(file))
	}
	runtime.GC() // now, and not beside the daemon while the time runs
	var clients sync.WaitGroup
	var errs [statClients]error
	begin := time.Now()
	for i := range statClients {
		clients.Go(func() { errs[i] = lookAt(paths[i*n/statClients : (i+1)*n/statClients]) })
	}
	clients.Wait()
	return time.Since(begin), errors.Join(errs[:]...)
}

func lookAt(paths []string) error {
	var st unix.Stat_t
	for _, path := range paths {
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// sample draws n different numbers below limit. It takes no memory by the limit: what a client collects, it collects while the daemon works.
func sample(n, limit int, rnd *rand.Rand) []int {
	if n > limit/2 {
		return rnd.Perm(limit)[:n]
	}
	drawn := make(map[int]bool, n)
	numbers := make([]int, 0, n)
	for len(numbers) < n {
		if k := rnd.IntN(limit); !drawn[k] {
			drawn[k] = true
			numbers = append(numbers, k)
		}
	}
	return numbers
}

// fsyncFile is the size in bytes of the file that is overwritten.
const fsyncFile = 16 << 20

// Fsync overwrites 4 KiB at random places of one file n times, each with fsync, and returns the p10 of the time that this
// takes.
func (m Mount) Fsync(n int, rnd *rand.Rand) (time.Duration, error) {
	fd, err := unix.Open(filepath.Join(m.Dir, "overwritten"), unix.O_RDWR|unix.O_CREAT, 0o644)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := extend(fd); err != nil {
		return 0, err
	}
	block := make([]byte, 4096)
	times := make([]time.Duration, n)
	for i := range times {
		block[0]++
		begin := time.Now()
		if k, err := unix.Pwrite(fd, block, rnd.Int64N(fsyncFile/4096)*4096); err != nil || k != len(block) {
			return 0, fmt.Errorf("write: %d bytes, %w", k, err)
		}
		if err := unix.Fsync(fd); err != nil {
			return 0, fmt.Errorf("fsync: %w", err)
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return times[n/10], nil
}

// extend writes the file once, so that every block exists.
func extend(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == fsyncFile {
		return err
	}
	chunk := make([]byte, 1<<20)
	for off := int64(0); off < fsyncFile; off += int64(len(chunk)) {
		if n, err := unix.Pwrite(fd, chunk, off); err != nil || n != len(chunk) {
			return fmt.Errorf("write of %d bytes at %d: %d, %w", len(chunk), off, n, err)
		}
	}
	return unix.Fsync(fd)
}

// RssAnon is the anonymous memory of a process in bytes: what it takes beside the mapped pool.
func RssAnon(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no RssAnon", path)
}

// Median of some times.
func Median(times []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(times))
	return s[len(s)/2]
}
