package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fileBytes is the size of the file that the overwrite loops work on.
const fileBytes = 64 << 20

// loop is one measured loop. run returns the time of each operation.
type loop struct {
	name string
	what string
	run  func(dir string, n int, rnd *rand.Rand) ([]time.Duration, error)
}

var loops = []loop{
	{"w4k_fsync", "4 KiB overwrite at a random place, fsync", overwriteFsync},
	{"w4k_odsync", "4 KiB overwrite of a file opened with O_DSYNC", overwriteDsync},
	{"append64_fsync", "64 bytes appended, fsync", appendFsync},
	{"mmap_msync4k", "4 KiB stored through a mapping, msync", mapMsync},
	{"create4k_fsync", "a new file of 4 KiB, fsync", createFsync},
	{"w4k_fsync_j4", "4 KiB overwrite and fsync in 4 threads, each its own file", overwriteParallel},
	{"w1m_fsync", "1 MiB overwrite, fsync", overwriteLarge},
}

// timed measures n calls of op after n/10 calls to warm up.
func timed(n int, op func(i int) error) ([]time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for i := -n / 10; i < n; i++ {
		begin := time.Now()
		if err := op(i); err != nil {
			return nil, err
		}
		if i >= 0 {
			times = append(times, time.Since(begin))
		}
	}
	return times, nil
}

// prepare opens a file of fileBytes, written once so that every block exists.
func prepare(path string, flags int) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|flags, 0o644)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == fileBytes {
		return fd, err
	}
	chunk := make([]byte, 1<<20)
	for off := int64(0); off < fileBytes; off += int64(len(chunk)) {
		if _, err := unix.Pwrite(fd, chunk, off); err != nil {
			return fd, err
		}
	}
	return fd, unix.Fsync(fd)
}

func randomBlock(rnd *rand.Rand) int64 { return rnd.Int64N(fileBytes/4096) * 4096 }

func writeFull(fd int, b []byte, off int64) error {
	n, err := unix.Pwrite(fd, b, off)
	if err == nil && n != len(b) {
		err = fmt.Errorf("short write: %d of %d bytes", n, len(b))
	}
	return err
}

func overwrite(path string, flags, size, n int, rnd *rand.Rand) ([]time.Duration, error) {
	fd, err := prepare(path, 0)
	if err != nil {
		return nil, err
	}
	unix.Close(fd)
	if fd, err = unix.Open(path, unix.O_RDWR|flags, 0); err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, size)
	return timed(n, func(i int) error {
		buf[0] = byte(i)
		off := randomBlock(rnd) / int64(size) * int64(size)
		if err := writeFull(fd, buf, off); err != nil || flags != 0 {
			return err
		}
		return unix.Fsync(fd)
	})
}

func overwriteFsync(dir string, n int, rnd *rand.Rand) ([]time.Duration, error) {
	return overwrite(filepath.Join(dir, "w0"), 0, 4096, n, rnd)
}

func overwriteDsync(dir string, n int, rnd *rand.Rand) ([]time.Duration, error) {
	return overwrite(filepath.Join(dir, "w0"), unix.O_DSYNC, 4096, n, rnd)
}

func overwriteLarge(dir string, n int, rnd *rand.Rand) ([]time.Duration, error) {
	return overwrite(filepath.Join(dir, "w0"), 0, 1<<20, n/10, rnd)
}

func appendFsync(dir string, n int, _ *rand.Rand) ([]time.Duration, error) {
	path := filepath.Join(dir, "append")
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer os.Remove(path)
	defer unix.Close(fd)
	buf := make([]byte, 64)
	return timed(n, func(int) error {
		if _, err := unix.Write(fd, buf); err != nil {
			return err
		}
		return unix.Fsync(fd)
	})
}

func mapMsync(dir string, n int, rnd *rand.Rand) ([]time.Duration, error) {
	fd, err := prepare(filepath.Join(dir, "w0"), 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	m, err := unix.Mmap(fd, 0, fileBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(m)
	var sum byte
	for off := 0; off < len(m); off += 4096 {
		sum += m[off]
	}
	return timed(n, func(i int) error {
		off := randomBlock(rnd)
		page := m[off : off+4096]
		for j := range page {
			page[j] = byte(i) + sum
		}
		return unix.Msync(page, unix.MS_SYNC)
	})
}

func createFsync(dir string, n int, _ *rand.Rand) ([]time.Duration, error) {
	buf := make([]byte, 4096)
	made := 0
	defer func() {
		for i := range made {
			os.Remove(filepath.Join(dir, fmt.Sprint("new", i)))
		}
	}()
	return timed(n, func(int) error {
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprint("new", made)), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		made++
		defer unix.Close(fd)
		if err := writeFull(fd, buf, 0); err != nil {
			return err
		}
		return unix.Fsync(fd)
	})
}

func overwriteParallel(dir string, n int, rnd *rand.Rand) ([]time.Duration, error) {
	const threads = 4
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		all   []time.Duration
		first error
	)
	for j := range threads {
		own := rand.New(rand.NewPCG(rnd.Uint64(), uint64(j)))
		wg.Add(1)
		go func() {
			defer wg.Done()
			times, err := overwrite(filepath.Join(dir, fmt.Sprint("w", j)), 0, 4096, n/threads, own)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, times...)
			if first == nil {
				first = err
			}
		}()
	}
	wg.Wait()
	return all, first
}
