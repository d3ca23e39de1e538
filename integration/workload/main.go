// Workload runs on a mounted pmemfs as an ordinary program: it appends records with an fsync after each and notes outside
// the mount what was acknowledged, changes files through mappings and msync, and checks all that afterwards.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const usage = `usage: workload append FILE ACKED          append records for ever, fsync each, then note its number in ACKED
       workload check-append FILE ACKED    every record noted in ACKED must stand in FILE
       workload msync FILE SEED            change FILE (1 MiB) through a mapping, msync
       workload check-msync FILE SEED      FILE must hold what msync SEED stored
       workload store FILE ACKED           commit to a store through a shared mapping for ever, note each transaction in ACKED
       workload check-store FILE ACKED,..  every transaction noted in one of ACKED must be in the store
       workload lock FILE KIND             take locks (flock, posix or ofd) as standard input says: try, wait, share, free
       workload replace FILE COUNT         rename COUNT whole versions over FILE
       workload watch FILE COUNT           read FILE COUNT times: a whole version each time
       workload churn DIR COUNT            make and remove names in DIR, COUNT at a time, until standard input ends
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("wrong number of arguments")
	}
	switch args[0] {
	case "append":
		return appendRecords(args[1], args[2])
	case "check-append":
		return checkAppend(args[1], args[2])
	case "msync":
		return storeMapped(args[1], args[2])
	case "check-msync":
		return checkMapped(args[1], args[2])
	case "store":
		return commitLoop(args[1], args[2])
	case "check-store":
		return checkStore(args[1], args[2])
	case "lock":
		return serveLocks(args[1], args[2])
	case "replace":
		return replace(args[1], args[2])
	case "watch":
		return watch(args[1], args[2])
	case "churn":
		return churn(args[1], args[2])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// A record is 64 bytes: number u64, filler that depends on it, CRC-32 of the first 60 bytes.
const recordSize = 64

func record(n uint64) []byte {
	b := make([]byte, recordSize)
	binary.LittleEndian.PutUint64(b, n)
	for i := 8; i < 60; i++ {
		b[i] = byte(n) + byte(i)
	}
	binary.LittleEndian.PutUint32(b[60:], crc32.ChecksumIEEE(b[:60]))
	return b
}

// appendRecords runs until a write or fsync fails; it is meant to be ended from outside.
func appendRecords(file, acked string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	log, err := os.OpenFile(acked, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	for n := uint64(1); ; n++ {
		if _, err := f.Write(record(n)); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("fsync of record %d: %w", n, err)
		}
		if _, err := fmt.Fprintln(log, n); err != nil {
			return err
		}
	}
}

func checkAppend(file, acked string) error {
	last, err := lastAcked(acked)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	got := make([]byte, recordSize)
	for n := uint64(1); n <= last; n++ {
		if _, err := io.ReadFull(in, got); err != nil {
			return fmt.Errorf("%d records were acknowledged, but the file ends before record %d: %w", last, n, err)
		}
		if string(got) != string(record(n)) {
			return fmt.Errorf("record %d of %d acknowledged ones differs: % x", n, last, got)
		}
	}
	fmt.Printf("%d records acknowledged, all there\n", last)
	return nil
}

// lastAcked is the number on the last whole line; a line without its end was never finished.
func lastAcked(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var last uint64
	for start, i := 0, 0; i < len(b); i++ {
		if b[i] != '\n' {
			continue
		}
		if last, err = strconv.ParseUint(string(b[start:i]), 10, 64); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		start = i + 1
	}
	if last == 0 {
		return 0, fmt.Errorf("%s: no record was acknowledged, so there is nothing to check", path)
	}
	return last, nil
}

const mappedSize = 1 << 20

func pattern(seed string) []byte {
	b := make([]byte, mappedSize)
	x := uint64(crc32.ChecksumIEEE([]byte(seed))) | 1
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b
}

func storeMapped(file, seed string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(mappedSize); err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, mappedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap %s: %w", file, err)
	}
	copy(m, pattern(seed))
	return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
}

func checkMapped(file, seed string) error {
	got, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	want := pattern(seed)
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d bytes, want %d", file, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d is %#x, msync stored %#x", file, i, got[i], want[i])
		}
	}
	fmt.Println("all bytes that msync stored are there")
	return nil
}
